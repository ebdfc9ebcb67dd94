//! Rotary embeddings in the dialects of transformers 4 (`rope_theta`, `rope_scaling`) and 5 (`rope_parameters`).

use hapo_core::{Refusal, expected};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{HfConfig, keys, required, shown};
use crate::config::decoder::{Llama3Scaling, LongScaling, Rope, Scaling, YarnScaling};
use crate::files::inside;

const ORIGINAL: &str = "original_max_position_embeddings";

/// `rope_scaling` or `rope_parameters`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct HfRope {
    rope_type: Option<String>,
    r#type: Option<String>,
    rope_theta: Option<f64>,
    partial_rotary_factor: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    beta_fast: Option<f64>,
    beta_slow: Option<f64>,
    attention_factor: Option<f64>,
    short_factor: Option<Vec<f64>>,
    long_factor: Option<Vec<f64>>,
    original_max_position_embeddings: Option<usize>,
    /// One object for each kind of layer.
    full_attention: Option<Box<HfRope>>,
    sliding_attention: Option<Box<HfRope>>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// What a file says beside the object.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Beside {
    pub(crate) theta: Option<f64>,
    /// The base of a file that names none.
    pub(crate) absent: Option<f64>,
    pub(crate) longest: Option<usize>,
    pub(crate) original: Option<usize>,
    /// `partial_rotary_factor`, in families that have it.
    pub(crate) share: Option<f64>,
}

impl HfConfig {
    /// The rotary embedding of all layers; `absent` is the base of a file that names none.
    pub(crate) fn rope(&mut self, absent: Option<f64>) -> Result<Rope, Refusal> {
        self.rope_with(Beside { absent, ..Beside::default() })
    }

    pub(crate) fn rope_with(&mut self, beside: Beside) -> Result<Rope, Refusal> {
        let (object, place) = self.rope_object()?;
        let theta = self.rope_theta.take();
        object.read(&place, Beside { theta, longest: self.max_position_embeddings, ..beside })
    }

    /// The rotary embeddings of full layers and of those with a window, the second without scaling. `local` is the base
    /// of the second; without one, both bases are the same.
    pub(crate) fn ropes(&mut self, absent: f64, local: Option<f64>) -> Result<Vec<Rope>, Refusal> {
        let (mut object, mut place) = self.rope_object()?;
        let mut of_windows = (HfRope::default(), String::new());
        if let Some(full) = object.full_attention.take() {
            let sliding = object.sliding_attention.take().map_or_else(HfRope::default, |it| *it);
            of_windows = (sliding, format!("{place}sliding_attention."));
            keys::none_left(&object, &place)?;
            (object, place) = (*full, format!("{place}full_attention."));
        }
        let (theta, longest) = (self.rope_theta.take(), self.max_position_embeddings);
        let full = Beside { theta, absent: Some(absent), longest, ..Beside::default() };
        let full = object.read(&place, full)?;
        let (sliding, place) = of_windows;
        let absent = local.or(Some(full.theta));
        let sliding = sliding.read(&place, Beside { absent, ..Beside::default() })?;
        if sliding.scaling != Scaling::None {
            return Err(expected("\"default\"").got("a scaling").at(place + "rope_type"));
        }
        if local.is_none() && sliding.theta != full.theta {
            let wanted = format!("{}, as in full layers", full.theta);
            return Err(expected(wanted).got(sliding.theta).at(place + "rope_theta"));
        }
        Ok(vec![full, sliding])
    }

    /// The object under one of its two names, and the prefix of its keys.
    fn rope_object(&mut self) -> Result<(HfRope, String), Refusal> {
        let (scaling, parameters) = (self.rope_scaling.take(), self.rope_parameters.take());
        match (scaling, parameters) {
            (Some(one), Some(two)) if one != two => {
                let wanted = "the same as rope_parameters, or null";
                Err(expected(wanted).got(shown(&one)).at("rope_scaling"))
            }
            (_, Some(object)) => Ok((object, "rope_parameters.".to_owned())),
            (object, None) => Ok((object.unwrap_or_default(), "rope_scaling.".to_owned())),
        }
    }
}

impl HfRope {
    fn read(mut self, place: &str, beside: Beside) -> Result<Rope, Refusal> {
        let (theta, share) = (self.rope_theta.take(), self.partial_rotary_factor.take());
        let theta = match (beside.theta, theta) {
            (Some(outside), Some(inside)) if outside != inside => {
                let wanted = format!("{outside}, as outside");
                return Err(expected(wanted).got(inside).at(format!("{place}rope_theta")));
            }
            (one, other) => required(one.or(other).or(beside.absent), "rope_theta", "a number")?,
        };
        let share = share.or(beside.share).unwrap_or(1.0);
        if beside.share.is_none_or(|it| it != 1.0 && it != share) && share != 1.0 {
            let wanted = format!("{:?}", beside.share.unwrap_or(1.0));
            return Err(expected(wanted).got(share).at(format!("{place}partial_rotary_factor")));
        }
        let scaling = self.scaling(beside).map_err(|refusal| inside(place, refusal))?;
        keys::none_left(&self, place)?;
        Ok(Rope { theta, scaling, share })
    }

    fn scaling(&mut self, beside: Beside) -> Result<Scaling, Refusal> {
        let (key, kind) = match (self.rope_type.take(), self.r#type.take()) {
            (Some(new), Some(old)) if new != old => {
                return Err(expected(shown(new)).got(shown(old)).at("type"));
            }
            (None, Some(kind)) => ("type", kind),
            (kind, _) => ("rope_type", kind.unwrap_or_else(|| "default".to_owned())),
        };
        let number = |value: Option<f64>, key: &str| required(value, key, "a number");
        let list = |value: Option<Vec<f64>>, key: &str| required(value, key, "a list of numbers");
        let size = |value: Option<usize>| required(value, ORIGINAL, "a positive integer");
        Ok(match kind.as_str() {
            // By a factor of 1 nothing is stretched.
            "default" | "linear" if self.factor.take_if(|it| *it == 1.0).is_some() => Scaling::None,
            "default" => Scaling::None,
            "linear" => Scaling::Linear(number(self.factor.take(), "factor")?),
            "llama3" => Scaling::Llama3(Llama3Scaling {
                factor: number(self.factor.take(), "factor")?,
                low_freq_factor: number(self.low_freq_factor.take(), "low_freq_factor")?,
                high_freq_factor: number(self.high_freq_factor.take(), "high_freq_factor")?,
                original_max_positions: size(self.original_max_position_embeddings.take())?,
            }),
            "yarn" => {
                let original = self.original_max_position_embeddings.take();
                Scaling::Yarn(YarnScaling {
                    factor: number(self.factor.take(), "factor")?,
                    beta_fast: self.beta_fast.take().unwrap_or(32.0),
                    beta_slow: self.beta_slow.take().unwrap_or(1.0),
                    attention_factor: self.attention_factor.take(),
                    original_max_positions: original
                        .or(beside.original)
                        .or(beside.longest)
                        .unwrap_or(1),
                })
            }
            "longrope" => {
                let original = self.original_max_position_embeddings.take();
                let original = size(original.or(beside.original))?;
                let stretch = beside.longest.map(|it| it as f64 / original as f64);
                let other = self.factor.take().filter(|factor| Some(*factor) != stretch);
                if let Some(factor) = other {
                    let wanted = format!("max_position_embeddings / {ORIGINAL}, or none");
                    return Err(expected(wanted).got(factor).at("factor"));
                }
                Scaling::Long(LongScaling {
                    short: list(self.short_factor.take(), "short_factor")?,
                    long: list(self.long_factor.take(), "long_factor")?,
                    original_max_positions: original,
                })
            }
            _ => {
                let wanted = "\"default\", \"linear\", \"llama3\", \"yarn\" or \"longrope\"";
                let hint = "without rope_scaling the model keeps its original context";
                return Err(expected(wanted).got(shown(kind)).at(key).hint(hint));
            }
        })
    }
}
