//! The parts in which decoders of one size differ, and the angles of the rotary embedding.

use hapo_kernels::Activation;
use serde::Serialize;

use super::Config;

#[derive(Clone, Debug, PartialEq)]
pub struct Decoder {
    /// q, k and v have a bias.
    pub qkv_bias: bool,
    /// RMS norm of q and k before the rotation.
    pub qk_norm: Option<QkNorm>,
    pub norms: Norms,
    /// Norms multiply by 1 + w.
    pub unit_offset: bool,
    pub activation: Activation,
    pub multipliers: Multipliers,
    pub ropes: Vec<Rope>,
    /// The kinds of the layers, in turn: as many as there are layers, or a number of them that repeats.
    pub layers: Vec<LayerKind>,
    /// A folder has q, k and v in one matrix, and gate and up in one.
    pub is_fused: bool,
}

impl Decoder {
    /// That of Llama: no bias, a norm before each block, all layers alike.
    pub fn plain(rope: Rope) -> Self {
        Self {
            qkv_bias: false,
            qk_norm: None,
            norms: Norms::Before,
            unit_offset: false,
            activation: Activation::Silu,
            multipliers: Multipliers::default(),
            ropes: vec![rope],
            layers: vec![LayerKind { window: None, rope: Some(0) }],
            is_fused: false,
        }
    }

    #[must_use]
    pub fn with_window(self, window: Option<usize>) -> Self {
        Self { layers: vec![LayerKind { window, rope: Some(0) }], ..self }
    }

    pub fn kind(&self, layer: usize) -> LayerKind {
        self.layers[layer % self.layers.len()]
    }

    pub fn rope_of(&self, layer: usize) -> Option<&Rope> {
        self.kind(layer).rope.map(|it| &self.ropes[it])
    }

    /// What norms add to their weights.
    pub(crate) fn norm_offset(&self) -> f32 {
        if self.unit_offset { 1.0 } else { 0.0 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkNorm {
    /// Each head by itself.
    Head,
    /// All heads of a row together.
    Row,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norms {
    /// `x + block(norm(x))`.
    Before,
    /// `x + norm(block(x))`.
    After,
    /// `x + norm(block(norm(x)))`.
    Both,
}

impl Norms {
    /// Published names: before and after attention, before and after the MLP.
    pub(crate) fn names(self) -> [Option<&'static str>; 4] {
        let [input, attention, before_mlp, mlp] = [
            "input_layernorm.weight",
            "post_attention_layernorm.weight",
            "pre_feedforward_layernorm.weight",
            "post_feedforward_layernorm.weight",
        ]
        .map(Some);
        match self {
            Self::Before => [input, None, attention, None],
            Self::After => [None, attention, None, mlp],
            Self::Both => [input, attention, before_mlp, mlp],
        }
    }

    pub(crate) fn are_after(self) -> bool {
        self != Self::Before
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Multipliers {
    pub embedding: f64,
    /// Of the scores, where it is not 1/√`head_dim`.
    pub attention: Option<f64>,
    /// Of a block's output before it is added.
    pub residual: f64,
    pub logits: f64,
}

impl Default for Multipliers {
    fn default() -> Self {
        Self { embedding: 1.0, attention: None, residual: 1.0, logits: 1.0 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerKind {
    /// Positions that a token reads at most, its own included.
    pub window: Option<usize>,
    /// Which of the decoder's rotary embeddings it has.
    pub rope: Option<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Base of the geometric frequency series.
    pub theta: f64,
    pub scaling: Scaling,
    /// The share of a head that is turned.
    pub share: f64,
}

impl Rope {
    pub fn of(theta: f64) -> Self {
        Self { theta, scaling: Scaling::None, share: 1.0 }
    }

    /// Leading numbers of a head of some width that are turned.
    pub(crate) fn rotated(&self, width: usize) -> usize {
        (width as f64 * self.share) as usize
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Scaling {
    None,
    /// `linear`: all frequencies are divided by a factor.
    Linear(f64),
    Llama3(Llama3Scaling),
    Yarn(YarnScaling),
    Long(LongScaling),
}

/// `rope_type = "llama3"`: low frequencies are divided by `factor`, high ones kept, those between interpolated.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Llama3Scaling {
    /// Stretch of the lowest frequencies.
    pub factor: f64,
    /// Wavelengths above `original_max_positions / low_freq_factor` are stretched in full.
    pub low_freq_factor: f64,
    /// Wavelengths below `original_max_positions / high_freq_factor` are kept.
    pub high_freq_factor: f64,
    /// Context length of the model before stretching.
    #[serde(rename = "original_max_position_embeddings")]
    pub original_max_positions: usize,
}

/// `rope_type = "yarn"` (<https://arxiv.org/abs/2309.00071>): the same by a ramp over a head, and a factor on q and k.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct YarnScaling {
    pub factor: f64,
    /// Frequencies that turn more often than this in the original context are kept.
    pub beta_fast: f64,
    /// Frequencies that turn less often are divided by `factor`.
    pub beta_slow: f64,
    /// The factor on cosines and sines; 0.1 · ln `factor` + 1 where the file has none.
    pub attention_factor: Option<f64>,
    #[serde(rename = "original_max_position_embeddings")]
    pub original_max_positions: usize,
}

/// `rope_type = "longrope"` (<https://arxiv.org/abs/2402.13753>): every frequency has a divisor, of two sets.
#[derive(Clone, Debug, PartialEq)]
pub struct LongScaling {
    /// Divisors for contexts of at most `original_max_positions`.
    pub short: Vec<f64>,
    pub long: Vec<f64>,
    pub original_max_positions: usize,
}

/// `[positions, rotated]`: cosines, then sines, of half the numbers each, rounded to f32 where published code rounds.
pub(crate) fn angles(config: &Config, rope: &Rope, positions: usize) -> Vec<f32> {
    let (frequencies, factor) = frequencies(config, rope, positions);
    let mut table = Vec::with_capacity(positions * 2 * frequencies.len());
    for position in 0..positions {
        let angle = |f: &f32| f64::from(position as f32 * f);
        table.extend(frequencies.iter().map(|f| libm::cos(angle(f)) as f32 * factor));
        table.extend(frequencies.iter().map(|f| libm::sin(angle(f)) as f32 * factor));
    }
    table
}

/// Angle per position of every pair of numbers that is turned, and the factor on their cosines and sines. Of the two
/// sets of longrope, sequences of up to `positions` tokens choose.
fn frequencies(config: &Config, rope: &Rope, positions: usize) -> (Vec<f32>, f32) {
    let width = rope.rotated(config.head_dim);
    let wavelength =
        |i: usize| libm::pow(rope.theta, f64::from((2 * i) as f32 / width as f32)) as f32;
    let all = (0..width / 2).map(|i| 1.0 / wavelength(i));
    match &rope.scaling {
        Scaling::None => (all.collect(), 1.0),
        Scaling::Linear(factor) => (all.map(|it| it / *factor as f32).collect(), 1.0),
        Scaling::Llama3(it) => {
            let stretched = |frequency| stretched(f64::from(frequency), *it) as f32;
            (all.map(stretched).collect(), 1.0)
        }
        Scaling::Yarn(it) => {
            let ramp = yarn_ramp(*it, rope.theta, width);
            let slow = |i| 1.0 / (it.factor as f32 * wavelength(i));
            let all = all.enumerate().map(|(i, fast)| {
                let kept = 1.0 - ramp(i);
                slow(i) * (1.0 - kept) + fast * kept
            });
            let factor = it.attention_factor.unwrap_or(0.1 * libm::log(it.factor) + 1.0);
            (all.collect(), factor as f32)
        }
        Scaling::Long(it) => {
            let original = it.original_max_positions;
            let divisors = if positions > original { &it.long } else { &it.short };
            let all = divisors.iter().enumerate().map(|(i, by)| 1.0 / (*by as f32 * wavelength(i)));
            (all.collect(), long_factor(original, config.max_positions) as f32)
        }
    }
}

/// longrope's factor on cosines and sines.
pub(crate) fn long_factor(original: usize, positions: usize) -> f64 {
    let stretch = positions as f64 / original as f64;
    (1.0 + libm::log(stretch.max(1.0)) / libm::log(original as f64)).sqrt()
}

/// How far a pair's frequency is divided by `YaRN`'s factor, from 0 to 1.
fn yarn_ramp(it: YarnScaling, theta: f64, width: usize) -> impl Fn(usize) -> f32 {
    let pair_of = |turns: f64| {
        let wavelength = it.original_max_positions as f64 / (turns * std::f64::consts::TAU);
        width as f64 * libm::log(wavelength) / (2.0 * libm::log(theta))
    };
    let low = pair_of(it.beta_fast).floor().max(0.0);
    let high = pair_of(it.beta_slow).ceil().min(width as f64 - 1.0);
    let high = if low == high { high + 0.001 } else { high };
    move |i| ((i as f32 - low as f32) / (high - low) as f32).clamp(0.0, 1.0)
}

/// Llama 3's stretch: low frequencies are divided by the factor, high ones kept, those between interpolated.
pub(crate) fn stretched(frequency: f64, scaling: Llama3Scaling) -> f64 {
    let original = scaling.original_max_positions as f64;
    let wavelength = std::f64::consts::TAU / frequency;
    if wavelength > original / scaling.low_freq_factor {
        frequency / scaling.factor
    } else if wavelength < original / scaling.high_freq_factor {
        frequency
    } else {
        let smooth = (original / wavelength - scaling.low_freq_factor)
            / (scaling.high_freq_factor - scaling.low_freq_factor);
        (1.0 - smooth) * frequency / scaling.factor + smooth * frequency
    }
}
