//! The decoder's arithmetic, forward and backward, on a [`Device`].
//!
//! Purpose: one trait of forty functions over flat buffers and weight matrices, so that everything above
//! this crate is written once. [`Cpu`] is its first implementation: matrix products by
//! micro-kernels of its own, everything else as small fused kernels with a written backward. [`Counting`] adds up the bytes that a device
//! would take, and computes nothing.
//!
//! Price: there is no tape and no autodiff; a new operation needs a derivative written by hand. Shapes inside a device
//! are invariants (checked by assertions), not errors: the crate above answers with typed errors.
//!
//! Bits: every output element is reduced in one order, which is fixed by the shapes alone ([`ARITHMETIC`]): products in
//! chains of fused multiply-adds, sums over a row in sixteen lanes and one tree. So a result depends neither on the
//! instruction set nor on the number of threads, and a row of a product has the same bits whatever the other rows:
//! decoding one token and reading it again in training agree. Products of bf16 factors have an instruction's own
//! rounding, on the processors that have it.
//!
//! [`Compute`] is the rounding of products' factors. In bf16 the CPU holds weights as the numbers that products read
//! plus tails, together exactly f32; everything but products stays f32.

#![warn(missing_docs)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(clippy::too_many_arguments, reason = "an operation names its buffers one by one")]
#![expect(
    clippy::inline_always,
    reason = "a kernel's parts have its instructions only when inlined into it"
)]
#![expect(
    clippy::needless_range_loop,
    reason = "kernels index several arrays of one length; that form is what vectorises"
)]

mod counting;
mod cpu;
mod device;
mod device_caps;
mod draw;
mod error;
mod isa;
mod lanes;
mod memory_counter;
mod number_format;
mod row;
mod shapes;
mod span;
mod weight;

/// The name of the order and of the rounding of all sums on a CPU: another name, other bits. docs/compute.md defines it.
pub const ARITHMETIC: &str = "chains of 512";

pub use counting::{CountedBuf, CountedWeight, Counting};
pub use cpu::{Cpu, CpuBuf, CpuWeight, nearest_bf16};
pub use device::{
    Attention, AttentionDecode, AttentionGrad, CacheAppend, Device, HeadGrad, HeadStats, RmsNorm,
    RmsNormGrad, Rotation,
};
pub use device_caps::{CPU_LOGIT_BYTES, DeviceCaps, GPU_LOGIT_BYTES, Machine};
pub use draw::draw;
pub use error::{DeviceError, is_out_of_memory};
pub use isa::{Isa, multiplies_bf16};
pub use memory_counter::MemoryCounter;
pub use number_format::{Compute, NumberFormat};
pub use row::{RowStats, entropy, exp, exp_sum, log_prob, max, row_stats};
pub use shapes::{
    Accumulate, Activation, AdamW, AdamWFactors, AttentionShape, BufferSize, CacheLayer, CacheRow,
    DrawRow, DrawnToken, EmbeddingLayout, HeadPart, HeadTarget, MatShape, MomentsMut, NO_CELL,
    PAGE, SegmentRow, TableItem,
};
pub use span::{Buffer, Span, SpanMut};
pub use weight::{
    Beside, Heads, Held, Matrix, Numbers, NumbersMut, Output, Pair, Placed, Published, ReadRows,
};
