//! `config.json` to the shape of a decoder.

use std::path::Path;

use serde_json::{Value, json};

use super::check::{check, check_rope};
use super::fields::{Fields, shown};
use super::keys::{ARCHITECTURES, FIXED, REFUSED, names_of};
use crate::config::{Architecture, Config, Llama3Scaling, Rope};
use crate::dtype::Dtype;
use crate::error::Error;

/// Reads the shape of the decoder from `config.json` and its special tokens from there and from
/// `generation_config.json`, whose ids win. The second value is the number format the folder
/// declares for its weights, when it declares one.
///
/// `file` and the path in `generation` are only named in errors.
///
/// # Errors
/// [`Error::Malformed`] when a text is no JSON object, [`Error::Config`] for a field that is
/// missing, out of bounds, contradictory or asks for something the decoder does not implement.
pub fn parse(
    file: &Path,
    text: &[u8],
    generation: Option<(&Path, &[u8])>,
) -> Result<(Config, Option<Dtype>), Error> {
    let mut fields = Fields::parse(file, text)?;
    let architecture = architecture(&mut fields)?;
    refuse_unimplemented(&mut fields)?;
    attention_bias(&mut fields, architecture)?;

    let vocab_size = fields.required_size("vocab_size", 1 << 24)?;
    let hidden = fields.required_size("hidden_size", 1 << 18)?;
    let layers = fields.required_size("num_hidden_layers", 1 << 10)?;
    let heads = fields.required_size("num_attention_heads", 1 << 12)?;
    let kv_heads = match (fields.size("num_key_value_heads", 1 << 12)?, architecture) {
        (Some(kv_heads), _) => kv_heads,
        // Llama's published meaning of the missing field; the Qwen classes default to 32.
        (None, Architecture::Llama) => heads,
        (None, _) => return Err(fields.missing("num_key_value_heads", "a positive integer")),
    };
    let head_dim = match (fields.size("head_dim", 1 << 12)?, architecture) {
        (Some(head_dim), _) => head_dim,
        (None, Architecture::Qwen3) => {
            return Err(fields.refuse(
                "head_dim",
                "a positive integer",
                "nothing",
                Some("Qwen3 has no width that follows from the others (transformers would take 128); write the one of q_norm.weight"),
            ));
        }
        (None, _) if hidden % heads == 0 => hidden / heads,
        (None, _) => {
            return Err(fields.refuse(
                "hidden_size",
                format!("a multiple of num_attention_heads ({heads}), as head_dim is not given"),
                hidden.to_string(),
                None,
            ));
        }
    };
    let ffn = fields.required_size("intermediate_size", 1 << 20)?;
    let max_positions = fields.required_size("max_position_embeddings", 1 << 31)?;
    let rms_eps = match fields.number("rms_norm_eps")? {
        Some(eps) => eps as f32,
        None => return Err(fields.missing("rms_norm_eps", "a small positive number")),
    };
    full_attention(&mut fields, architecture, layers)?;
    let rope = rope(&mut fields)?;
    let tied = fields.flag("tie_word_embeddings")?.unwrap_or(false);
    let dtype = declared_dtype(&mut fields)?;

    let mut eos = fields.token_list("eos_token_id")?;
    let mut bos = fields.token("bos_token_id")?;
    let mut pad = fields.token("pad_token_id")?;
    fields.refuse_the_rest()?;
    if let Some((file, text)) = generation {
        let mut fields = Fields::parse(file, text)?;
        eos = fields.token_list("eos_token_id")?.or(eos);
        bos = fields.token("bos_token_id")?.or(bos);
        pad = fields.token("pad_token_id")?.or(pad);
    }

    let config = Config {
        architecture,
        vocab_size,
        hidden,
        layers,
        heads,
        kv_heads,
        head_dim,
        ffn,
        rms_eps,
        rope,
        tied,
        qkv_bias: architecture == Architecture::Qwen2,
        qk_norm: architecture == Architecture::Qwen3,
        max_positions,
        eos: eos.unwrap_or_default(),
        bos,
        pad,
    };
    check(file, &config)?;
    Ok((config, dtype))
}

fn architecture(fields: &mut Fields<'_>) -> Result<Architecture, Error> {
    const EXPECTED: &str =
        "[\"Qwen2ForCausalLM\"], [\"Qwen3ForCausalLM\"] or [\"LlamaForCausalLM\"]";
    let Some(value) = fields.take("architectures") else {
        return Err(fields.missing("architectures", EXPECTED));
    };
    let found = (ARCHITECTURES.iter()).find(|(_, name, _)| value == json!([name]));
    let Some((architecture, name, model_type)) = found else {
        return Err(fields.refuse("architectures", EXPECTED, shown(&value), None));
    };
    match fields.take("model_type") {
        Some(got) if got != json!(model_type) => Err(fields.refuse(
            "model_type",
            format!("\"{model_type}\", as architectures says {name}"),
            shown(&got),
            None,
        )),
        _ => Ok(*architecture),
    }
}

fn refuse_unimplemented(fields: &mut Fields<'_>) -> Result<(), Error> {
    for (name, expected, hint) in REFUSED {
        if let Some(got) = fields.take(name) {
            return Err(fields.refuse(name, *expected, shown(&got), *hint));
        }
    }
    for (name, expected, hint) in FIXED {
        let Some(got) = fields.take(name) else {
            continue;
        };
        let wanted: Value = serde_json::from_str(expected).expect("the table holds JSON");
        let same = match (wanted.as_f64(), got.as_f64()) {
            (Some(wanted), Some(got)) => wanted == got,
            _ => wanted == got,
        };
        if !same {
            return Err(fields.refuse(name, *expected, shown(&got), *hint));
        }
    }
    Ok(())
}

fn attention_bias(fields: &mut Fields<'_>, architecture: Architecture) -> Result<(), Error> {
    let implemented = architecture == Architecture::Qwen2;
    match fields.flag("attention_bias")? {
        Some(bias) if bias != implemented => Err(fields.refuse(
            "attention_bias",
            format!("{implemented}, as {} has it", names_of(architecture).0),
            bias.to_string(),
            None,
        )),
        _ => Ok(()),
    }
}

/// Refuses a sliding window that is in use. Qwen's classes use one only when `use_sliding_window`
/// is true; Llama's has none.
fn full_attention(
    fields: &mut Fields<'_>,
    architecture: Architecture,
    layers: usize,
) -> Result<(), Error> {
    const HINT: Option<&str> =
        Some("when your sequences are shorter than the window, set use_sliding_window to false");
    let in_use = fields.flag("use_sliding_window")?;
    let window = fields.take("sliding_window");
    if in_use == Some(true) {
        return Err(fields.refuse("use_sliding_window", "false", "true", HINT));
    }
    if let (Architecture::Llama, None, Some(window)) = (architecture, in_use, window) {
        return Err(fields.refuse("sliding_window", "null", shown(&window), HINT));
    }
    let Some(types) = fields.take("layer_types") else {
        return Ok(());
    };
    let expected = || format!("\"full_attention\" for each of the {layers} layers");
    let Some(list) = types.as_array().filter(|list| list.len() == layers) else {
        return Err(fields.refuse("layer_types", expected(), shown(&types), None));
    };
    match list.iter().position(|kind| kind != "full_attention") {
        Some(i) => {
            Err(fields.refuse(format!("layer_types[{i}]"), expected(), shown(&list[i]), None))
        }
        None => Ok(()),
    }
}

fn rope(fields: &mut Fields<'_>) -> Result<Rope, Error> {
    let top = fields.number("rope_theta")?;
    let (scaling, parameters) = (fields.take("rope_scaling"), fields.take("rope_parameters"));
    let (name, value) = match (scaling, parameters) {
        (Some(one), Some(two)) if one != two => {
            return Err(fields.refuse(
                "rope_scaling",
                "the same as rope_parameters, or null",
                shown(&one),
                None,
            ));
        }
        (_, Some(value)) => ("rope_parameters", value),
        (Some(value), None) => ("rope_scaling", value),
        (None, None) => match top {
            Some(theta) => {
                return Ok(Rope { theta, llama3: None });
            }
            None => return Err(fields.missing("rope_theta", "a number")),
        },
    };
    let Value::Object(inner) = value else {
        return Err(fields.refuse(name, "an object or null", shown(&value), None));
    };
    let mut inner = Fields { file: fields.file, prefix: format!("{name}."), rest: inner };

    let theta = match (top, inner.number("rope_theta")?) {
        (Some(outside), Some(inside)) if outside != inside => {
            return Err(inner.refuse(
                "rope_theta",
                format!("{outside}, as outside"),
                inside.to_string(),
                None,
            ));
        }
        (Some(theta), _) | (None, Some(theta)) => theta,
        (None, None) => return Err(fields.missing("rope_theta", "a number")),
    };
    let (new, old) = (inner.take("rope_type"), inner.take("type"));
    let (key, kind) = match (new, old) {
        (Some(new), Some(old)) if new != old => {
            return Err(inner.refuse("type", shown(&new), shown(&old), None));
        }
        (None, Some(kind)) => ("type", kind),
        (kind, _) => ("rope_type", kind.unwrap_or_else(|| json!("default"))),
    };
    match inner.number("partial_rotary_factor")? {
        Some(factor) if factor != 1.0 => {
            return Err(inner.refuse("partial_rotary_factor", "1.0", factor.to_string(), None));
        }
        _ => {}
    }
    let llama3 = match kind.as_str() {
        Some("default") => None,
        Some("llama3") => Some(Llama3Scaling {
            factor: inner.required_number("factor")?,
            low_freq_factor: inner.required_number("low_freq_factor")?,
            high_freq_factor: inner.required_number("high_freq_factor")?,
            original_max_positions: inner
                .required_size("original_max_position_embeddings", 1 << 31)?,
        }),
        _ => {
            return Err(inner.refuse(
                key,
                "\"default\" or \"llama3\"",
                shown(&kind),
                Some("yarn, dynamic, linear and longrope stretch the context; without rope_scaling the model keeps its original one"),
            ));
        }
    };
    inner.refuse_the_rest()?;
    let rope = Rope { theta, llama3 };
    check_rope(fields.file, &rope, name)?;
    Ok(rope)
}

fn declared_dtype(fields: &mut Fields<'_>) -> Result<Option<Dtype>, Error> {
    let mut declared = None;
    for name in ["torch_dtype", "dtype"] {
        let Some(value) = fields.take(name) else {
            continue;
        };
        let dtype = value.as_str().and_then(Dtype::from_torch_name);
        match (dtype, declared) {
            (None, _) => {
                return Err(fields.refuse(
                    name,
                    "\"float32\", \"bfloat16\" or \"float16\"",
                    shown(&value),
                    None,
                ));
            }
            (Some(dtype), Some(other)) if dtype != other => {
                return Err(fields.refuse(
                    name,
                    format!("\"{}\", as torch_dtype says", other.torch_name()),
                    shown(&value),
                    None,
                ));
            }
            _ => declared = dtype,
        }
    }
    Ok(declared)
}
