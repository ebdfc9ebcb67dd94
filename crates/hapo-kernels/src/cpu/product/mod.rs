//! Matrix products: of f32 factors, with weights held in bf16, of bf16 factors.

pub(super) mod bf16;
pub(super) mod f32;
pub(super) mod kernel;
mod pack;
mod tile;

use crate::number_format::{Compute, NumberFormat};
use crate::{device_caps::DeviceCaps, weight::Held};

/// How a matrix lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// In f32, row by row.
    F32,
    /// In bf16, in panels of 32 columns that products of f32 widen.
    Panels,
    /// In bf16, in pairs of inputs that products of bf16 read.
    Pairs,
    /// In pairs, with tails that complete the f32.
    Split,
}

impl Form {
    /// The form for a purpose on a device of these caps.
    pub(crate) fn of(caps: &DeviceCaps, held: Held) -> Self {
        match (caps.compute, held) {
            (_, Held::Plain) => Self::F32,
            (_, Held::Pair) if caps.is_cpu() => Self::F32,
            (Compute::Bf16, Held::Frozen(NumberFormat::Bf16)) => Self::Pairs,
            (Compute::Bf16, _) => Self::Split,
            (_, Held::Frozen(NumberFormat::Bf16)) => Self::Panels,
            _ => Self::F32,
        }
    }

    /// Numbers of f32 in each of its buffers.
    pub(crate) fn words(self, [inputs, outputs]: [usize; 2]) -> Vec<usize> {
        match self {
            Self::F32 => vec![inputs * outputs],
            Self::Panels => vec![kernel::panel_words(inputs, outputs)],
            Self::Pairs => vec![bf16::words(inputs, outputs)],
            Self::Split => vec![bf16::words(inputs, outputs); 2],
        }
    }

    /// The form of a [copy](super::CpuWeight::copy_of): the part that products read.
    pub(crate) fn copied(self) -> Self {
        if self == Self::Split { Self::Pairs } else { self }
    }

    /// Numbers of the copy that a product of `[rows, steps]` keeps.
    pub(crate) fn product_copy(self, [rows, steps]: [usize; 2]) -> usize {
        match self {
            Self::F32 | Self::Panels => 0,
            Self::Pairs | Self::Split => bf16::copied(rows, steps),
        }
    }
}
