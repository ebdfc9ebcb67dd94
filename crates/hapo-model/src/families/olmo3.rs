//! `OLMo` 3: `OLMo` 2 with windows in three layers of four; the others may stretch their context by `YaRN`.

use serde_json::{Value, json};

use super::{Family, layer_types, window};
use crate::config::Config;
use crate::config::decoder::{Decoder, Norms, QkNorm};
use crate::fields::reader::Reader;
use crate::fields::sizes::Absent;

pub(super) const FAMILY: Family = Family {
    name: "olmo3",
    architecture: "Olmo3ForCausalLM",
    summary: "OLMo 3",
    on_gpu: false,
    absent: Absent { kv_heads: true, head_dim: true, tied: false },
    read,
    write,
};

fn read(fields: &mut Reader<'_>) -> Decoder {
    fields.attention_bias(false);
    let (ropes, layers) = (fields.ropes(5e5, None), fields.layers(4));
    let plain = Decoder::plain(ropes[0].clone());
    Decoder { norms: Norms::After, qk_norm: Some(QkNorm::Row), ropes, layers, ..plain }
}

fn write(config: &Config) -> Value {
    json!({
        "attention_bias": false,
        "layer_types": layer_types(config),
        "sliding_window": window(config),
    })
}
