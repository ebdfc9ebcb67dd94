//! `config.json` to the shape of a decoder.

use std::path::Path;

use hapo_core::Refusal;
use serde_json::{Value, json};

use super::check::check;
use crate::config::Config;
use crate::config::dtype::Dtype;
use crate::error::Error;
use crate::families::{FAMILIES, Family};
use crate::fields::keys::{EXPERTS, FIXED, REFUSED};
use crate::fields::reader::Reader;
use crate::fields::sizes::sizes;
use crate::fields::{Fields, shown};

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
/// A text that is no JSON object, and fields that are missing, out of bounds, contradictory or ask for something the
/// decoder does not implement.
pub fn parse(
    file: &Path,
    text: &[u8],
    generation: Option<(&Path, &[u8])>,
) -> Result<ParsedConfig, Refusal> {
    let mut fields = Fields::parse(file, text)?;
    let family = family(&mut fields)?;
    let (refused, architecture) = (Vec::new(), family.architecture);
    let mut reader = Reader { fields, refused, sizes: None, architecture };
    reader.sizes = reader.keep(|it| sizes(it, family.absent));
    let decoder = (family.read)(&mut reader);
    reader.refused.extend(unimplemented(&mut reader.fields));
    let tied = reader.keep(|it| it.flag("tie_word_embeddings"));
    let dtype = reader.keep(declared_dtype);
    let tokens = reader.keep(Tokens::take);
    let Reader { fields, mut refused, sizes, .. } = reader;
    let (unknown, unread) = fields.rest();
    refused.extend(unknown);
    let (Some(sizes), Some(tied), Some(dtype), Some(mut tokens), []) =
        (sizes, tied, dtype, tokens, refused.as_slice())
    else {
        return Err(Error::of_fields(refused).expect("what is not there was refused").into());
    };
    if let Some((file, text)) = generation {
        tokens = Tokens::take(&mut Fields::parse(file, text)?)?.or(tokens);
    }
    let config = Config {
        family: family.name,
        vocab_size: sizes.vocab_size,
        hidden: sizes.hidden,
        layers: sizes.layers,
        heads: sizes.heads,
        kv_heads: sizes.kv_heads,
        head_dim: sizes.head_dim,
        ffn: sizes.ffn,
        rms_eps: sizes.rms_eps,
        tied: tied.unwrap_or(family.absent.tied),
        decoder,
        max_positions: sizes.max_positions,
        eos: tokens.eos.unwrap_or_default(),
        bos: tokens.bos,
        pad: tokens.pad,
    };
    check(file, &config)?;
    Ok(ParsedConfig { config, dtype, unread })
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

/// The family that `architectures` names.
fn family(fields: &mut Fields<'_>) -> Result<&'static Family, Error> {
    let names: Vec<&str> = FAMILIES.iter().map(|it| it.architecture).collect();
    let expected = format!("a list of one of {}", names.join(", "));
    let Some(value) = fields.take("architectures") else {
        return Err(fields.missing("architectures", &expected));
    };
    let Some(family) = FAMILIES.iter().find(|it| value == json!([it.architecture])) else {
        return Err(fields.refuse("architectures", expected, shown(&value), None));
    };
    match fields.take("model_type") {
        Some(got) if got != json!(family.name) => {
            let expected =
                format!("\"{}\", as architectures says {}", family.name, family.architecture);
            Err(fields.refuse("model_type", expected, shown(&got), None))
        }
        _ => Ok(family),
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
    for (name, values, hint) in FIXED {
        refused.extend(fields.fixed(name, values, *hint));
    }
    refused
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
