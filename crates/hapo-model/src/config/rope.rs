//! The angles of the rotary embedding.

use crate::config::{Config, Llama3Scaling};

/// Angle per position of every pair of features, `[head_dim / 2]`, rounded to f32 where the published
/// implementations round them.
pub(crate) fn rope_frequencies(config: &Config) -> Vec<f32> {
    (0..config.head_dim / 2)
        .map(|i| {
            let exponent = (2 * i) as f32 / config.head_dim as f32;
            let frequency = 1.0 / (config.rope.theta.powf(f64::from(exponent)) as f32);
            match config.rope.llama3 {
                Some(scaling) => stretched(frequency, scaling),
                None => frequency,
            }
        })
        .collect()
}

/// `[positions, head_dim]`: cosines, then sines, of half a head each.
pub(crate) fn angles(frequencies: &[f32], positions: usize) -> Vec<f32> {
    let mut table = Vec::with_capacity(positions * 2 * frequencies.len());
    for position in 0..positions {
        let angle = |f: &f32| f64::from(position as f32 * f);
        table.extend(frequencies.iter().map(|f| angle(f).cos() as f32));
        table.extend(frequencies.iter().map(|f| angle(f).sin() as f32));
    }
    table
}

/// Llama 3's stretch: low frequencies are divided by the factor, high ones kept, those between
/// interpolated.
fn stretched(frequency: f32, scaling: Llama3Scaling) -> f32 {
    let frequency = f64::from(frequency);
    let original = scaling.original_max_positions as f64;
    let wavelength = std::f64::consts::TAU / frequency;
    let result = if wavelength > original / scaling.low_freq_factor {
        frequency / scaling.factor
    } else if wavelength < original / scaling.high_freq_factor {
        frequency
    } else {
        let smooth = (original / wavelength - scaling.low_freq_factor)
            / (scaling.high_freq_factor - scaling.low_freq_factor);
        (1.0 - smooth) * frequency / scaling.factor + smooth * frequency
    };
    result as f32
}
