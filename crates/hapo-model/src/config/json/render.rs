//! The shape of a decoder to `config.json`.

use serde_json::{Map, Value, json};

use super::keys::names_of;
use crate::config::dtype::Dtype;
use crate::config::{Architecture, Config};

/// `config.json` of a configuration whose weights are stored as `dtype`, in the dialect of
/// transformers 4, keys sorted, with a final newline.
pub fn render(config: &Config, dtype: Dtype) -> String {
    let (architecture, model_type) = names_of(config.architecture);
    let rope_scaling = config.rope.llama3.map_or(Value::Null, |scaling| {
        json!({
            "factor": scaling.factor,
            "high_freq_factor": scaling.high_freq_factor,
            "low_freq_factor": scaling.low_freq_factor,
            "original_max_position_embeddings": scaling.original_max_positions,
            "rope_type": "llama3",
        })
    });
    // The shortest decimal of the f32, 1e-6 and not 9.999999974752427e-7.
    let rms_norm_eps: f64 =
        (config.rms_eps.to_string().parse()).expect("the decimal of a finite f32 is a number");
    let mut fields = json!({
        "architectures": [architecture],
        "attention_dropout": 0.0,
        "bos_token_id": config.bos,
        "eos_token_id": eos_value(&config.eos),
        "hidden_act": "silu",
        "hidden_size": config.hidden,
        "initializer_range": 0.02,
        "intermediate_size": config.ffn,
        "max_position_embeddings": config.max_positions,
        "model_type": model_type,
        "num_attention_heads": config.heads,
        "num_hidden_layers": config.layers,
        "num_key_value_heads": config.kv_heads,
        "pad_token_id": config.pad,
        "rms_norm_eps": rms_norm_eps,
        "rope_scaling": rope_scaling,
        "rope_theta": config.rope.theta,
        "tie_word_embeddings": config.tied,
        "torch_dtype": dtype.torch_name(),
        "use_cache": true,
        "vocab_size": config.vocab_size,
    });
    let extra = match config.architecture {
        Architecture::Qwen2 if config.head_dim * config.heads == config.hidden => json!({
            "max_window_layers": config.layers,
            "sliding_window": null,
            "use_sliding_window": false,
        }),
        Architecture::Qwen2 => json!({
            "head_dim": config.head_dim,
            "max_window_layers": config.layers,
            "sliding_window": null,
            "use_sliding_window": false,
        }),
        Architecture::Qwen3 => json!({
            "attention_bias": false,
            "head_dim": config.head_dim,
            "max_window_layers": config.layers,
            "sliding_window": null,
            "use_sliding_window": false,
        }),
        Architecture::Llama => json!({
            "attention_bias": false,
            "head_dim": config.head_dim,
            "mlp_bias": false,
            "pretraining_tp": 1,
        }),
    };
    if let (Value::Object(fields), Value::Object(extra)) = (&mut fields, extra) {
        fields.extend(extra);
    }
    pretty(fields)
}

/// `generation_config.json`: the special tokens and nothing else, so that other programs sample from the model's own
/// distribution.
pub fn render_generation(config: &Config) -> String {
    let all = [
        ("bos_token_id", json!(config.bos)),
        ("eos_token_id", eos_value(&config.eos)),
        ("pad_token_id", json!(config.pad)),
    ];
    let mut fields = Map::new();
    fields.extend(
        (all.into_iter())
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name.to_owned(), value)),
    );
    pretty(Value::Object(fields))
}

fn eos_value(eos: &[u32]) -> Value {
    match eos {
        [] => Value::Null,
        [one] => json!(one),
        several => json!(several),
    }
}

fn pretty(mut value: Value) -> String {
    value.sort_all_objects();
    let mut text = serde_json::to_string_pretty(&value).expect("a JSON value has a text");
    text.push('\n');
    text
}
