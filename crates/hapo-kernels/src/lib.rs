//! The decoder's arithmetic, forward and backward, on a [`Device`].
//!
//! Purpose: one trait of about twenty operations over flat `f32` buffers, so that everything above
//! this crate is written once. [`Cpu`] is its first implementation: matrix products by the `gemm`
//! crate, everything else as small fused kernels with a written backward.
//!
//! Price: there is no tape and no autodiff; whoever adds an operation writes its derivative. Shapes
//! inside a device are invariants (checked by assertions), not errors: the boundary that answers with
//! typed errors is the crate above.
//!
//! Bits: every result is independent of the number of threads, because every output element is
//! reduced in an order fixed by the shapes alone. On one instruction set, a row of a product has the
//! same bits whatever the number of other rows, so decoding one token and re-reading it in
//! training agree bit for bit. Bits may differ between instruction sets (AVX-512 and AVX2 agree in
//! products, the portable path has no fused multiply-add).
//!
//! [`Compute`] says what the factors of products are rounded to. In bf16 the CPU holds weights as the numbers that
//! products read and tails, together exactly f32, and everything but products stays f32.

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
mod cpu;
mod device;
mod draw;
mod isa;
mod lanes;
mod moments;
mod number_format;
mod row;

pub use compute::Compute;
pub use cpu::{Cpu, CpuBuf, TracedCall};
pub use device::{
    Accumulate, AdamW, AdamWFactors, AttentionShape, Buffer, CPU_LOGIT_BYTES, CacheLayer, CacheRow,
    Device, DeviceError, DrawRow, DrawnToken, EmbeddingLayout, GPU_LOGIT_BYTES, HeadPart,
    HeadTarget, MatShape, PAGE, SegmentRow, Span, SpanMut, TableItem,
};
pub use draw::draw;
pub use isa::{Isa, multiplies_bf16};
pub use moments::MomentsMut;
pub use number_format::NumberFormat;
pub use row::{RowStats, entropy, exp, exp_sum, log_prob, log_sum_exp, max, row_stats};
