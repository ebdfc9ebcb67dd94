//! The keys of `config.json` that are ignored, fixed or refused, and the names of architectures.

use crate::config::Architecture;

/// Keys that leave the decoder's arithmetic alone: bookkeeping of transformers, defaults of
/// generation, initialisation, and marks of common tools.
pub(super) const HARMLESS: &[&str] = &[
    "attn_implementation",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bf16",
    "chunk_size_feed_forward",
    "classifier_dropout",
    "cls_token_id",
    "cross_attention_hidden_size",
    "datasets",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "end_token_id",
    "exponential_decay_length_penalty",
    "export_model_type",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "fp16",
    "gradient_checkpointing",
    "id2label",
    "ignore_index",
    "initializer_range",
    "is_llama_config",
    "label2id",
    "length_penalty",
    "library_name",
    "license",
    "mask_token_id",
    "max_length",
    "max_sequence_length",
    "max_window_layers",
    "min_length",
    "model_max_length",
    "model_name",
    "name_or_path",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_past",
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
    "task",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tokenizer_class",
    "tokenizer_model_max_length",
    "tokenizer_padding_side",
    "top_k",
    "top_p",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "trl_version",
    "typical_p",
    "unk_token_id",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
    "use_return_dict",
];

/// A key with the values that change nothing, as JSON, the first of them the one to say; and a hint.
pub(super) type Fixed = (&'static str, &'static [&'static str], Option<&'static str>);

const NO_DROPOUT: Option<&str> = Some("set the dropout to 0.0; the decoder trains without dropout");

/// Keys whose implemented values are known.
pub(super) const FIXED: &[Fixed] = &[
    ("hidden_act", &["\"silu\"", "\"swish\""], None),
    ("mlp_bias", &["false"], None),
    ("bias", &["false"], None),
    ("use_bias", &["false"], None),
    ("no_bias", &["true"], None),
    ("use_qk_norm", &["false"], None),
    ("attention_dropout", &["0.0"], NO_DROPOUT),
    ("attn_pdrop", &["0.0"], NO_DROPOUT),
    ("dropout", &["0.0"], NO_DROPOUT),
    ("embd_pdrop", &["0.0"], NO_DROPOUT),
    ("hidden_dropout", &["0.0"], NO_DROPOUT),
    ("resid_pdrop", &["0.0"], NO_DROPOUT),
    ("partial_rotary_factor", &["1.0"], None),
    ("rotary_pct", &["1.0"], None),
    ("rope_interleaved", &["false"], None),
    ("use_mrope", &["false"], None),
    ("is_causal", &["true"], None),
    ("is_decoder", &["false"], None),
    ("is_encoder_decoder", &["false"], None),
    ("add_cross_attention", &["false"], None),
    ("pruned_heads", &["{}"], None),
];

/// Keys of features that are not implemented, whatever their value.
pub(super) const REFUSED: &[(&str, &str, Option<&str>)] = &[
    (
        "quantization_config",
        "unquantised weights",
        Some("use the folder of the model before quantisation, in bf16, f16 or f32"),
    ),
    ("auto_map", "an architecture of transformers itself, without code of its own", None),
];

/// Keys of mixtures of experts: refused unless they say that there is none.
pub(super) const EXPERTS: &[&str] = &[
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "decoder_sparse_step",
    "mlp_only_layers",
    "norm_topk_prob",
    "router_aux_loss_coef",
    "output_router_logits",
];

/// How the words begin that speak of a decoder's arithmetic. A key that is in no table and has such a
/// word is refused; any other is taken for a note that somebody's tool left, and named in a warning.
const OF_THE_DECODER: &[&str] = &[
    "activ",
    "adapter",
    "alibi",
    "attention",
    "attn",
    "bias",
    "causal",
    "clip",
    "compress",
    "cross",
    "decoder",
    "depth",
    "dim",
    "drop",
    "dual",
    "embd",
    "embed",
    "encoder",
    "exit",
    "expert",
    "ffn",
    "freq",
    "gate",
    "head",
    "hidden",
    "intermediate",
    "kv",
    "latent",
    "layer",
    "linear",
    "logit",
    "lora",
    "mamba",
    "mlp",
    "moe",
    "mrope",
    "mtp",
    "multiplier",
    "nextn",
    "norm",
    "ntk",
    "pdrop",
    "position",
    "prun",
    "qk",
    "quant",
    "query",
    "rank",
    "residual",
    "rms",
    "rope",
    "rotary",
    "router",
    "scal",
    "sharing",
    "sink",
    "skip",
    "sliding",
    "softcap",
    "softmax",
    "sparse",
    "ssm",
    "theta",
    "tie",
    "tying",
    "vocab",
    "window",
    "yarn",
];

/// True if an unknown key may change a decoder's result.
pub(super) fn speaks_of_the_decoder(key: &str) -> bool {
    let lower = key.to_ascii_lowercase();
    let words = lower.split(|it: char| !it.is_ascii_alphabetic());
    words.into_iter().any(|word| OF_THE_DECODER.iter().any(|it| word.starts_with(it)))
}

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
