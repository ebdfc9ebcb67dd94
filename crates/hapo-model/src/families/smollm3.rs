//! `SmolLM3`: Llama in which some layers do not turn their heads.

use serde_json::{Value, json};

use super::{Family, layer_types};
use crate::config::Config;
use crate::config::decoder::{Decoder, LayerKind};
use crate::fields::reader::Reader;
use crate::fields::sizes::Absent;

pub(super) const FAMILY: Family = Family {
    name: "smollm3",
    architecture: "SmolLM3ForCausalLM",
    summary: "SmolLM3 3B",
    on_gpu: false,
    absent: Absent { kv_heads: false, head_dim: true, tied: true },
    read,
    write,
};

fn read(fields: &mut Reader<'_>) -> Decoder {
    fields.attention_bias(false);
    fields.full_attention(true);
    let turned = turned(fields);
    let layers = turned.into_iter().map(|it| LayerKind { window: None, rope: it.then_some(0) });
    Decoder { layers: layers.collect(), ..Decoder::plain(fields.rope(Some(2e6))) }
}

/// Which layers turn their heads: `no_rope_layers` has a 1 for each that does, or all but each fourth do.
fn turned(fields: &mut Reader<'_>) -> Vec<bool> {
    let every = fields.size("no_rope_layer_interval").unwrap_or(4);
    let list = fields.fields.take("no_rope_layers");
    let layers = fields.sizes.as_ref().map_or(0, |it| it.layers);
    let Some(list) = list else {
        return (1..=layers).map(|layer| layer % every != 0).collect();
    };
    let turns = |it: &Value| it.as_u64().filter(|it| *it < 2).map(|it| it == 1);
    let all: Option<Vec<bool>> = list.as_array().and_then(|list| list.iter().map(turns).collect());
    let all = all.filter(|all| all.len() == layers || layers == 0);
    let expected = format!("0 or 1 for each of the {layers} layers");
    let all = fields.keep(|it| {
        all.ok_or_else(|| it.refuse("no_rope_layers", expected, list.to_string(), None))
    });
    all.unwrap_or_default()
}

fn write(config: &Config) -> Value {
    let turned = (0..config.layers).map(|layer| config.decoder.rope_of(layer).is_some());
    json!({
        "attention_bias": false,
        "layer_types": layer_types(config),
        "mlp_bias": false,
        "no_rope_layers": turned.map(u8::from).collect::<Vec<_>>(),
        "use_sliding_window": false,
    })
}
