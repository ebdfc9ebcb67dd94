//! NVIDIA GPUs as a [`hapo_kernels::Device`].
//!
//! Purpose: the decoder's arithmetic on one GPU, with nothing to install for building: the driver,
//! NVRTC and cuBLASLt are found when a GPU is opened, and what is missing is an error that names it.
//! Products go to cuBLASLt; everything else is in `kernels/*.cu`, compiled by NVRTC for the GPU at hand
//! and kept on disk. [`CudaDevice`] is written over a [`Launcher`]: the GPU's is [`Driver`], and the tests
//! have one that runs the same kernels on the CPU, so that argument order, grids and offsets are
//! checked where there is no GPU.
//!
//! Price: one stream and no overlap of copies with work. What was checked and what was not is in `docs/cuda.md`.
//!
//! Bits: no atomics, and every reduction has an order fixed by shapes, so the same program gives the
//! same bits on the same GPU, as far as cuBLASLt's algorithms do (NVIDIA promises it of cuBLAS with one stream). They are not those of
//! the CPU, and a row of a product may have other bits next to other rows.

#![allow(clippy::too_many_arguments, reason = "an operation names its buffers one by one")]

mod compile;
mod device;
mod driver;
mod launch;
mod libraries;
mod operations;
mod plan;
mod products;
mod sources;
mod staging;
mod trace;
mod weight;

pub use compile::{Arch, Compiler, Form};
pub use device::{CudaBuf, CudaDevice, CudaTable, MatmulPrecision};
pub use driver::{Driver, open};
pub use launch::{Launch, Launcher, Matrix, Memory, Number, Product, Second, THREADS};
pub use sources::{Source, sources};
pub use weight::CudaWeight;

/// An NVIDIA GPU.
pub type Cuda = CudaDevice<Driver>;
