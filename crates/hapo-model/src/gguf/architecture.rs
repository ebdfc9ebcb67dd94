//! Families under the names of `general.architecture`: their keys as fields of `config.json`, and their tensors' names.

use hapo_core::{Refusal, is_among};
use serde_json::{Map, Value as Json, json};

use super::Change;
use super::file::{Gguf, Value};
use crate::config::Config;
use crate::config::decoder::{Llama3Scaling, Norms};
use crate::config::dtype::Dtype;
use crate::config::rope::stretched;
use crate::families::FAMILIES;
use crate::fields::KINDS;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Architecture {
    pub(super) name: &'static str,
    /// `model_type`. Of two of one name, the second is that of files with a sliding window.
    pub(super) family: &'static str,
    /// llama.cpp turns neighbours of a head and not its halves, so that the rows of q and k are interleaved.
    is_interleaved: bool,
}

const fn row(name: &'static str, family: &'static str, is_interleaved: bool) -> Architecture {
    Architecture { name, family, is_interleaved }
}

pub(super) const ARCHITECTURES: [Architecture; 11] = [
    row("llama", "llama", true),
    row("llama", "mistral", true),
    row("qwen2", "qwen2", false),
    row("qwen3", "qwen3", false),
    row("gemma3", "gemma3_text", false),
    row("granite", "granite", true),
    row("smollm3", "smollm3", true),
    row("olmo2", "olmo2", false),
    row("olmo2", "olmo3", false),
    row("phi3", "phi3", false),
    row("exaone4", "exaone4", false),
];

/// Keys of an architecture, and the field that has the same value.
pub(super) const KEYS: [(&str, &str); 16] = [
    ("block_count", "num_hidden_layers"),
    ("context_length", "max_position_embeddings"),
    ("embedding_length", "hidden_size"),
    ("feed_forward_length", "intermediate_size"),
    ("attention.head_count", "num_attention_heads"),
    ("attention.head_count_kv", "num_key_value_heads"),
    ("attention.key_length", "head_dim"),
    ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    ("attention.sliding_window", "sliding_window"),
    ("rope.freq_base", "rope_theta"),
    ("rope.freq_base_swa", "rope_local_base_freq"),
    ("embedding_scale", "embedding_multiplier"),
    ("residual_scale", "residual_multiplier"),
    ("attention.scale", "attention_multiplier"),
    ("logit_scale", "logits_scaling"),
    ("rope.scaling.original_context_length", "original_max_position_embeddings"),
];

/// Keys that follow from others.
const IGNORED: [&str; 2] = ["vocab_size", "rope.scaling.finetuned"];

/// Special tokens that llama.cpp ends an answer at, whatever the keys say.
const ENDS: &str =
    "<|im_end|> <|endoftext|> <|eot_id|> <|eom_id|> <|end|> <|end_of_text|> <end_of_turn>";

const EMBEDDING: &str = "token_embd.weight";

impl Architecture {
    pub(super) fn of(gguf: &Gguf<'_>) -> Result<Self, Refusal> {
        let key = "general.architecture";
        let name = gguf.text(key)?.unwrap_or("nothing");
        let window = gguf.keys.get(format!("{name}.attention.sliding_window").as_str());
        let has_window = window.is_some_and(|it| !matches!(it, Value::Integer(0)));
        let mut rows: Vec<_> = ARCHITECTURES.into_iter().filter(|it| it.name == name).collect();
        rows.truncate(1 + usize::from(has_window));
        rows.pop().ok_or_else(|| {
            let mut names: Vec<_> = ARCHITECTURES.iter().map(|it| it.name).collect();
            names.dedup();
            gguf.refuse(key, &format!("one of {}", names.join(", ")), name)
        })
    }

    /// What a file does to a tensor, by the file's name for it.
    pub(super) fn change(self, config: &Config, name: &str) -> Change {
        let is_turned = [".attn_q.", ".attn_k."].iter().any(|it| name.contains(it));
        if self.is_interleaved && is_turned {
            Change::Interleaved(config.head_dim)
        } else if config.decoder.unit_offset && name.ends_with("norm.weight") {
            Change::PlusOne
        } else {
            Change::None
        }
    }

    /// The fields of `config.json`. A key that is not known stays under its own name, and is judged as an unknown field
    /// is.
    pub(super) fn fields(self, gguf: &Gguf<'_>) -> Result<Map<String, Json>, Refusal> {
        if let Some(Value::Integer(2..)) = gguf.keys.get("split.count") {
            let hint = "put the parts together with llama-gguf-split --merge";
            return Err(gguf
                .refuse("split.count", "a whole model in one file", "a part")
                .hint(hint));
        }
        let prefix = format!("{}.", self.name);
        let mut keys: Map<String, Json> = Map::new();
        for (key, value) in &gguf.keys {
            if let Some(key) = key.strip_prefix(&prefix).filter(|it| !IGNORED.contains(it)) {
                keys.insert(key.to_owned(), json(*value));
            }
        }
        let mut fields = Map::new();
        for (key, field) in KEYS {
            if let Some(value) = keys.remove(key) {
                fields.insert(field.to_owned(), value);
            }
        }
        let family = FAMILIES.iter().find(|it| it.name == self.family).expect("a known family");
        fields.insert("architectures".to_owned(), json!([family.architecture]));
        fields.insert("model_type".to_owned(), json!(self.family));
        fields.insert("torch_dtype".to_owned(), json!(format_of(gguf).torch_name()));
        let Some(shape) = gguf.tensors.get(EMBEDDING).map(|it| &it.shape) else {
            return Err(gguf.refuse(EMBEDDING, "the embedding of the tokens", "no such tensor"));
        };
        fields.insert("vocab_size".to_owned(), json!(shape[0]));
        let is_tied = !gguf.tensors.contains_key("output.weight");
        fields.insert("tie_word_embeddings".to_owned(), json!(is_tied));
        self.heads(gguf, &mut keys, &mut fields)?;
        rope(gguf, &mut keys, &mut fields)?;
        special_tokens(gguf, &mut fields)?;
        // Converters of old write that there are none.
        keys.retain(|key, value| !(key.starts_with("expert_") && *value == json!(0)));
        fields.extend(keys.into_iter().map(|(key, value)| (prefix.clone() + &key, value)));
        Ok(fields)
    }

    /// The width of a head and the layers' windows, as far as they follow from other keys.
    fn heads(
        self,
        gguf: &Gguf<'_>,
        keys: &mut Map<String, Json>,
        fields: &mut Map<String, Json>,
    ) -> Result<(), Refusal> {
        let number = |field: &str, fields: &Map<String, Json>| fields.get(field)?.as_u64();
        let (hidden, heads) =
            (number("hidden_size", fields), number("num_attention_heads", fields));
        let follows = hidden.zip(heads.filter(|it| *it > 0)).map(|(hidden, heads)| hidden / heads);
        let width = number("head_dim", fields).or(follows).unwrap_or(0);
        fields.insert("head_dim".to_owned(), json!(width));
        let heads = fields.get("num_attention_heads").cloned().unwrap_or_default();
        fields.entry("num_key_value_heads").or_insert(heads);
        fields.entry("rope_theta").or_insert(json!(1e4));
        for key in ["attention.value_length", "rope.dimension_count"] {
            let Some(got) = keys.remove(key).filter(|it| *it != json!(width)) else { continue };
            let turned = got.as_f64().filter(|_| key == "rope.dimension_count" && width > 0);
            let Some(turned) = turned else {
                let expected = format!("{width}, the width of a head");
                let key = format!("{}.{key}", self.name);
                return Err(gguf.refuse(&key, &expected, &got.to_string()));
            };
            fields.insert("partial_rotary_factor".to_owned(), json!(turned / width as f64));
        }
        let kinds = |it: &Json| Some(json!(KINDS[usize::from(it.as_bool()?)]));
        match keys.remove("attention.sliding_window_pattern") {
            Some(Json::Array(each)) => {
                let kinds: Option<Json> = each.iter().map(kinds).collect();
                fields.insert("layer_types".to_owned(), kinds.unwrap_or(Json::Array(each)));
            }
            Some(every) => drop(fields.insert("sliding_window_pattern".to_owned(), every)),
            None => {}
        }
        if fields.get("sliding_window") == Some(&json!(0)) {
            fields.remove("sliding_window");
        }
        if self.name == "gemma3" {
            // Of the published models, only the largest (62 layers) has another factor than that of its heads' width.
            let is_largest = fields.get("num_hidden_layers") == Some(&json!(62));
            let scalar = follows.filter(|_| is_largest).unwrap_or(width);
            fields.insert("query_pre_attn_scalar".to_owned(), json!(scalar));
        }
        Ok(())
    }
}

/// How the context is stretched: by keys, or by a tensor with a divisor for each pair of a head.
fn rope(
    gguf: &Gguf<'_>,
    keys: &mut Map<String, Json>,
    fields: &mut Map<String, Json>,
) -> Result<(), Refusal> {
    let mut scaling = Map::new();
    for (key, field) in [
        ("type", "rope_type"),
        ("factor", "factor"),
        ("yarn_beta_fast", "beta_fast"),
        ("yarn_beta_slow", "beta_slow"),
    ] {
        if let Some(value) = keys.remove(&format!("rope.scaling.{key}")) {
            scaling.insert(field.to_owned(), value);
        }
    }
    if scaling.get("rope_type") == Some(&json!("none")) {
        scaling.clear();
    }
    let original = "original_max_position_embeddings";
    let long = gguf.numbers("rope_factors_long.weight")?;
    let short = gguf.numbers("rope_factors_short.weight")?;
    if let (Some(long), Some(short)) = (long, short) {
        // The factor on q and k follows from the two lengths.
        keys.remove("rope.scaling.attn_factor");
        scaling.insert("rope_type".to_owned(), json!("longrope"));
        scaling.insert("long_factor".to_owned(), json!(long));
        scaling.insert("short_factor".to_owned(), json!(short));
    } else if let Some(divisors) = gguf.numbers(FREQUENCIES)? {
        scaling = llama3(gguf, &divisors, fields["rope_theta"].as_f64().unwrap_or(1e4))?;
    } else if let Some(length) = fields.remove(original).filter(|_| !scaling.is_empty()) {
        scaling.insert(original.to_owned(), length);
    }
    if !scaling.is_empty() {
        fields.insert("rope_scaling".to_owned(), Json::Object(scaling));
    }
    Ok(())
}

const FREQUENCIES: &str = "rope_freqs.weight";

/// True for tensors that are a part of the configuration.
pub(super) fn is_rope(name: &str) -> bool {
    [FREQUENCIES, "rope_factors_long.weight", "rope_factors_short.weight"].contains(&name)
}

/// The `llama3` scaling whose divisors these are. A file has only what they make of a factor: the other numbers are those
/// of all published models.
fn llama3(gguf: &Gguf<'_>, divisors: &[f64], theta: f64) -> Result<Map<String, Json>, Refusal> {
    let scaling = Llama3Scaling {
        factor: divisors.iter().copied().fold(1.0, f64::max),
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_positions: 8192,
    };
    let wanted = llama3_divisors(scaling, theta, divisors.len());
    let agree = |(got, wanted): (&f64, f64)| (got - wanted).abs() <= 1e-4 * wanted;
    if !divisors.iter().zip(wanted).all(agree) {
        let expected = "divisors of llama3's scaling from a context of 8192";
        return Err(gguf.refuse(FREQUENCIES, expected, "others"));
    }
    let fields = json!({
        "rope_type": "llama3",
        "factor": scaling.factor,
        "low_freq_factor": scaling.low_freq_factor,
        "high_freq_factor": scaling.high_freq_factor,
        "original_max_position_embeddings": scaling.original_max_positions,
    });
    Ok(serde_json::from_value(fields).expect("an object"))
}

/// What the frequencies of a head's pairs are divided by.
pub(super) fn llama3_divisors(
    scaling: Llama3Scaling,
    theta: f64,
    pairs: usize,
) -> impl Iterator<Item = f64> {
    (0..pairs).map(move |pair| {
        let frequency = 1.0 / libm::pow(theta, pair as f64 / pairs as f64);
        frequency / stretched(frequency, scaling)
    })
}

/// Ids of the special tokens; an answer ends at those that end one in llama.cpp.
fn special_tokens(gguf: &Gguf<'_>, fields: &mut Map<String, Json>) -> Result<(), Refusal> {
    for (key, field) in [("bos", "bos_token_id"), ("padding", "pad_token_id")] {
        if let Some(id) = gguf.keys.get(format!("tokenizer.ggml.{key}_token_id").as_str()) {
            fields.insert(field.to_owned(), json(*id));
        }
    }
    let mut ends: Vec<Json> = ["eos", "eot", "eom"]
        .iter()
        .filter_map(|it| gguf.keys.get(format!("tokenizer.ggml.{it}_token_id").as_str()))
        .map(|id| json(*id))
        .collect();
    let text = |value: Value<'_>| match value {
        Value::Text(it) => Some(is_among(ENDS, it)),
        _ => None,
    };
    let named = gguf.list("tokenizer.ggml.tokens", text)?.unwrap_or_default();
    ends.extend(named.iter().enumerate().filter(|it| *it.1).map(|(id, _)| json!(id)));
    let mut once: Vec<Json> = Vec::new();
    for id in ends {
        if !once.contains(&id) {
            once.push(id);
        }
    }
    fields.insert("eos_token_id".to_owned(), Json::Array(once));
    Ok(())
}

/// The number format that a folder with these matrices would say.
fn format_of(gguf: &Gguf<'_>) -> Dtype {
    let mut matrices = gguf.tensors.values().filter(|it| it.shape.len() > 1);
    let first = matrices.next().and_then(|it| it.encoding.plain());
    first
        .filter(|first| matrices.all(|it| it.encoding.plain() == Some(*first)))
        .unwrap_or(Dtype::Bf16)
}

/// The file's name of a folder's tensor.
pub(super) fn name(config: &Config, ours: &str) -> String {
    let (module, kind) = ours.rsplit_once('.').expect("a tensor of a module");
    let in_layer = module.strip_prefix("model.layers.").and_then(|it| it.split_once('.'));
    let Some((layer, module)) = in_layer else {
        let name = match module {
            "model.embed_tokens" => "token_embd",
            "model.norm" => "output_norm",
            _ => "output",
        };
        return format!("{name}.{kind}");
    };
    let name = match module {
        "input_layernorm" => "attn_norm",
        "post_attention_layernorm" if config.decoder.norms != Norms::Before => {
            "post_attention_norm"
        }
        "post_attention_layernorm" | "pre_feedforward_layernorm" => "ffn_norm",
        "post_feedforward_layernorm" => "post_ffw_norm",
        "self_attn.q_proj" => "attn_q",
        "self_attn.k_proj" => "attn_k",
        "self_attn.v_proj" => "attn_v",
        "self_attn.qkv_proj" => "attn_qkv",
        "self_attn.o_proj" => "attn_output",
        "self_attn.q_norm" => "attn_q_norm",
        "self_attn.k_norm" => "attn_k_norm",
        "mlp.gate_proj" => "ffn_gate",
        "mlp.up_proj" | "mlp.gate_up_proj" => "ffn_up",
        "mlp.down_proj" => "ffn_down",
        _ => unreachable!("a decoder has no module {module}"),
    };
    format!("blk.{layer}.{name}.{kind}")
}

/// A value as JSON; of lists, those of booleans.
fn json(value: Value<'_>) -> Json {
    match value {
        Value::Integer(it) => serde_json::Number::from_i128(it).map_or(Json::Null, Json::Number),
        Value::Float(it) => json!(it),
        Value::Bool(it) => json!(it),
        Value::Text(it) => json!(it),
        Value::List(it) => it.json(),
    }
}
