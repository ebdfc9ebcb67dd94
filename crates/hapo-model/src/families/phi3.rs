//! Phi-3 and Phi-4-mini: q, k and v in one matrix, gate and up in one; a part of each head is turned, by one of two sets
//! of frequencies.

use serde_json::{Value, json};

use super::{Family, window};
use crate::config::Config;
use crate::config::decoder::{Decoder, Scaling};
use crate::fields::reader::Reader;
use crate::fields::rope::Beside;
use crate::fields::sizes::Absent;

pub(super) const FAMILY: Family = Family {
    name: "phi3",
    architecture: "Phi3ForCausalLM",
    summary: "Phi-3-mini, Phi-3.5-mini, Phi-4-mini",
    on_gpu: false,
    absent: Absent { kv_heads: true, head_dim: true, tied: false },
    read,
    write,
};

fn read(fields: &mut Reader<'_>) -> Decoder {
    fields.attention_bias(false);
    for name in ["full_attn_mod", "interpolate_factor"] {
        fields.fixed(name, &["1"]);
    }
    fields.fixed("lm_head_bias", &["false"]);
    let own = |it: &Value| it["AutoModelForCausalLM"] == "modeling_phi3.Phi3ForCausalLM";
    // The class that folders name beside theirs is that of transformers.
    if fields.fields.rest.get("auto_map").is_some_and(own) {
        fields.fields.take("auto_map");
    }
    let window = fields.size("sliding_window");
    let beside = Beside {
        absent: Some(1e4),
        original: fields.size("original_max_position_embeddings"),
        share: Some(fields.positive("partial_rotary_factor", 1.0)),
        ..Beside::default()
    };
    let plain = Decoder::plain(fields.rope_with(beside)).with_window(window);
    Decoder { is_fused: true, ..plain }
}

fn write(config: &Config) -> Value {
    let rope = &config.decoder.ropes[0];
    let original = match &rope.scaling {
        Scaling::Long(it) => it.original_max_positions,
        _ => config.max_positions,
    };
    let mut own = json!({
        "attention_bias": false,
        "embd_pdrop": 0.0,
        "original_max_position_embeddings": original,
        "resid_pdrop": 0.0,
        "sliding_window": window(config),
    });
    if rope.share != 1.0 {
        own["partial_rotary_factor"] = json!(rope.share);
    }
    own
}
