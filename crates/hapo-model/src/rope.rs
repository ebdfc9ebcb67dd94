//! The angles of the rotary embedding.

use crate::config::{Config, Llama3Scaling};

/// `[positions, head_dim]`: cosines, then sines, of half a head each. Frequencies and angles are
/// rounded to f32 where the published implementations round them.
pub(crate) fn angles(config: &Config, positions: usize) -> Vec<f32> {
    let half = config.head_dim / 2;
    let frequencies: Vec<f32> = (0..half)
        .map(|i| {
            let exponent = (2 * i) as f32 / config.head_dim as f32;
            let frequency = 1.0 / (config.rope.theta.powf(f64::from(exponent)) as f32);
            match config.rope.llama3 {
                Some(scaling) => stretched(frequency, scaling),
                None => frequency,
            }
        })
        .collect();
    let mut table = Vec::with_capacity(positions * config.head_dim);
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
