//! The number formats of weights on disk.
//!
//! Weights are f32 in memory whatever the file holds; reading bf16 and f16 is exact, writing rounds
//! to the nearest value, ties to even.

use std::fmt;

use half::slice::HalfFloatSliceExt;
use serde::{Deserialize, Serialize};

/// A number format of safetensors files that this project reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// IEEE 754 single precision, 4 bytes.
    F32,
    /// The upper half of single precision, 2 bytes.
    Bf16,
    /// IEEE 754 half precision, 2 bytes; its largest finite value is 65504.
    F16,
}

impl Dtype {
    pub fn size(self) -> usize {
        if self == Self::F32 { 4 } else { 2 }
    }

    /// Its names in recipes, in `config.json` and in a safetensors header.
    fn names(self) -> [&'static str; 3] {
        match self {
            Self::F32 => ["f32", "float32", "F32"],
            Self::Bf16 => ["bf16", "bfloat16", "BF16"],
            Self::F16 => ["f16", "float16", "F16"],
        }
    }

    pub fn torch_name(self) -> &'static str {
        self.names()[1]
    }

    pub fn safetensors_name(self) -> &'static str {
        self.names()[2]
    }

    pub(crate) fn from_torch_name(name: &str) -> Option<Self> {
        ALL.into_iter().find(|dtype| dtype.torch_name() == name)
    }

    pub(crate) fn from_safetensors_name(name: &str) -> Option<Self> {
        ALL.into_iter().find(|dtype| dtype.safetensors_name() == name)
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.names()[0])
    }
}

const ALL: [Dtype; 3] = [Dtype::F32, Dtype::Bf16, Dtype::F16];

/// Appends the little-endian numbers of `bytes`, whose length is a multiple of `dtype.size()`.
pub(crate) fn decode(dtype: Dtype, bytes: &[u8], values: &mut Vec<f32>) {
    debug_assert_eq!(bytes.len() % dtype.size(), 0, "whole numbers only");
    let (wide, words) = (bytes.as_chunks::<4>().0.iter(), bytes.as_chunks::<2>().0.iter());
    // A bf16 is the upper half of an f32: no rounding, and NaN payloads survive.
    let upper = |word: &[u8; 2]| f32::from_bits(u32::from(u16::from_le_bytes(*word)) << 16);
    match dtype {
        Dtype::F32 => values.extend(wide.map(|word| f32::from_le_bytes(*word))),
        Dtype::Bf16 => values.extend(words.map(upper)),
        Dtype::F16 => values.extend(words.map(|word| half::f16::from_le_bytes(*word).to_f32())),
    }
}

/// Replaces the contents of `bytes` by `values`, little-endian, rounded to the nearest number of
/// `dtype`, ties to even. A value beyond the format's range becomes an infinity.
pub(crate) fn encode(dtype: Dtype, values: &[f32], bytes: &mut Vec<u8>) {
    bytes.clear();
    bytes.resize(values.len() * dtype.size(), 0);
    match dtype {
        Dtype::F32 => fill(bytes, values.iter().map(|it| it.to_le_bytes())),
        Dtype::Bf16 => {
            fill(bytes, values.iter().map(|it| half::bf16::from_f32(*it).to_le_bytes()));
        }
        Dtype::F16 => {
            let mut narrow = vec![half::f16::ZERO; values.len()];
            narrow.convert_from_f32_slice(values);
            fill(bytes, narrow.iter().map(|it| it.to_le_bytes()));
        }
    }
}

fn fill<const N: usize>(bytes: &mut [u8], words: impl Iterator<Item = [u8; N]>) {
    bytes.as_chunks_mut::<N>().0.iter_mut().zip(words).for_each(|(to, word)| *to = word);
}

#[cfg(test)]
mod tests {
    use super::{Dtype, decode, encode};

    fn through(dtype: Dtype, values: &[f32]) -> Vec<f32> {
        let (mut bytes, mut back) = (Vec::new(), Vec::new());
        encode(dtype, values, &mut bytes);
        assert_eq!(bytes.len(), values.len() * dtype.size());
        decode(dtype, &bytes, &mut back);
        back
    }

    #[test]
    fn bf16_rounds_to_nearest_and_ties_to_even() {
        // bf16 has 8 significant bits: between 1 and 2 its step is 2^-7.
        let step = 1.0 / 128.0;
        assert_eq!(
            through(
                Dtype::Bf16,
                &[
                    1.0 + 0.5 * step,
                    1.0 + 1.5 * step,
                    1.0 + 0.5 * step + f32::EPSILON,
                    -(1.0 + 0.5 * step),
                    1.0 + 2.49 * step,
                ]
            ),
            [1.0, 1.0 + 2.0 * step, 1.0 + step, -1.0, 1.0 + 2.0 * step]
        );
    }

    #[test]
    fn f16_rounds_to_nearest_and_ties_to_even() {
        let step = 1.0 / 1024.0;
        assert_eq!(
            through(Dtype::F16, &[1.0 + 0.5 * step, 1.0 + 1.5 * step, 65504.0, 65520.0, 6e-8]),
            [1.0, 1.0 + 2.0 * step, 65504.0, f32::INFINITY, 2.0_f32.powi(-24)]
        );
    }

    #[test]
    fn every_bf16_and_f16_survives_a_round_trip() {
        for dtype in [Dtype::Bf16, Dtype::F16] {
            let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
            let (mut values, mut bytes) = (Vec::new(), Vec::new());
            decode(dtype, &all, &mut values);
            encode(dtype, &values, &mut bytes);
            for (i, value) in values.iter().enumerate().filter(|(_, v)| !v.is_nan()) {
                assert_eq!(bytes[2 * i..2 * i + 2], all[2 * i..2 * i + 2], "{dtype} {value}");
            }
        }
    }
}
