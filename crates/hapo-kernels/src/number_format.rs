//! The number formats of buffers and of products.

use serde::{Deserialize, Serialize};

/// How the optimiser's moments, or keys and values, are held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NumberFormat {
    /// f32.
    #[default]
    F32,
    /// bf16: two numbers in the place of one of a buffer, the first in the low half.
    Bf16,
}

impl NumberFormat {
    /// Both by name.
    pub const ALL: &'static [(&'static str, Self)] = &[("f32", Self::F32), ("bf16", Self::Bf16)];

    /// Bytes of one.
    pub fn bytes(self) -> usize {
        if self == Self::F32 { 4 } else { 2 }
    }

    /// Length, in f32, of a buffer for `numbers` elements.
    pub fn words(self, numbers: usize) -> usize {
        (numbers * self.bytes()).div_ceil(size_of::<f32>())
    }
}

/// The format that both factors of a matrix product are rounded to; sums are f32 in each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compute {
    /// f32: nothing is rounded.
    #[default]
    F32,
    /// f32 with 10 bits of mantissa, on the tensor cores of GPUs.
    Tf32,
    /// bf16.
    Bf16,
}

impl Compute {
    /// All of them by name.
    pub const ALL: &'static [(&'static str, Self)] =
        &[("f32", Self::F32), ("tf32", Self::Tf32), ("bf16", Self::Bf16)];

    /// Its name in recipes and on the command line.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].0
    }
}

impl std::fmt::Display for Compute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
