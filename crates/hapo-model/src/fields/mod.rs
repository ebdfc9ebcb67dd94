//! The fields of `config.json` as transformers names them.

pub(crate) mod keys;
pub(crate) mod rope;

use hapo_core::{Refusal, expected};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_path_to_error::{Path, Segment};

use crate::{config::check::MAX_LAYERS, config::decoder::LayerKind, files::excerpt};
use rope::HfRope;

/// The two kinds of layers in `layer_types`; the first has no window.
pub(crate) const KINDS: [&str; 2] = ["full_attention", "sliding_attention"];

/// The fields of a model, of all families: optional, and in the dialects of transformers 4 and 5. A family takes those
/// that its class has; what nobody took is refused or named by [`keys::left`].
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct HfConfig {
    pub(crate) architectures: Option<Vec<String>>,
    pub(crate) model_type: Option<String>,
    pub(crate) torch_dtype: Option<String>,
    pub(crate) dtype: Option<String>,
    pub(crate) vocab_size: Option<usize>,
    pub(crate) hidden_size: Option<usize>,
    pub(crate) num_hidden_layers: Option<usize>,
    pub(crate) num_attention_heads: Option<usize>,
    pub(crate) num_key_value_heads: Option<usize>,
    pub(crate) head_dim: Option<usize>,
    pub(crate) intermediate_size: Option<usize>,
    pub(crate) max_position_embeddings: Option<usize>,
    pub(crate) original_max_position_embeddings: Option<usize>,
    pub(crate) rms_norm_eps: Option<f64>,
    pub(crate) tie_word_embeddings: Option<bool>,
    pub(crate) eos_token_id: Option<TokenIds>,
    /// Old folders write that there is none as a negative id.
    pub(crate) bos_token_id: Option<i64>,
    pub(crate) pad_token_id: Option<i64>,
    pub(crate) rope_theta: Option<f64>,
    pub(crate) rope_local_base_freq: Option<f64>,
    pub(crate) rope_scaling: Option<HfRope>,
    pub(crate) rope_parameters: Option<HfRope>,
    pub(crate) partial_rotary_factor: Option<f64>,
    pub(crate) no_rope_layers: Option<Vec<u8>>,
    pub(crate) no_rope_layer_interval: Option<std::num::NonZeroUsize>,
    pub(crate) layer_types: Option<Vec<String>>,
    pub(crate) use_sliding_window: Option<bool>,
    pub(crate) sliding_window: Option<usize>,
    pub(crate) sliding_window_pattern: Option<Value>,
    pub(crate) query_pre_attn_scalar: Option<f64>,
    pub(crate) embedding_multiplier: Option<f64>,
    pub(crate) attention_multiplier: Option<f64>,
    pub(crate) residual_multiplier: Option<f64>,
    pub(crate) logits_scaling: Option<f64>,
    #[serde(flatten)]
    pub(crate) rest: Map<String, Value>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged, expecting = "a token id or a list of them")]
pub(crate) enum TokenIds {
    One(u32),
    Several(Vec<u32>),
}

impl From<TokenIds> for Vec<u32> {
    fn from(ids: TokenIds) -> Self {
        match ids {
            TokenIds::One(id) => vec![id],
            TokenIds::Several(ids) => ids,
        }
    }
}

impl HfConfig {
    /// The number of layers, for what families derive from it before it is checked.
    pub(crate) fn depth(&self) -> Result<usize, Refusal> {
        let layers = required(self.num_hidden_layers, "num_hidden_layers", "a positive integer")?;
        Ok(layers.min(MAX_LAYERS))
    }

    /// The kinds of the layers by `layer_types`, with the window of the sliding ones and the embeddings of
    /// [`HfConfig::ropes`]. Without the field, each `every`-th layer is full.
    pub(crate) fn layers(&mut self, every: usize) -> Result<Vec<LayerKind>, Refusal> {
        let window = self.sliding_window.take();
        let sliding = match self.layer_types.take() {
            Some(types) => self.are_sliding(&types, &KINDS)?,
            None => (1..=self.depth()?).map(|layer| !layer.is_multiple_of(every)).collect(),
        };
        if sliding.contains(&true) {
            required(window, "sliding_window", "the window of the sliding layers")?;
        }
        let kind = |is_sliding: &bool| LayerKind {
            window: window.filter(|_| *is_sliding),
            rope: Some(usize::from(*is_sliding)),
        };
        Ok(sliding.iter().map(kind).collect())
    }

    /// Refuses a sliding window that is in use: where `has_switch`, one is only when `use_sliding_window` is true.
    pub(crate) fn full_attention(&mut self, has_switch: bool) -> Result<(), Refusal> {
        const HINT: &str =
            "when your sequences are shorter than the window, set use_sliding_window to false";
        let (in_use, window) = (self.use_sliding_window.take(), self.sliding_window.take());
        if in_use == Some(true) {
            return Err(expected(false).got(true).at("use_sliding_window").hint(HINT));
        }
        if let (false, None, Some(window)) = (has_switch, in_use, window) {
            return Err(expected("null").got(window).at("sliding_window").hint(HINT));
        }
        if let Some(types) = self.layer_types.take() {
            self.are_sliding(&types, &KINDS[..1])?;
        }
        Ok(())
    }

    /// Which layers have a window, where a layer may be of `kinds`.
    fn are_sliding(&self, types: &[String], kinds: &[&str]) -> Result<Vec<bool>, Refusal> {
        let layers = self.depth()?;
        let wanted = format!("\"{}\" for each of the {layers} layers", kinds.join("\" or \""));
        if types.len() != layers {
            return Err(expected(wanted).got(shown(types)).at("layer_types"));
        }
        let is_sliding = |(i, kind): (usize, &String)| match kinds.iter().position(|it| it == kind)
        {
            Some(which) => Ok(which == 1),
            None => Err(expected(&wanted).got(shown(kind)).at(format!("layer_types[{i}]"))),
        };
        types.iter().enumerate().map(is_sliding).collect()
    }

    /// `sliding_window_pattern`: a number of layers, or a word of as many letters, as "LLLG".
    pub(crate) fn pattern(&mut self, absent: usize) -> Result<usize, Refusal> {
        let refuse = |value: &Value| {
            expected("a number of layers").got(shown(value)).at("sliding_window_pattern")
        };
        match self.sliding_window_pattern.take() {
            None => Ok(absent),
            Some(Value::String(word)) => Ok(word.len()),
            Some(it) => it.as_u64().filter(|n| *n > 0).map(|n| n as usize).ok_or(refuse(&it)),
        }
    }
}

pub(crate) fn positive(number: Option<f64>, absent: f64, key: &str) -> Result<f64, Refusal> {
    match number.unwrap_or(absent) {
        it if it > 0.0 && it.is_finite() => Ok(it),
        it => Err(expected("a positive number").got(it).at(key)),
    }
}

pub(crate) fn required<T>(value: Option<T>, key: &str, expectation: &str) -> Result<T, Refusal> {
    value.ok_or_else(|| expected(expectation).got("nothing").at(key))
}

/// A value as JSON, cut short.
pub(crate) fn shown(value: impl Serialize) -> String {
    excerpt(&serde_json::to_string(&value).unwrap_or_default())
}

/// The fields of a JSON object. A key that is there twice has its last value.
pub(crate) fn from_json<T: DeserializeOwned>(text: &[u8]) -> Result<T, Refusal> {
    let object = |got: String| expected("a JSON object").got(got);
    let json: Value = serde_json::from_slice(text).map_err(|cause| object(cause.to_string()))?;
    if !json.is_object() {
        return Err(object(shown(&json)));
    }
    from_value(&json)
}

pub(crate) fn from_value<T: DeserializeOwned>(json: &Value) -> Result<T, Refusal> {
    serde_path_to_error::deserialize(json).map_err(|error| {
        let message = error.inner().to_string();
        let wanted = message.rsplit_once(", expected ").map_or(&*message, |(_, wanted)| wanted);
        let wanted = match wanted {
            "usize" | "a nonzero usize" => "a positive integer",
            "u8" => "0 or 1",
            "i64" => "a token id or null",
            "f64" => "a number",
            "a boolean" => "true or false",
            "a sequence" => "a list",
            it if it.starts_with("struct") => "an object or null",
            it => it,
        };
        expected(wanted).got(shown(at(json, error.path()))).at(error.path())
    })
}

fn at<'a>(json: &'a Value, path: &Path) -> &'a Value {
    path.iter().fold(json, |value, segment| match segment {
        Segment::Map { key } => &value[key],
        Segment::Seq { index } => &value[index],
        _ => value,
    })
}
