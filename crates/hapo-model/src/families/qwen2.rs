//! Qwen2 and 2.5: a bias on q, k and v.

use serde_json::{Value, json};

use super::Family;
use crate::config::Config;
use crate::config::decoder::Decoder;
use crate::fields::reader::Reader;
use crate::fields::sizes::Absent;

pub(super) const FAMILY: Family = Family {
    name: "qwen2",
    architecture: "Qwen2ForCausalLM",
    summary: "Qwen2, Qwen2.5, Qwen2.5-Math, DeepSeek-R1-Distill-Qwen",
    on_gpu: true,
    absent: Absent { kv_heads: false, head_dim: true, tied: false },
    read,
    write,
};

fn read(fields: &mut Reader<'_>) -> Decoder {
    fields.attention_bias(true);
    fields.full_attention(true);
    Decoder { qkv_bias: true, ..Decoder::plain(fields.rope(None)) }
}

fn write(config: &Config) -> Value {
    json!({
        "max_window_layers": config.layers,
        "sliding_window": null,
        "use_sliding_window": false,
    })
}
