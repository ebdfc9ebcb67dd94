//! `config.json` and `generation_config.json`, in and out.
//!
//! Both dialects are read: transformers 4 writes `rope_theta`, `rope_scaling` and `torch_dtype`; transformers 5 writes
//! `rope_parameters` and `dtype`. The first is written, because transformers 4, transformers 5 and vLLM all read it.
//!
//! A field is refused if it changes, or may change, the result: known features that are not implemented, and unknown
//! keys with a decoder's word in them. Any other unknown key is returned by name, for a warning. Keys that are `null`
//! or begin with `_` pass.

use std::path::Path;

use hapo_core::{Refusal, expected};
use hapo_kernels::Activation;
use serde_json::{Map, Value, json};

pub use crate::config::check::MAX_PARAMETERS;
use crate::config::decoder::{Decoder, Scaling};
use crate::families::{FAMILIES, Family, family_of};
use crate::fields::{HfConfig, KINDS, from_json, keys, required, shown};
use crate::files::{in_file, several};
use crate::{config::Config, config::dtype::Dtype};

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
        let Some(name) = value.filter(|name| name != "auto") else { continue };
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

/// `config.json` of weights that are stored as `dtype`, as transformers 4 has it, keys sorted, with a final newline.
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

/// `generation_config.json`: the special tokens, and the other fields (sampling defaults) of the model's own.
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
