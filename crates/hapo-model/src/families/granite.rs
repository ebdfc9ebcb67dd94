//! Granite, dense: Llama with factors on the embedding, the scores, the blocks and the logits.

use serde_json::{Value, json};

use super::Family;
use crate::config::Config;
use crate::config::decoder::{Decoder, Multipliers};
use crate::fields::reader::Reader;
use crate::fields::sizes::Absent;

pub(super) const FAMILY: Family = Family {
    name: "granite",
    architecture: "GraniteForCausalLM",
    summary: "Granite 3, dense",
    on_gpu: false,
    absent: Absent { kv_heads: true, head_dim: true, tied: false },
    read,
    write,
};

fn read(fields: &mut Reader<'_>) -> Decoder {
    fields.attention_bias(false);
    let multipliers = Multipliers {
        embedding: fields.positive("embedding_multiplier", 1.0),
        attention: Some(fields.positive("attention_multiplier", 1.0)),
        residual: fields.positive("residual_multiplier", 1.0),
        logits: 1.0 / fields.positive("logits_scaling", 1.0),
    };
    Decoder { multipliers, ..Decoder::plain(fields.rope(Some(1e4))) }
}

fn write(config: &Config) -> Value {
    let Multipliers { embedding, attention, residual, logits } = config.decoder.multipliers;
    json!({
        "attention_bias": false,
        "attention_multiplier": attention,
        "embedding_multiplier": embedding,
        "logits_scaling": 1.0 / logits,
        "mlp_bias": false,
        "residual_multiplier": residual,
    })
}
