//! Ministral: Mistral with a window in some layers.

use serde_json::{Value, json};

use super::{Family, layer_types, window};
use crate::config::Config;
use crate::config::decoder::{Decoder, LayerKind};
use crate::fields::reader::Reader;
use crate::fields::sizes::Absent;

pub(super) const FAMILY: Family = Family {
    name: "ministral",
    architecture: "MinistralForCausalLM",
    summary: "Ministral 8B with interleaved windows",
    on_gpu: false,
    absent: Absent { kv_heads: false, head_dim: true, tied: false },
    read,
    write,
};

fn read(fields: &mut Reader<'_>) -> Decoder {
    // Without `layer_types` all layers have the window.
    let kinds = fields.layers(usize::MAX);
    let layers = kinds.into_iter().map(|it| LayerKind { rope: Some(0), ..it }).collect();
    Decoder { layers, ..Decoder::plain(fields.rope(Some(1e4))) }
}

fn write(config: &Config) -> Value {
    json!({
        "head_dim": config.head_dim,
        "layer_types": layer_types(config),
        "sliding_window": window(config),
    })
}
