//! Mistral, dense: Llama with a window that all layers have, or none.

use serde_json::{Value, json};

use super::{Family, window};
use crate::config::Config;
use crate::config::decoder::Decoder;
use crate::fields::reader::Reader;
use crate::fields::sizes::Absent;

pub(super) const FAMILY: Family = Family {
    name: "mistral",
    architecture: "MistralForCausalLM",
    summary: "Mistral 7B and Nemo, Ministral 8B",
    on_gpu: false,
    absent: Absent { kv_heads: false, head_dim: true, tied: false },
    read,
    write,
};

fn read(fields: &mut Reader<'_>) -> Decoder {
    let window = fields.size("sliding_window");
    Decoder::plain(fields.rope(Some(1e4))).with_window(window)
}

fn write(config: &Config) -> Value {
    json!({ "head_dim": config.head_dim, "sliding_window": window(config) })
}
