//! How a matrix lies in memory.

use super::product::bf16;
use super::product::kernel::panel_words;
use crate::device_caps::DeviceCaps;
use crate::number_format::{Compute, NumberFormat};
use crate::shapes::MatShape;
use crate::weight::Held;

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
            Self::Panels => vec![panel_words(inputs, outputs)],
            Self::Pairs => vec![bf16::words(inputs, outputs)],
            Self::Split => vec![bf16::words(inputs, outputs); 2],
        }
    }

    /// The form of a [copy](super::CpuWeight::copy_of): the part that products read.
    pub(crate) fn copied(self) -> Self {
        if self == Self::Split { Self::Pairs } else { self }
    }

    /// Numbers of the copy that a product keeps.
    pub(crate) fn product_copy(self, shape: MatShape) -> usize {
        match self {
            Self::F32 | Self::Panels => 0,
            Self::Pairs | Self::Split => bf16::copied(shape.rows, shape.inputs),
        }
    }

    /// The same of the gradient by the input.
    pub(crate) fn input_grad_copy(self, shape: MatShape) -> usize {
        match self {
            Self::F32 | Self::Panels => 0,
            Self::Pairs | Self::Split => bf16::copied(shape.rows, shape.outputs),
        }
    }

    /// The same of the gradient by the weights, which knows no form.
    pub(crate) fn weight_grad_copy(compute: Compute, shape: MatShape) -> usize {
        match compute {
            Compute::Bf16 => bf16::copied(shape.inputs, shape.rows),
            _ => 0,
        }
    }
}
