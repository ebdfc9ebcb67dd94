//! The decoder's arithmetic, forward and backward, on a [`Device`].
//!
//! Purpose: one trait of forty functions over flat buffers and weight matrices, so that everything above
//! this crate is written once. [`Cpu`] is its first implementation: matrix products by the `gemm`
//! crate, everything else as small fused kernels with a written backward. [`Counting`] adds up the bytes that a device
//! would take, and computes nothing.
//!
//! Price: there is no tape and no autodiff; a new operation needs a derivative written by hand. Shapes inside a device
//! are invariants (checked by assertions), not errors: the crate above answers with typed errors.
//!
//! Bits: every result is independent of the number of threads, because every output element is
//! reduced in an order fixed by the shapes alone. On one instruction set, a row of a product has the
//! same bits whatever the number of other rows, so decoding one token and re-reading it in
//! training agree bit for bit. Bits may differ between instruction sets (AVX-512 and AVX2 agree in
//! products, the portable path has no fused multiply-add).
//!
//! [`Compute`] is the rounding of products' factors. In bf16 the CPU holds weights as the numbers that products read
//! plus tails, together exactly f32; everything but products stays f32.

#![allow(clippy::too_many_arguments, reason = "an operation names its buffers one by one")]
#![expect(
    clippy::inline_always,
    reason = "a kernel's parts have its instructions only when inlined into it"
)]
#![expect(
    clippy::needless_range_loop,
    reason = "kernels index several arrays of one length; that form is what vectorises"
)]

mod compute;
mod counting;
mod cpu;
mod device;
mod draw;
mod error;
mod habits;
mod isa;
mod lanes;
mod moments;
mod number_format;
mod row;
mod shapes;
mod span;
mod tally;
mod weight;

pub use compute::Compute;
pub use counting::{CountedBuf, CountedWeight, Counting};
pub use cpu::{Cpu, CpuBuf, CpuWeight};
pub use device::Device;
pub use draw::draw;
pub use error::DeviceError;
pub use habits::{CPU_LOGIT_BYTES, GPU_LOGIT_BYTES, Habits, Machine};
pub use isa::{Isa, multiplies_bf16};
pub use moments::MomentsMut;
pub use number_format::NumberFormat;
pub use row::{RowStats, entropy, exp, exp_sum, log_prob, max, row_stats};
pub use shapes::{
    Accumulate, Activation, AdamW, AdamWFactors, AttentionShape, CacheLayer, CacheRow, DrawRow,
    DrawnToken, EmbeddingLayout, HeadPart, HeadTarget, MatShape, PAGE, SegmentRow, TableItem,
};
pub use span::{Buffer, Span, SpanMut};
pub use tally::Tally;
pub use weight::{Heads, Held, Matrix, Numbers, NumbersMut, Output, Placed};
