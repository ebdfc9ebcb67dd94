//! `config.json` to the shape of a decoder.

use std::path::Path;

use hapo_core::{Refusal, expected};

use crate::config::Config;
use crate::config::decoder::Decoder;
use crate::config::dtype::Dtype;
use crate::families::{FAMILIES, Family};
use crate::fields::{HfConfig, from_json, keys, required, shown};
use crate::files::{in_file, several};

#[derive(Clone, Debug, PartialEq)]
pub struct ParsedConfig {
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
pub fn parse(
    file: &Path,
    text: &[u8],
    generation: Option<(&Path, &[u8])>,
) -> Result<ParsedConfig, Refusal> {
    let refuse = |refusal| in_file(file, refusal);
    let mut fields: HfConfig = from_json(text).map_err(refuse)?;
    if let Some((file, text)) = generation {
        let generation: HfConfig = from_json(text).map_err(|refusal| in_file(file, refusal))?;
        fields.eos_token_id = generation.eos_token_id.or(fields.eos_token_id);
        fields.bos_token_id = generation.bos_token_id.or(fields.bos_token_id);
        fields.pad_token_id = generation.pad_token_id.or(fields.pad_token_id);
    }
    read(fields).map_err(refuse)
}

/// The decoder of these fields, none of which may be left.
pub(crate) fn read(mut fields: HfConfig) -> Result<ParsedConfig, Refusal> {
    let family = family(&mut fields)?;
    let dtype = declared_dtype(&mut fields);
    let config = (family.read)(&mut fields)
        .and_then(|decoder| shape(&mut fields, family, decoder))
        .and_then(|config| Ok((config, dtype?)));
    match config {
        Ok((config, dtype)) => {
            let (refused, unread) = keys::left(&fields, family.fixed, "");
            if let Some(refusal) = several(refused) {
                return Err(refusal);
            }
            config.check()?;
            Ok(ParsedConfig { config, dtype, unread })
        }
        Err(refusal) => {
            let (unknown, _) = keys::left(&fields.rest, family.fixed, "");
            let refused = std::iter::once(refusal).chain(unknown).collect();
            Err(several(refused).expect("one was refused"))
        }
    }
}

fn family(fields: &mut HfConfig) -> Result<&'static Family, Refusal> {
    let names: Vec<&str> = FAMILIES.iter().map(|it| it.architecture).collect();
    let wanted = format!("a list of one of {}", names.join(", "));
    let named = required(fields.architectures.take(), "architectures", &wanted)?;
    let Some(family) = FAMILIES.iter().find(|it| named == [it.architecture]) else {
        return Err(expected(wanted).got(shown(named)).at("architectures"));
    };
    match fields.model_type.take() {
        Some(got) if got != family.name => {
            let wanted =
                format!("\"{}\", as architectures says {}", family.name, family.architecture);
            Err(expected(wanted).got(shown(got)).at("model_type"))
        }
        _ => Ok(family),
    }
}

fn shape(fields: &mut HfConfig, family: &Family, decoder: Decoder) -> Result<Config, Refusal> {
    let size = |value: Option<usize>, key| required(value, key, "a positive integer");
    let hidden = size(fields.hidden_size.take(), "hidden_size")?;
    let heads = size(fields.num_attention_heads.take(), "num_attention_heads")?;
    let kv_heads = fields.num_key_value_heads.take().or(family.kv_heads_follow.then_some(heads));
    let head_dim = match fields.head_dim.take() {
        Some(head_dim) => head_dim,
        None if !family.head_dim_follows => {
            let hint = "this family has no width that follows from the others; write the one of q_norm.weight";
            return Err(expected("a positive integer").got("nothing").at("head_dim").hint(hint));
        }
        None if heads > 0 && hidden % heads == 0 => hidden / heads,
        None => {
            let wanted =
                format!("a multiple of num_attention_heads ({heads}), as head_dim is not given");
            return Err(expected(wanted).got(hidden).at("hidden_size"));
        }
    };
    let eps = required(fields.rms_norm_eps.take(), "rms_norm_eps", "a small positive number")?;
    let longest = fields.max_position_embeddings.take();
    Ok(Config {
        family: family.name,
        vocab_size: size(fields.vocab_size.take(), "vocab_size")?,
        hidden,
        layers: size(fields.num_hidden_layers.take(), "num_hidden_layers")?,
        heads,
        // Its default in the class is a number of one published model.
        kv_heads: size(kv_heads, "num_key_value_heads")?,
        head_dim,
        ffn: size(fields.intermediate_size.take(), "intermediate_size")?,
        rms_eps: eps as f32,
        tied: fields.tie_word_embeddings.take().unwrap_or(family.tied),
        decoder,
        max_positions: size(longest, "max_position_embeddings")?,
        eos: fields.eos_token_id.take().map(Into::into).unwrap_or_default(),
        bos: token(fields.bos_token_id.take(), "bos_token_id")?,
        pad: token(fields.pad_token_id.take(), "pad_token_id")?,
    })
}

fn token(id: Option<i64>, key: &str) -> Result<Option<u32>, Refusal> {
    let refuse = |id| move |_| expected("a token id or null").got(id).at(key);
    id.filter(|id| *id >= 0).map(|id| u32::try_from(id).map_err(refuse(id))).transpose()
}

fn declared_dtype(fields: &mut HfConfig) -> Result<Option<Dtype>, Refusal> {
    let mut declared = None;
    for (key, value) in [("torch_dtype", fields.torch_dtype.take()), ("dtype", fields.dtype.take())]
    {
        let Some(name) = value.filter(|name| name != "auto") else {
            continue;
        };
        let dtype = Dtype::from_torch_name(name.strip_prefix("torch.").unwrap_or(&name));
        let wanted = match (dtype, declared) {
            (None, _) => "\"float32\", \"bfloat16\" or \"float16\"".to_owned(),
            (Some(dtype), Some(other)) if dtype != other => {
                format!("\"{}\", as torch_dtype says", other.torch_name())
            }
            _ => {
                declared = dtype;
                continue;
            }
        };
        return Err(expected(wanted).got(shown(name)).at(key));
    }
    Ok(declared)
}
