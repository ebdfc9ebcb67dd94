//! The keys of `config.json` that no family takes: ignored, fixed or refused.

use hapo_core::{Refusal, expected, is_among};
use serde::Serialize;
use serde_json::{Map, Value};

use super::shown;
use crate::files::{excerpt, several};

/// Keys that leave the arithmetic alone: bookkeeping of transformers, generation, initialisation, marks of tools.
const HARMLESS: &str = "attn_implementation bad_words_ids begin_suppress_tokens bf16 chunk_size_feed_forward \
     classifier_dropout cls_token_id cross_attention_hidden_size datasets decoder_start_token_id \
     diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size end_token_id \
     exponential_decay_length_penalty export_model_type finetuning_task forced_bos_token_id \
     forced_eos_token_id fp16 gradient_checkpointing id2label ignore_index initializer_range \
     is_llama_config label2id length_penalty library_name license mask_token_id max_length \
     max_sequence_length max_window_layers min_length model_max_length model_name name_or_path \
     no_repeat_ngram_size num_beam_groups num_beams num_labels num_return_sequences \
     output_attentions output_hidden_states output_past output_scores prefix pretraining_tp \
     problem_type remove_invalid_values repetition_penalty return_dict return_dict_in_generate \
     sep_token_id suppress_tokens task task_specific_params temperature tf_legacy_loss \
     tie_encoder_decoder tokenizer_class tokenizer_model_max_length tokenizer_padding_side top_k \
     top_p torchscript transformers.js_config transformers_version trl_version typical_p \
     unk_token_id unsloth_fixed unsloth_version use_bfloat16 use_cache use_return_dict";

/// Keys with the value that changes nothing, as JSON. Of several rows of a key, the first is the one to say.
const FIXED: &[Fixed] = &[
    ("hidden_act", "\"silu\""),
    ("hidden_act", "\"swish\""),
    ("mlp_bias", "false"),
    ("bias", "false"),
    ("use_bias", "false"),
    ("no_bias", "true"),
    ("use_qk_norm", "false"),
    ("partial_rotary_factor", "1.0"),
    ("rotary_pct", "1.0"),
    ("rope_interleaved", "false"),
    ("use_mrope", "false"),
    ("is_causal", "true"),
    ("is_decoder", "false"),
    ("is_encoder_decoder", "false"),
    ("add_cross_attention", "false"),
    ("pruned_heads", "{}"),
];

pub(crate) type Fixed = (&'static str, &'static str);

/// Dropouts of the families: refused unless they are 0.
const DROPOUTS: &str = "attention_dropout attn_pdrop dropout embd_pdrop hidden_dropout resid_pdrop";

/// Keys of mixtures of experts: refused unless they say that there is none.
const EXPERTS: &str = "num_experts num_local_experts n_routed_experts num_experts_per_tok moe_intermediate_size \
     shared_expert_intermediate_size decoder_sparse_step mlp_only_layers norm_topk_prob \
     router_aux_loss_coef output_router_logits";

/// How the words begin that speak of a decoder's arithmetic. A key that is in no table and has such a
/// word is refused; any other is taken for a note that somebody's tool left, and named in a warning.
const OF_THE_DECODER: &str = "activ adapter alibi attention attn bias causal clip compress cross decoder depth dim drop \
     dual embd embed encoder exit expert ffn freq gate head hidden intermediate kv latent layer \
     linear logit lora mamba mlp moe mrope mtp multiplier nextn norm ntk pdrop position prun qk \
     quant query rank residual rms rope rotary router scal sharing sink skip sliding softcap \
     softmax sparse ssm theta tie tying vocab window yarn";

/// What nobody took of an object: refusals of the keys that may change the result, and the names of the others. `fixed`
/// are a family's own rows of [`FIXED`]; `place` is the prefix of the keys, inside of which every key is arithmetic.
pub(crate) fn left(
    fields: &impl Serialize,
    fixed: &[Fixed],
    place: &str,
) -> (Vec<Refusal>, Vec<String>) {
    let fields = serde_json::to_value(fields).expect("fields that were read can be written");
    let fields: Map<String, Value> = serde_json::from_value(fields).expect("fields are an object");
    let (mut refused, mut unread) = (Vec::new(), Vec::new());
    for (key, value) in &fields {
        let is_ignored = value.is_null() || key.starts_with('_') || is_among(HARMLESS, key);
        let mut rows = fixed.iter().chain(FIXED).filter(|row| row.0 == key).peekable();
        let refusal = if is_ignored {
            continue;
        } else if let Some((_, first)) = rows.peek() {
            if rows.any(|row| is_equal(row.1, value)) {
                continue;
            }
            expected(first)
        } else if is_among(DROPOUTS, key) {
            if value.as_f64() == Some(0.0) {
                continue;
            }
            let hint = "set the dropout to 0.0; the decoder trains without dropout";
            expected("0.0").hint(hint)
        } else if is_among(EXPERTS, key) {
            let is_empty = value.as_array().is_some_and(Vec::is_empty);
            if is_empty || value.as_f64() == Some(0.0) || *value == Value::Bool(false) {
                continue;
            }
            expected("a dense model, without experts")
        } else if key == "quantization_config" {
            let hint = "use the folder of the model before quantisation, in bf16, f16 or f32";
            expected("unquantised weights").hint(hint)
        } else if key == "auto_map" {
            expected("an architecture of transformers itself, without code of its own")
        } else if !place.is_empty() || speaks_of_the_decoder(key) {
            let hint = "remove the field when it does not change what the model computes";
            expected("no such field, as the decoder does not implement it").hint(hint)
        } else {
            unread.push(excerpt(key));
            continue;
        };
        refused.push(refusal.got(shown(value)).at(format!("{place}{}", excerpt(key))));
    }
    (refused, unread)
}

pub(crate) fn none_left(fields: &impl Serialize, place: &str) -> Result<(), Refusal> {
    several(left(fields, &[], place).0).map_or(Ok(()), Err)
}

fn is_equal(json: &str, value: &Value) -> bool {
    let wanted: Value = serde_json::from_str(json).expect("the table holds JSON");
    match (wanted.as_f64(), value.as_f64()) {
        (Some(wanted), Some(got)) => wanted == got,
        _ => wanted == *value,
    }
}

fn speaks_of_the_decoder(key: &str) -> bool {
    let lower = key.to_ascii_lowercase();
    let words = lower.split(|it: char| !it.is_ascii_alphabetic());
    words.into_iter().any(|word| OF_THE_DECODER.split(' ').any(|it| word.starts_with(it)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_ending_excuses_a_key_of_the_decoder() {
        let keys = ["attention_version", "rope_penalty", "head_token_id", "gate_dropout"];
        for key in keys {
            let fields = Map::from_iter([(key.to_owned(), Value::from(0.0))]);
            assert_eq!(left(&fields, &[], "").0.len(), 1, "{key}");
        }
        for key in ["transformers_version", "repetition_penalty", "sep_token_id", "attn_pdrop"] {
            let fields = Map::from_iter([(key.to_owned(), Value::from(0.0))]);
            assert!(left(&fields, &[], "").0.is_empty(), "{key}");
        }
    }
}
