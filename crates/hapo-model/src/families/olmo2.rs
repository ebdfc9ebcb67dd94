//! `OLMo` 2: norms after the blocks, and one over all heads of q and of k.

use serde_json::{Value, json};

use super::Family;
use crate::config::Config;
use crate::config::decoder::{Decoder, Norms, QkNorm};
use crate::fields::reader::Reader;
use crate::fields::sizes::Absent;

pub(super) const FAMILY: Family = Family {
    name: "olmo2",
    architecture: "Olmo2ForCausalLM",
    summary: "OLMo 2",
    on_gpu: false,
    absent: Absent { kv_heads: true, head_dim: true, tied: false },
    read,
    write,
};

fn read(fields: &mut Reader<'_>) -> Decoder {
    fields.attention_bias(false);
    let plain = Decoder::plain(fields.rope(Some(1e4)));
    Decoder { norms: Norms::After, qk_norm: Some(QkNorm::Row), ..plain }
}

fn write(_: &Config) -> Value {
    json!({ "attention_bias": false })
}
