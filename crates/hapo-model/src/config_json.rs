//! `config.json` and `generation_config.json`, in and out.
//!
//! Both dialects are read: transformers 4 writes `rope_theta`, `rope_scaling` and `torch_dtype`;
//! transformers 5 writes `rope_parameters` and `dtype`. The first is written, because transformers
//! 4, transformers 5 and vLLM all read it.
//!
//! The price of never ignoring a field: a key that is neither understood nor known to leave the
//! arithmetic alone is refused by name, so a folder with a private key of someone's tool must be
//! cleaned of it once. Keys that are `null` or begin with `_` are always let through.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::config::{Architecture, Config, Llama3Scaling, Rope, TensorSpec};
use crate::dtype::Dtype;
use crate::error::{Error, excerpt};

/// Most parameters a model may have (2^40); larger sums in a file are taken for damage.
pub const MAX_PARAMETERS: u64 = 1 << 40;

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

/// Checks that the numbers of a configuration agree with each other, whoever made it: positive
/// sizes, heads divisible by key/value heads, an even head width, special tokens inside the
/// vocabulary, at most [`MAX_PARAMETERS`] parameters. `file` is only named in errors.
///
/// # Errors
/// [`Error::Config`] with the name the field has in `config.json`.
pub fn check(file: &Path, config: &Config) -> Result<(), Error> {
    let refuse = |field: &str, expected: String, got: String, hint| {
        Err(Error::Config {
            file: file.to_owned(),
            field: field.to_owned(),
            expected,
            got,
            hint,
        })
    };
    let sizes = [
        ("vocab_size", config.vocab_size, 1 << 24),
        ("hidden_size", config.hidden, 1 << 18),
        ("num_hidden_layers", config.layers, 1 << 10),
        ("num_attention_heads", config.heads, 1 << 12),
        ("num_key_value_heads", config.kv_heads, 1 << 12),
        ("head_dim", config.head_dim, 1 << 12),
        ("intermediate_size", config.ffn, 1 << 20),
        ("max_position_embeddings", config.max_positions, 1 << 31),
    ];
    for (field, size, limit) in sizes {
        if !(1..=limit).contains(&size) {
            return refuse(field, size_between(limit), size.to_string(), None);
        }
    }
    if !config.heads.is_multiple_of(config.kv_heads) {
        return refuse(
            "num_key_value_heads",
            format!("a divisor of num_attention_heads ({})", config.heads),
            config.kv_heads.to_string(),
            None,
        );
    }
    if !config.head_dim.is_multiple_of(2) {
        return refuse(
            "head_dim",
            "an even number, as the rotation turns pairs".to_owned(),
            config.head_dim.to_string(),
            None,
        );
    }
    if !(config.rms_eps > 0.0 && config.rms_eps < 1.0) {
        return refuse(
            "rms_norm_eps",
            "a number between 0 and 1".to_owned(),
            config.rms_eps.to_string(),
            None,
        );
    }
    check_rope(file, &config.rope, "rope_scaling")?;
    let special = (config.eos.iter().map(|id| ("eos_token_id", *id)))
        .chain(config.bos.map(|id| ("bos_token_id", id)))
        .chain(config.pad.map(|id| ("pad_token_id", id)));
    for (field, id) in special {
        if id as usize >= config.vocab_size {
            return refuse(
                field,
                format!("an id below vocab_size ({})", config.vocab_size),
                id.to_string(),
                None,
            );
        }
    }
    for (name, has, needs) in [
        (
            "qkv_bias",
            config.qkv_bias,
            config.architecture == Architecture::Qwen2,
        ),
        (
            "qk_norm",
            config.qk_norm,
            config.architecture == Architecture::Qwen3,
        ),
    ] {
        if has != needs {
            return refuse(
                "architectures",
                format!(
                    "{name} {needs}, as {} has it",
                    names_of(config.architecture).0
                ),
                has.to_string(),
                None,
            );
        }
    }
    // One layer stands for all: they are alike, and a sum over 1024 of them cannot overflow u64
    // within the bounds above.
    let count = |spec: &TensorSpec| spec.shape.iter().map(|size| *size as u64).product::<u64>();
    let one = Config {
        layers: 1,
        ..config.clone()
    };
    let parameters: u64 = (one.tensors().iter())
        .map(|spec| {
            let copies = if spec.name.starts_with("model.layers.") {
                config.layers as u64
            } else {
                1
            };
            copies * count(spec)
        })
        .sum();
    if parameters > MAX_PARAMETERS {
        return refuse(
            "hidden_size × num_hidden_layers",
            format!("at most {MAX_PARAMETERS} parameters in all"),
            parameters.to_string(),
            None,
        );
    }
    Ok(())
}

/// `object` is the field that holds the scaling: each dialect has its own.
fn check_rope(file: &Path, rope: &Rope, object: &str) -> Result<(), Error> {
    let refuse = |field: String, expected: String, got: String| {
        Err(Error::Config {
            file: file.to_owned(),
            field,
            expected,
            got,
            hint: None,
        })
    };
    if !(rope.theta.is_finite() && rope.theta >= 1.0) {
        let field = match object {
            "rope_scaling" => "rope_theta".to_owned(),
            object => format!("{object}.rope_theta"),
        };
        let expected = "a finite number of at least 1".to_owned();
        return refuse(field, expected, rope.theta.to_string());
    }
    let Some(scaling) = rope.llama3 else {
        return Ok(());
    };
    if !(scaling.factor.is_finite() && scaling.factor >= 1.0) {
        return refuse(
            format!("{object}.factor"),
            "a finite number of at least 1".to_owned(),
            scaling.factor.to_string(),
        );
    }
    let (low, high) = (scaling.low_freq_factor, scaling.high_freq_factor);
    if !(low > 0.0 && high > low && high.is_finite()) {
        return refuse(
            format!("{object}.high_freq_factor"),
            format!("a finite number above low_freq_factor ({low}), both positive"),
            high.to_string(),
        );
    }
    if !(1..=1 << 31).contains(&scaling.original_max_positions) {
        return refuse(
            format!("{object}.original_max_position_embeddings"),
            size_between(1 << 31),
            scaling.original_max_positions.to_string(),
        );
    }
    Ok(())
}

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

/// `generation_config.json`: the special tokens and nothing else, so that whoever samples from the
/// folder samples from the model's own distribution.
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

/// Keys that leave the decoder's arithmetic alone: bookkeeping of transformers, defaults of
/// generation, initialisation, and marks of common tools.
const HARMLESS: &[&str] = &[
    "attn_implementation",
    "bad_words_ids",
    "begin_suppress_tokens",
    "chunk_size_feed_forward",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "id2label",
    "initializer_range",
    "label2id",
    "length_penalty",
    "max_length",
    "max_window_layers",
    "min_length",
    "model_name",
    "name_or_path",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torchscript",
    "transformers_version",
    "typical_p",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
];

/// Keys with one implemented value, which is also their default.
const FIXED: &[(&str, &str, Option<&str>)] = &[
    ("hidden_act", "\"silu\"", None),
    ("mlp_bias", "false", None),
    (
        "attention_dropout",
        "0.0",
        Some("set attention_dropout to 0.0; the decoder trains without dropout"),
    ),
    ("partial_rotary_factor", "1.0", None),
    ("use_mrope", "false", None),
    ("is_causal", "true", None),
    ("is_decoder", "false", None),
    ("is_encoder_decoder", "false", None),
    ("add_cross_attention", "false", None),
    ("pruned_heads", "{}", None),
];

/// Keys of features that are not implemented, whatever their value.
const REFUSED: &[(&str, &str, Option<&str>)] = &[
    (
        "quantization_config",
        "unquantised weights",
        Some("use the folder of the model before quantisation, in bf16, f16 or f32"),
    ),
    (
        "auto_map",
        "an architecture of transformers itself, without code of its own",
        None,
    ),
    ("num_experts", DENSE, None),
    ("num_local_experts", DENSE, None),
    ("n_routed_experts", DENSE, None),
    ("num_experts_per_tok", DENSE, None),
    ("moe_intermediate_size", DENSE, None),
    ("shared_expert_intermediate_size", DENSE, None),
    ("decoder_sparse_step", DENSE, None),
    ("mlp_only_layers", DENSE, None),
    ("norm_topk_prob", DENSE, None),
    ("router_aux_loss_coef", DENSE, None),
    ("output_router_logits", DENSE, None),
];

const DENSE: &str = "a dense model, without experts";

const ARCHITECTURES: [(Architecture, &str, &str); 3] = [
    (Architecture::Qwen2, "Qwen2ForCausalLM", "qwen2"),
    (Architecture::Qwen3, "Qwen3ForCausalLM", "qwen3"),
    (Architecture::Llama, "LlamaForCausalLM", "llama"),
];

/// Name in `architectures`, and `model_type`.
fn names_of(architecture: Architecture) -> (&'static str, &'static str) {
    (ARCHITECTURES.iter())
        .find(|(known, ..)| *known == architecture)
        .map(|(_, architecture, model_type)| (*architecture, *model_type))
        .expect("every architecture has its line in the table")
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
        Some(i) => Err(fields.refuse(
            format!("layer_types[{i}]"),
            expected(),
            shown(&list[i]),
            None,
        )),
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
                return Ok(Rope {
                    theta,
                    llama3: None,
                });
            }
            None => return Err(fields.missing("rope_theta", "a number")),
        },
    };
    let Value::Object(inner) = value else {
        return Err(fields.refuse(name, "an object or null", shown(&value), None));
    };
    let mut inner = Fields {
        file: fields.file,
        prefix: format!("{name}."),
        rest: inner,
    };

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

fn shown(value: &Value) -> String {
    excerpt(&value.to_string())
}

fn size_between(limit: usize) -> String {
    format!("an integer from 1 to {limit}")
}

/// A JSON object whose keys are taken out one by one, so that what is left is what nobody read.
struct Fields<'a> {
    file: &'a Path,
    /// Names the object inside the file; empty or `outer.`.
    prefix: String,
    rest: Map<String, Value>,
}

impl<'a> Fields<'a> {
    fn parse(file: &'a Path, text: &[u8]) -> Result<Self, Error> {
        let malformed = |got: String| Error::Malformed {
            file: file.to_owned(),
            expected: "a JSON object".to_owned(),
            got,
            hint: None,
        };
        match serde_json::from_slice(text) {
            Ok(Value::Object(rest)) => Ok(Self {
                file,
                prefix: String::new(),
                rest,
            }),
            Ok(other) => Err(malformed(shown(&other))),
            Err(cause) => Err(malformed(cause.to_string())),
        }
    }

    /// The value of a key, which is no longer there afterwards; `null` is as good as absent.
    fn take(&mut self, name: &str) -> Option<Value> {
        self.rest.remove(name).filter(|value| !value.is_null())
    }

    fn number(&mut self, name: &str) -> Result<Option<f64>, Error> {
        match self.take(name) {
            None => Ok(None),
            Some(value) => match value.as_f64() {
                Some(number) => Ok(Some(number)),
                None => Err(self.refuse(name, "a number", shown(&value), None)),
            },
        }
    }

    fn required_number(&mut self, name: &str) -> Result<f64, Error> {
        match self.number(name)? {
            Some(number) => Ok(number),
            None => Err(self.missing(name, "a number")),
        }
    }

    fn size(&mut self, name: &str, limit: usize) -> Result<Option<usize>, Error> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        match value.as_u64() {
            Some(size) if (1..=limit as u64).contains(&size) => Ok(Some(size as usize)),
            _ => Err(self.refuse(name, size_between(limit), shown(&value), None)),
        }
    }

    fn required_size(&mut self, name: &str, limit: usize) -> Result<usize, Error> {
        match self.size(name, limit)? {
            Some(size) => Ok(size),
            None => Err(self.missing(name, &size_between(limit))),
        }
    }

    fn flag(&mut self, name: &str) -> Result<Option<bool>, Error> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => Err(self.refuse(name, "true or false", shown(&other), None)),
        }
    }

    fn token(&mut self, name: &str) -> Result<Option<u32>, Error> {
        match self.take(name) {
            None => Ok(None),
            Some(value) => match token_id(&value) {
                Some(id) => Ok(Some(id)),
                None => Err(self.refuse(name, "a token id or null", shown(&value), None)),
            },
        }
    }

    fn token_list(&mut self, name: &str) -> Result<Option<Vec<u32>>, Error> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let ids = match &value {
            Value::Array(list) => list.iter().map(token_id).collect(),
            one => token_id(one).map(|id| vec![id]),
        };
        match ids {
            Some(ids) => Ok(Some(ids)),
            None => Err(self.refuse(name, "a token id or a list of them", shown(&value), None)),
        }
    }

    fn refuse_the_rest(&self) -> Result<(), Error> {
        let unknown = self.rest.iter().find(|(name, value)| {
            !value.is_null() && !name.starts_with('_') && !HARMLESS.contains(&name.as_str())
        });
        match unknown {
            None => Ok(()),
            Some((name, value)) => Err(self.refuse(
                excerpt(name),
                "no such field, as the decoder does not implement it",
                shown(value),
                Some("remove the field when it does not change what the model computes"),
            )),
        }
    }

    fn missing(&self, name: &str, expected: &str) -> Error {
        self.refuse(name, expected, "nothing", None)
    }

    fn refuse(
        &self,
        name: impl AsRef<str>,
        expected: impl Into<String>,
        got: impl Into<String>,
        hint: Option<&'static str>,
    ) -> Error {
        Error::Config {
            file: PathBuf::from(self.file),
            field: format!("{}{}", self.prefix, name.as_ref()),
            expected: expected.into(),
            got: got.into(),
            hint,
        }
    }
}

fn token_id(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|id| u32::try_from(id).ok())
}
