//! The keys of `config.json` that are ignored, fixed or refused, and the names of architectures.

use crate::config::Architecture;

/// Keys that leave the decoder's arithmetic alone: bookkeeping of transformers, defaults of
/// generation, initialisation, and marks of common tools.
pub(super) const HARMLESS: &[&str] = &[
    "attn_implementation",
    "bad_words_ids",
    "begin_suppress_tokens",
    "chunk_size_feed_forward",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "id2label",
    "initializer_range",
    "label2id",
    "length_penalty",
    "max_length",
    "max_window_layers",
    "min_length",
    "model_name",
    "name_or_path",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torchscript",
    "transformers_version",
    "typical_p",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
];

/// Keys with one implemented value, which is also their default.
pub(super) const FIXED: &[(&str, &str, Option<&str>)] = &[
    ("hidden_act", "\"silu\"", None),
    ("mlp_bias", "false", None),
    (
        "attention_dropout",
        "0.0",
        Some("set attention_dropout to 0.0; the decoder trains without dropout"),
    ),
    ("partial_rotary_factor", "1.0", None),
    ("use_mrope", "false", None),
    ("is_causal", "true", None),
    ("is_decoder", "false", None),
    ("is_encoder_decoder", "false", None),
    ("add_cross_attention", "false", None),
    ("pruned_heads", "{}", None),
];

/// Keys of features that are not implemented, whatever their value.
pub(super) const REFUSED: &[(&str, &str, Option<&str>)] = &[
    (
        "quantization_config",
        "unquantised weights",
        Some("use the folder of the model before quantisation, in bf16, f16 or f32"),
    ),
    ("auto_map", "an architecture of transformers itself, without code of its own", None),
    ("num_experts", DENSE, None),
    ("num_local_experts", DENSE, None),
    ("n_routed_experts", DENSE, None),
    ("num_experts_per_tok", DENSE, None),
    ("moe_intermediate_size", DENSE, None),
    ("shared_expert_intermediate_size", DENSE, None),
    ("decoder_sparse_step", DENSE, None),
    ("mlp_only_layers", DENSE, None),
    ("norm_topk_prob", DENSE, None),
    ("router_aux_loss_coef", DENSE, None),
    ("output_router_logits", DENSE, None),
];

const DENSE: &str = "a dense model, without experts";

pub(super) const ARCHITECTURES: [(Architecture, &str, &str); 3] = [
    (Architecture::Qwen2, "Qwen2ForCausalLM", "qwen2"),
    (Architecture::Qwen3, "Qwen3ForCausalLM", "qwen3"),
    (Architecture::Llama, "LlamaForCausalLM", "llama"),
];

/// Name in `architectures`, and `model_type`.
pub(super) fn names_of(architecture: Architecture) -> (&'static str, &'static str) {
    (ARCHITECTURES.iter())
        .find(|(known, ..)| *known == architecture)
        .map(|(_, architecture, model_type)| (*architecture, *model_type))
        .expect("every architecture has its line in the table")
}
