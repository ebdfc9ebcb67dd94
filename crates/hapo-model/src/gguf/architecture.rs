//! Families under the names of `general.architecture`: their keys as fields of `config.json`, and their tensors' names.

use hapo_core::{Refusal, is_among};
use serde_json::{Map, Value as Json, json};

use super::{Change, Encoding, file::Gguf};
use crate::config::decoder::{Llama3Scaling, Norms, Scaling, stretched};
use crate::{
    config::Config, config::dtype::Dtype, config_json::rope_scaling, families::FAMILIES,
    fields::KINDS,
};

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

const IGNORED: [&str; 2] = ["vocab_size", "rope.scaling.finetuned"];

/// Special tokens that llama.cpp ends an answer at, whatever the keys say.
const ENDS: &str =
    "<|im_end|> <|endoftext|> <|eot_id|> <|eom_id|> <|end|> <|end_of_text|> <end_of_turn>";

const EMBEDDING: &str = "token_embd.weight";

impl Architecture {
    pub(super) fn of(gguf: &Gguf) -> Result<Self, Refusal> {
        let key = "general.architecture";
        let name = gguf.get(key, "a text")?.unwrap_or("nothing");
        let window = gguf.keys.get(&format!("{name}.attention.sliding_window"));
        let has_window = window.is_some_and(|it| *it != 0);
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

    /// The fields of `config.json`. An unknown key stays under its own name, and is judged as an unknown field is.
    pub(super) fn fields(self, gguf: &Gguf) -> Result<Json, Refusal> {
        if gguf.keys.get("split.count").and_then(Json::as_u64) > Some(1) {
            let hint = "put the parts together with llama-gguf-split --merge";
            let refusal = gguf.refuse("split.count", "a whole model in one file", "a part");
            return Err(refusal.hint(hint));
        }
        let Some(embedding) = gguf.tensors.get(EMBEDDING) else {
            return Err(gguf.refuse(EMBEDDING, "the embedding of the tokens", "no such tensor"));
        };
        let family = FAMILIES.iter().find(|it| it.name == self.family).expect("a known family");
        let mut fields = json!({
            "architectures": [family.architecture],
            "model_type": self.family,
            "torch_dtype": format_of(gguf).torch_name(),
            "vocab_size": embedding.shape[0],
            "tie_word_embeddings": !gguf.tensors.contains_key("output.weight"),
            "rope_theta": 1e4,
        });
        let prefix = format!("{}.", self.name);
        let mut keys: Map<String, Json> = Map::new();
        for (key, value) in &gguf.keys {
            let Some(key) = key.strip_prefix(&prefix) else { continue };
            match KEYS.iter().find(|it| it.0 == key) {
                Some((_, field)) => fields[*field] = value.clone(),
                // Converters of old write that there are no experts.
                None if IGNORED.contains(&key) || key.starts_with("expert_") && *value == 0 => {}
                None => drop(keys.insert(key.to_owned(), value.clone())),
            }
        }
        self.heads(gguf, &mut keys, &mut fields)?;
        rope(gguf, &mut keys, &mut fields)?;
        special_tokens(gguf, &mut fields)?;
        for (key, value) in keys {
            fields[prefix.clone() + &key] = value;
        }
        Ok(fields)
    }

    /// The width of a head and the layers' windows, as far as they follow from other keys.
    fn heads(
        self,
        gguf: &Gguf,
        keys: &mut Map<String, Json>,
        fields: &mut Json,
    ) -> Result<(), Refusal> {
        let (hidden, heads) = (&fields["hidden_size"], fields["num_attention_heads"].clone());
        let heads_or_none = heads.as_u64().filter(|it| *it > 0);
        let follows = hidden.as_u64().zip(heads_or_none).map(|(hidden, heads)| hidden / heads);
        let width = fields["head_dim"].as_u64().or(follows).unwrap_or(0);
        fields["head_dim"] = json!(width);
        if fields["num_key_value_heads"].is_null() {
            fields["num_key_value_heads"] = heads;
        }
        for key in ["attention.value_length", "rope.dimension_count"] {
            let Some(got) = keys.remove(key).filter(|it| *it != width) else { continue };
            let turned = got.as_f64().filter(|_| key == "rope.dimension_count" && width > 0);
            let Some(turned) = turned else {
                let expected = format!("{width}, the width of a head");
                let key = format!("{}.{key}", self.name);
                return Err(gguf.refuse(&key, &expected, &got.to_string()));
            };
            fields["partial_rotary_factor"] = json!(turned / width as f64);
        }
        let kind = |it: &Json| Some(KINDS[usize::from(it.as_bool()?)]);
        match keys.remove("attention.sliding_window_pattern") {
            Some(Json::Array(each)) => {
                let kinds: Option<Json> = each.iter().map(kind).collect();
                fields["layer_types"] = kinds.unwrap_or(Json::Array(each));
            }
            Some(every) => fields["sliding_window_pattern"] = every,
            None => {}
        }
        if fields["sliding_window"] == 0 {
            fields["sliding_window"] = Json::Null;
        }
        if self.name == "gemma3" {
            // Of the published models, only the largest (62 layers) has another factor than that of its heads' width.
            let is_largest = fields["num_hidden_layers"] == 62;
            let scalar = follows.filter(|_| is_largest).unwrap_or(width);
            fields["query_pre_attn_scalar"] = json!(scalar);
        }
        Ok(())
    }
}

/// How the context is stretched: by keys, or by a tensor with a divisor for each pair of a head.
fn rope(gguf: &Gguf, keys: &mut Map<String, Json>, fields: &mut Json) -> Result<(), Refusal> {
    let mut key = |key: &str| keys.remove(&format!("rope.scaling.{key}")).unwrap_or_default();
    let mut scaling = json!({
        "rope_type": key("type"), "factor": key("factor"),
        "beta_fast": key("yarn_beta_fast"), "beta_slow": key("yarn_beta_slow"),
    });
    let long = gguf.numbers("rope_factors_long.weight")?;
    let short = gguf.numbers("rope_factors_short.weight")?;
    if let (Some(long), Some(short)) = (long, short) {
        // The factor on q and k follows from the two lengths.
        key("attn_factor");
        scaling["rope_type"] = json!("longrope");
        (scaling["long_factor"], scaling["short_factor"]) = (json!(long), json!(short));
    } else if let Some(divisors) = gguf.numbers(FREQUENCIES)? {
        scaling = llama3(gguf, &divisors, fields["rope_theta"].as_f64().unwrap_or(1e4))?;
    } else {
        let says_nothing = scaling.as_object().is_some_and(|it| it.values().all(Json::is_null));
        let original = fields[ORIGINAL].take();
        if says_nothing || scaling["rope_type"] == "none" {
            return Ok(());
        }
        scaling[ORIGINAL] = original;
    }
    fields["rope_scaling"] = scaling;
    Ok(())
}

const ORIGINAL: &str = "original_max_position_embeddings";
const FREQUENCIES: &str = "rope_freqs.weight";

/// True for tensors that are a part of the configuration.
pub(super) fn is_rope(name: &str) -> bool {
    [FREQUENCIES, "rope_factors_long.weight", "rope_factors_short.weight"].contains(&name)
}

/// The `llama3` scaling whose divisors these are. A file has only what they make of a factor: the other numbers are those
/// of all published models.
fn llama3(gguf: &Gguf, divisors: &[f64], theta: f64) -> Result<Json, Refusal> {
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
    Ok(rope_scaling(&Scaling::Llama3(scaling)))
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
fn special_tokens(gguf: &Gguf, fields: &mut Json) -> Result<(), Refusal> {
    let id = |name: &str| gguf.keys.get(&format!("tokenizer.ggml.{name}_token_id")).cloned();
    fields["bos_token_id"] = id("bos").unwrap_or_default();
    fields["pad_token_id"] = id("padding").unwrap_or_default();
    let tokens: Vec<&str> =
        gguf.get("tokenizer.ggml.tokens", "a list of texts")?.unwrap_or_default();
    let named = tokens.iter().enumerate().filter(|it| is_among(ENDS, it.1));
    let mut ends: Vec<Json> = Vec::new();
    for id in ["eos", "eot", "eom"].into_iter().filter_map(id).chain(named.map(|it| json!(it.0))) {
        if !ends.contains(&id) {
            ends.push(id);
        }
    }
    fields["eos_token_id"] = ends.into();
    Ok(())
}

/// The number format that a folder with these matrices would say.
fn format_of(gguf: &Gguf) -> Dtype {
    let matrices = gguf.tensors.values().filter(|it| it.shape.len() > 1);
    let mut formats = matrices.map(|it| it.encoding.and_then(Encoding::plain));
    let first = formats.next().flatten();
    first.filter(|_| formats.all(|it| it == first)).unwrap_or(Dtype::Bf16)
}

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
