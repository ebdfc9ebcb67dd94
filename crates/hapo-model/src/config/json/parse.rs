//! `config.json` to the shape of a decoder.

use std::path::Path;

use serde_json::{Value, json};

use super::check::{check, check_rope};
use super::fields::{Fields, shown};
use super::keys::{ARCHITECTURES, EXPERTS, FIXED, REFUSED, names_of};
use crate::config::dtype::Dtype;
use crate::config::{Architecture, Config, Llama3Scaling, Rope};
use crate::error::Error;

/// The contents of a folder's JSON files.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedConfig {
    /// Shape of the decoder and its special tokens.
    pub config: Config,
    /// Number format that is declared for the weights, when one is.
    pub dtype: Option<Dtype>,
    /// Unknown fields that nobody reads, taken for notes of some tool.
    pub unread: Vec<String>,
}

/// Reads the shape of the decoder from `config.json` and its special tokens from there and from
/// `generation_config.json`, whose ids win.
///
/// `file` and the path in `generation` are only named in errors.
///
/// # Errors
/// [`Error::Refused`] when a text is no JSON object, and for a field that is
/// missing, out of bounds, contradictory or asks for something the decoder does not implement;
/// [`Error::Fields`] for several.
pub fn parse(
    file: &Path,
    text: &[u8],
    generation: Option<(&Path, &[u8])>,
) -> Result<ParsedConfig, Error> {
    let mut fields = Fields::parse(file, text)?;
    let architecture = architecture(&mut fields)?;
    let mut refused = unimplemented(&mut fields);
    refused.extend(attention_bias(&mut fields, architecture).err());
    let sizes = keep(sizes(&mut fields, architecture), &mut refused);
    refused.extend(full_attention(&mut fields, architecture, sizes.as_ref()).err());
    let rope = keep(rope(&mut fields, architecture), &mut refused);
    let tied = keep(fields.flag("tie_word_embeddings"), &mut refused);
    let dtype = keep(declared_dtype(&mut fields), &mut refused);
    let tokens = keep(Tokens::take(&mut fields), &mut refused);
    let (unknown, unread) = fields.rest();
    refused.extend(unknown);
    let (Some(sizes), Some(rope), Some(tied), Some(dtype), Some(mut tokens), []) =
        (sizes, rope, tied, dtype, tokens, refused.as_slice())
    else {
        return Err(Error::of_fields(refused).expect("what is not there was refused"));
    };
    if let Some((file, text)) = generation {
        tokens = Tokens::take(&mut Fields::parse(file, text)?)?.or(tokens);
    }
    let config = Config {
        architecture,
        vocab_size: sizes.vocab_size,
        hidden: sizes.hidden,
        layers: sizes.layers,
        heads: sizes.heads,
        kv_heads: sizes.kv_heads,
        head_dim: sizes.head_dim,
        ffn: sizes.ffn,
        rms_eps: sizes.rms_eps,
        rope,
        tied: tied.unwrap_or(false),
        qkv_bias: architecture == Architecture::Qwen2,
        qk_norm: architecture == Architecture::Qwen3,
        max_positions: sizes.max_positions,
        eos: tokens.eos.unwrap_or_default(),
        bos: tokens.bos,
        pad: tokens.pad,
    };
    check(file, &config)?;
    Ok(ParsedConfig { config, dtype, unread })
}

/// The value, or its refusal among the others.
fn keep<T>(result: Result<T, Error>, refused: &mut Vec<Error>) -> Option<T> {
    result.map_err(|it| refused.push(it)).ok()
}

/// Special tokens, as one of the two files has them.
struct Tokens {
    eos: Option<Vec<u32>>,
    bos: Option<u32>,
    pad: Option<u32>,
}

impl Tokens {
    fn take(fields: &mut Fields<'_>) -> Result<Self, Error> {
        Ok(Self {
            eos: fields.token_list("eos_token_id")?,
            bos: fields.token("bos_token_id")?,
            pad: fields.token("pad_token_id")?,
        })
    }

    fn or(self, other: Self) -> Self {
        Self {
            eos: self.eos.or(other.eos),
            bos: self.bos.or(other.bos),
            pad: self.pad.or(other.pad),
        }
    }
}

/// The numbers of the shape.
struct Sizes {
    vocab_size: usize,
    hidden: usize,
    layers: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    ffn: usize,
    max_positions: usize,
    rms_eps: f32,
}

fn sizes(fields: &mut Fields<'_>, architecture: Architecture) -> Result<Sizes, Error> {
    // Every key is taken before any is refused, so that none is left among the unknown ones.
    let vocab_size = fields.required_size("vocab_size", 1 << 24);
    let hidden = fields.required_size("hidden_size", 1 << 18);
    let layers = fields.required_size("num_hidden_layers", 1 << 10);
    let heads = fields.required_size("num_attention_heads", 1 << 12);
    let kv_heads = fields.size("num_key_value_heads", 1 << 12);
    let head_dim = fields.size("head_dim", 1 << 12);
    let ffn = fields.required_size("intermediate_size", 1 << 20);
    let max_positions = fields.required_size("max_position_embeddings", 1 << 31);
    let rms_eps = fields.number("rms_norm_eps");
    let (vocab_size, hidden, layers, heads) = (vocab_size?, hidden?, layers?, heads?);
    let kv_heads = match (kv_heads?, architecture) {
        (Some(kv_heads), _) => kv_heads,
        // Llama's published meaning of the missing field; the Qwen classes default to 32.
        (None, Architecture::Llama) => heads,
        (None, _) => return Err(fields.missing("num_key_value_heads", "a positive integer")),
    };
    let head_dim = match (head_dim?, architecture) {
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
    let (ffn, max_positions) = (ffn?, max_positions?);
    let rms_eps = match rms_eps? {
        Some(eps) => eps as f32,
        None => return Err(fields.missing("rms_norm_eps", "a small positive number")),
    };
    Ok(Sizes { vocab_size, hidden, layers, heads, kv_heads, head_dim, ffn, max_positions, rms_eps })
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

/// Every field that asks for a feature which is not there.
fn unimplemented(fields: &mut Fields<'_>) -> Vec<Error> {
    let mut refused = Vec::new();
    for (name, expected, hint) in REFUSED {
        if let Some(got) = fields.take(name) {
            refused.push(fields.refuse(name, *expected, shown(&got), *hint));
        }
    }
    for name in EXPERTS {
        let is_none = |it: &Value| {
            it.as_f64() == Some(0.0)
                || *it == json!(false)
                || it.as_array().is_some_and(Vec::is_empty)
        };
        if let Some(got) = fields.take(name).filter(|it| !is_none(it)) {
            let expected = "a dense model, without experts";
            refused.push(fields.refuse(name, expected, shown(&got), None));
        }
    }
    for (name, expected, hint) in FIXED {
        let is = |expected: &str, got: &Value| {
            let wanted: Value = serde_json::from_str(expected).expect("the table holds JSON");
            match (wanted.as_f64(), got.as_f64()) {
                (Some(wanted), Some(got)) => wanted == got,
                _ => wanted == *got,
            }
        };
        let got = fields.take(name).filter(|got| !expected.iter().any(|it| is(it, got)));
        if let Some(got) = got {
            refused.push(fields.refuse(name, expected[0], shown(&got), *hint));
        }
    }
    refused
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
    sizes: Option<&Sizes>,
) -> Result<(), Error> {
    const HINT: Option<&str> =
        Some("when your sequences are shorter than the window, set use_sliding_window to false");
    let in_use = fields.flag("use_sliding_window");
    let window = fields.take("sliding_window");
    let types = fields.take("layer_types");
    let in_use = in_use?;
    if in_use == Some(true) {
        return Err(fields.refuse("use_sliding_window", "false", "true", HINT));
    }
    if let (Architecture::Llama, None, Some(window)) = (architecture, in_use, window) {
        return Err(fields.refuse("sliding_window", "null", shown(&window), HINT));
    }
    let (Some(types), Some(Sizes { layers, .. })) = (types, sizes) else {
        return Ok(());
    };
    let expected = || format!("\"full_attention\" for each of the {layers} layers");
    let Some(list) = types.as_array().filter(|list| list.len() == *layers) else {
        return Err(fields.refuse("layer_types", expected(), shown(&types), None));
    };
    match list.iter().position(|kind| kind != "full_attention") {
        Some(i) => {
            Err(fields.refuse(format!("layer_types[{i}]"), expected(), shown(&list[i]), None))
        }
        None => Ok(()),
    }
}

fn rope(fields: &mut Fields<'_>, architecture: Architecture) -> Result<Rope, Error> {
    // Llama folders from before the field: transformers takes 10000.
    let absent = (architecture == Architecture::Llama).then_some(1e4);
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
        (None, None) => match top.or(absent) {
            Some(theta) => return Ok(Rope { theta, llama3: None }),
            None => return Err(fields.missing("rope_theta", "a number")),
        },
    };
    let Value::Object(inner) = value else {
        return Err(fields.refuse(name, "an object or null", shown(&value), None));
    };
    let mut inner = Fields { file: fields.file, prefix: format!("{name}."), rest: inner };

    let theta = match (top, inner.number("rope_theta")?) {
        (None, None) if absent.is_some() => absent.unwrap_or_default(),
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
    // By a factor of 1 nothing is stretched.
    let is_one = |it: &Value| it.as_f64() == Some(1.0);
    let llama3 = match kind.as_str() {
        Some("default" | "linear") if inner.rest.get("factor").is_some_and(is_one) => {
            inner.take("factor");
            None
        }
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
    if let Some(it) = Error::of_fields(inner.rest().0) {
        return Err(it);
    }
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
        let named = value.as_str().map(|it| it.strip_prefix("torch.").unwrap_or(it));
        if named == Some("auto") {
            continue;
        }
        let dtype = named.and_then(Dtype::from_torch_name);
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
