//! The shape of a decoder to `config.json`.

use hapo_core::Refusal;
use hapo_kernels::Activation;
use serde_json::{Map, Value, json};

use crate::config::Config;
use crate::config::decoder::{Decoder, Scaling};
use crate::config::dtype::Dtype;
use crate::families::family_of;
use crate::fields::{KINDS, from_json};

/// `config.json` of a configuration whose weights are stored as `dtype`, in the dialect of
/// transformers 4, keys sorted, with a final newline.
pub fn render(config: &Config, dtype: Dtype) -> String {
    let family = family_of(config).expect("a configuration names a family of the table");
    let (activation_key, activation) = match config.decoder.activation {
        Activation::Silu => ("hidden_act", "silu"),
        Activation::GeluTanh => ("hidden_activation", "gelu_pytorch_tanh"),
    };
    // Of several embeddings the family writes the others.
    let rope = &config.decoder.ropes[0];
    // The shortest decimal of the f32, 1e-6 and not 9.999999974752427e-7.
    let rms_norm_eps: f64 =
        (config.rms_eps.to_string().parse()).expect("the decimal of a finite f32 is a number");
    let mut fields = json!({
        "architectures": [family.architecture],
        "attention_dropout": 0.0,
        "bos_token_id": config.bos,
        "eos_token_id": eos_value(&config.eos),
        activation_key: activation,
        "hidden_size": config.hidden,
        "initializer_range": 0.02,
        "intermediate_size": config.ffn,
        "max_position_embeddings": config.max_positions,
        "model_type": family.name,
        "num_attention_heads": config.heads,
        "num_hidden_layers": config.layers,
        "num_key_value_heads": config.kv_heads,
        "pad_token_id": config.pad,
        "rms_norm_eps": rms_norm_eps,
        "rope_scaling": rope_scaling(&rope.scaling),
        "rope_theta": rope.theta,
        "tie_word_embeddings": config.tied,
        "torch_dtype": dtype.torch_name(),
        "use_cache": true,
        "vocab_size": config.vocab_size,
    });
    if config.head_dim * config.heads != config.hidden {
        fields["head_dim"] = json!(config.head_dim);
    }
    if rope.share != 1.0 {
        fields["partial_rotary_factor"] = json!(rope.share);
    }
    for key in family.written.split(' ') {
        fields[key] = value_of(key, config);
    }
    pretty(&fields)
}

fn value_of(key: &str, config: &Config) -> Value {
    let Decoder { multipliers, ropes, layers, .. } = &config.decoder;
    let all_layers = 0..config.layers;
    let window = layers.iter().find_map(|kind| kind.window);
    match key {
        "attention_multiplier" => json!(multipliers.attention),
        "embedding_multiplier" => json!(multipliers.embedding),
        "residual_multiplier" => json!(multipliers.residual),
        "logits_scaling" => json!(1.0 / multipliers.logits),
        "query_pre_attn_scalar" => {
            let attention = multipliers.attention.unwrap_or(1.0);
            json!((1.0 / (attention * attention)).round() as u64)
        }
        "embd_pdrop" | "resid_pdrop" => json!(0.0),
        "head_dim" => json!(config.head_dim),
        "layer_types" => {
            let kind_of = |layer| KINDS[usize::from(config.decoder.kind(layer).window.is_some())];
            all_layers.map(kind_of).collect()
        }
        "max_window_layers" => json!(config.layers),
        "no_rope_layers" => {
            all_layers.map(|layer| u8::from(config.decoder.rope_of(layer).is_some())).collect()
        }
        "original_max_position_embeddings" => match &ropes[0].scaling {
            Scaling::Long(it) => json!(it.original_max_positions),
            _ => json!(config.max_positions),
        },
        "pretraining_tp" => json!(1),
        "rope_local_base_freq" => json!(ropes[1].theta),
        "sliding_window" => json!(window),
        // The class reads windows from layer_types where it has them.
        "sliding_window_pattern" => json!(window.map(|_| 4)),
        "attn_logit_softcapping" | "final_logit_softcapping" => Value::Null,
        "attention_bias" | "mlp_bias" | "use_sliding_window" => json!(false),
        _ => unreachable!("a row of the families writes {key}"),
    }
}

pub(crate) fn rope_scaling(scaling: &Scaling) -> Value {
    let (kind, mut fields) = match scaling {
        Scaling::None => return Value::Null,
        Scaling::Linear(factor) => ("linear", json!({ "factor": factor })),
        Scaling::Llama3(it) => ("llama3", json!(it)),
        Scaling::Yarn(it) => ("yarn", json!(it)),
        // The class has the length beside the object.
        Scaling::Long(it) => {
            let (long, short) = (&it.long, &it.short);
            return json!({ "long_factor": long, "short_factor": short, "type": "longrope" });
        }
    };
    fields["rope_type"] = json!(kind);
    fields
}

/// `generation_config.json`: the special tokens, and the other fields of the one that the model came with, its sampling
/// defaults among them.
pub fn render_generation(config: &Config, kept: Option<&[u8]>) -> Result<String, Refusal> {
    let all = [
        ("bos_token_id", json!(config.bos)),
        ("eos_token_id", eos_value(&config.eos)),
        ("pad_token_id", json!(config.pad)),
    ];
    let mut fields: Map<String, Value> = kept.map_or(Ok(Map::new()), from_json)?;
    for (name, value) in all {
        match value {
            Value::Null => drop(fields.remove(name)),
            value => drop(fields.insert(name.to_owned(), value)),
        }
    }
    Ok(pretty(&Value::Object(fields)))
}

fn eos_value(eos: &[u32]) -> Value {
    match eos {
        [] => Value::Null,
        [one] => json!(one),
        several => json!(several),
    }
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}
