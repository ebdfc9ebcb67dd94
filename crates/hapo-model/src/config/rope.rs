//! The angles of the rotary embedding.

use super::Config;
use super::decoder::{Llama3Scaling, Rope, Scaling, YarnScaling};

/// `[positions, rotated]`: cosines, then sines, of half the numbers each, rounded to f32 where the published
/// implementations round them.
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
