//! The number format of a buffer.

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
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }

    /// Length, in f32, of a buffer for `numbers` elements.
    pub fn words(self, numbers: usize) -> usize {
        (numbers * self.bytes()).div_ceil(size_of::<f32>())
    }
}
