//! Qwen3, dense: RMS norm of every head of q and k, and an explicit `head_dim`.

use serde_json::{Value, json};

use super::Family;
use crate::config::Config;
use crate::config::decoder::{Decoder, QkNorm};
use crate::fields::reader::Reader;
use crate::fields::sizes::Absent;

pub(super) const FAMILY: Family = Family {
    name: "qwen3",
    architecture: "Qwen3ForCausalLM",
    summary: "Qwen3, dense",
    on_gpu: true,
    absent: Absent { kv_heads: false, head_dim: false, tied: false },
    read,
    write,
};

fn read(fields: &mut Reader<'_>) -> Decoder {
    fields.attention_bias(false);
    fields.full_attention(true);
    Decoder { qk_norm: Some(QkNorm::Head), ..Decoder::plain(fields.rope(None)) }
}

fn write(config: &Config) -> Value {
    json!({
        "attention_bias": false,
        "head_dim": config.head_dim,
        "max_window_layers": config.layers,
        "sliding_window": null,
        "use_sliding_window": false,
    })
}
