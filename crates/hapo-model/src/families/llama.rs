//! Llama: no bias; since 3.1 its own scaling of the context.

use serde_json::{Value, json};

use super::Family;
use crate::config::Config;
use crate::config::decoder::Decoder;
use crate::fields::reader::Reader;
use crate::fields::sizes::Absent;

pub(super) const FAMILY: Family = Family {
    name: "llama",
    architecture: "LlamaForCausalLM",
    summary: "Llama 2 and 3, SmolLM2, TinyLlama",
    on_gpu: true,
    absent: Absent { kv_heads: true, head_dim: true, tied: false },
    read,
    write,
};

fn read(fields: &mut Reader<'_>) -> Decoder {
    fields.attention_bias(false);
    fields.full_attention(false);
    // Folders from before the field: transformers takes 10000.
    Decoder::plain(fields.rope(Some(1e4)))
}

fn write(config: &Config) -> Value {
    json!({
        "attention_bias": false,
        "head_dim": config.head_dim,
        "mlp_bias": false,
        "pretraining_tp": 1,
    })
}
