//! NVIDIA GPUs as a [`hapo_kernels::Device`].
//!
//! Purpose: the decoder's arithmetic on one GPU, with nothing to install for building. The driver, cuBLASLt and, where
//! no images ship, NVRTC are found when a GPU is opened; an error names a missing one. Products go to cuBLASLt;
//! everything else is in `kernels/*.cu`, compiled by NVRTC beforehand or at the first start. [`CudaDevice`] is written over a
//! [`Launcher`]. The GPU's is [`Driver`]; the tests have one that runs the same kernels on the CPU, which checks
//! argument order, grids and offsets without a GPU.
//!
//! Price: one stream and no overlap of copies with work. `docs/cuda.md` lists what was tested.
//!
//! Bits: no atomics, and shapes fix the order of every reduction. The same program gives the same bits on the same GPU,
//! as far as cuBLASLt's algorithms do (NVIDIA promises it of cuBLAS with one stream). They differ from the CPU's bits,
//! and a row of a product may change with the rows next to it.

#![allow(clippy::too_many_arguments, reason = "an operation names its buffers one by one")]

mod compile;
mod device;
mod driver;
mod images;
mod launch;
mod libraries;
mod operations;
mod plan;
#[cfg(test)]
mod probes;
mod products;
mod repeats;
mod sources;
mod staging;
mod trace;
mod weight;

pub use compile::{Arch, Compiler, Form};
pub use device::{CudaBuf, CudaDevice, CudaTable};
pub use driver::{Driver, open};
pub use images::{ARCHS, write_images};
pub use launch::{Launcher, Matrix, Memory, Operation, Product, THREADS};
pub use products::Refused;
pub use sources::{Source, sources};
pub use weight::CudaWeight;

pub type Cuda = CudaDevice<Driver>;
