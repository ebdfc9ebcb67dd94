//! EXAONE 4: norms after the blocks and of every head; where some layers have a window, the others do not turn their
//! heads.

use serde_json::{Value, json};

use super::{Family, layer_types, window};
use crate::config::Config;
use crate::config::decoder::{Decoder, LayerKind, Norms, QkNorm};
use crate::fields::reader::Reader;
use crate::fields::sizes::Absent;

pub(super) const FAMILY: Family = Family {
    name: "exaone4",
    architecture: "Exaone4ForCausalLM",
    summary: "EXAONE 4 1.2B and 32B",
    on_gpu: false,
    absent: Absent { kv_heads: false, head_dim: true, tied: false },
    read,
    write,
};

fn read(fields: &mut Reader<'_>) -> Decoder {
    fields.attention_bias(false);
    // A number of layers, or a word of as many letters, as "LLLG".
    let every = match fields.fields.take("sliding_window_pattern") {
        Some(Value::String(word)) => word.len(),
        pattern => pattern.and_then(|it| it.as_u64()).map_or(4, |it| it as usize),
    };
    let kinds = fields.layers(every);
    let is_hybrid = kinds.iter().any(|it| it.window.is_some());
    let turns = |it: &LayerKind| !is_hybrid || it.window.is_some();
    let layers = kinds.iter().map(|it| LayerKind { rope: turns(it).then_some(0), ..*it }).collect();
    let plain = Decoder::plain(fields.rope(Some(1e4)));
    Decoder { norms: Norms::After, qk_norm: Some(QkNorm::Head), layers, ..plain }
}

fn write(config: &Config) -> Value {
    json!({
        "attention_bias": false,
        "layer_types": layer_types(config),
        "sliding_window": window(config),
        // The class reads windows from layer_types where it has them.
        "sliding_window_pattern": window(config).map(|_| 4),
    })
}
