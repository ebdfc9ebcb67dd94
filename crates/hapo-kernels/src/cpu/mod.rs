//! The CPU as a [`Device`](crate::Device): a pool of threads, buffers on cache lines, weights in forms of its own.
//!
//! Purpose: products in tiles, fused kernels on blocks of rows. Tiles and blocks depend on shapes alone.

mod attention;
mod buffer;
mod convert;
mod device;
mod embedding;
mod fill;
mod gated;
mod head;
mod memory;
mod norm;
mod peak;
mod pool;
mod product;
mod rope;
mod update;
mod weight;

pub use buffer::CpuBuf;
pub use convert::nearest_bf16;
pub use pool::Cpu;
pub(crate) use product::Form;
pub use weight::CpuWeight;
