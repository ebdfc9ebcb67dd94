//! Gemma 3, text: norms by 1 + w before and after the blocks and of every head, a scaled embedding, GELU, windows with
//! a rotary embedding of their own.

use hapo_kernels::Activation;
use serde_json::{Value, json};

use super::{Family, layer_types, window};
use crate::config::Config;
use crate::config::decoder::{Decoder, Multipliers, Norms, QkNorm};
use crate::fields::reader::Reader;
use crate::fields::sizes::Absent;

pub(super) const FAMILY: Family = Family {
    name: "gemma3_text",
    architecture: "Gemma3ForCausalLM",
    summary: "Gemma 3 270M and 1B",
    on_gpu: false,
    absent: Absent { kv_heads: false, head_dim: false, tied: true },
    read,
    write,
};

fn read(fields: &mut Reader<'_>) -> Decoder {
    fields.attention_bias(false);
    fields.fixed("hidden_activation", &["\"gelu_pytorch_tanh\""]);
    fields.fixed("use_bidirectional_attention", &["false"]);
    fields.fixed("cache_implementation", &["\"hybrid\""]);
    let every = fields.size("sliding_window_pattern").unwrap_or(6);
    let hidden = fields.sizes.as_ref().map_or(1, |it| it.hidden);
    let multipliers = Multipliers {
        embedding: (hidden as f64).sqrt(),
        attention: Some(1.0 / fields.positive("query_pre_attn_scalar", 256.0).sqrt()),
        ..Multipliers::default()
    };
    let ropes = fields.ropes(1e6, Some(("rope_local_base_freq", 1e4)));
    let layers = fields.layers(every);
    Decoder {
        qk_norm: Some(QkNorm::Head),
        norms: Norms::Both,
        unit_offset: true,
        activation: Activation::GeluTanh,
        multipliers,
        layers,
        ropes: ropes.clone(),
        ..Decoder::plain(ropes[0].clone())
    }
}

fn write(config: &Config) -> Value {
    let attention = config.decoder.multipliers.attention.unwrap_or(1.0);
    json!({
        "attention_bias": false,
        "attn_logit_softcapping": null,
        "final_logit_softcapping": null,
        "head_dim": config.head_dim,
        "layer_types": layer_types(config),
        "query_pre_attn_scalar": (1.0 / (attention * attention)).round() as u64,
        "rope_local_base_freq": config.decoder.ropes[1].theta,
        "sliding_window": window(config),
    })
}
