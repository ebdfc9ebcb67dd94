//! How a device holds numbers and how much it takes at once, as plain data.
//!
//! Buffers are laid out by it, on a device and in a plan for one that is not here.

use crate::number_format::{Compute, NumberFormat};
use crate::shapes::AttentionShape;

/// Bytes of logits that the CPU holds at once.
pub const CPU_LOGIT_BYTES: usize = 128 << 20;

/// Bytes of logits that a GPU holds at once: fewer chunks read and write the gradient of the head's matrix less often.
pub const GPU_LOGIT_BYTES: usize = 1 << 30;

/// The kind of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// A CPU.
    Cpu {
        /// Threads that blocks of rows are cut for.
        workers: usize,
    },
    /// A GPU.
    Gpu,
}

/// The caps of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceCaps {
    /// Its kind.
    pub machine: Machine,
    /// The rounding of products' factors.
    pub compute: Compute,
    /// Bytes of logits that are best held at once.
    pub logit_bytes: usize,
    /// Freed memory is cheap to take again, so idle buffers are given back.
    pub lends_memory: bool,
}

impl DeviceCaps {
    /// Those of a CPU.
    pub fn cpu(compute: Compute, workers: usize) -> Self {
        let machine = Machine::Cpu { workers };
        Self { machine, compute, logit_bytes: CPU_LOGIT_BYTES, lends_memory: false }
    }

    /// Those of a GPU.
    pub fn gpu(compute: Compute) -> Self {
        let machine = Machine::Gpu;
        Self { machine, compute, logit_bytes: GPU_LOGIT_BYTES, lends_memory: true }
    }

    /// True on a CPU.
    pub fn is_cpu(&self) -> bool {
        matches!(self.machine, Machine::Cpu { .. })
    }

    /// True where matrices, their gradients and moments are held as model folders have them, `[outputs, inputs]`, so that
    /// those that multiply the same numbers lie one below the other; a CPU holds factors of products transposed.
    pub fn holds_published(&self) -> bool {
        !self.is_cpu()
    }

    /// How activations and gradients are held that nothing but products and the operations between them reads.
    pub fn factors(&self) -> NumberFormat {
        match (self.machine, self.compute) {
            (Machine::Gpu, Compute::Bf16) => NumberFormat::Bf16,
            _ => NumberFormat::F32,
        }
    }

    /// Numbers from one row to the next of rows of `width` with `room` behind each: a CPU needs no room, and on a GPU
    /// rows with some begin on boundaries of eight numbers.
    pub fn row_stride(&self, width: usize, room: usize) -> usize {
        if self.is_cpu() || room == 0 { width } else { (width + room).next_multiple_of(8) }
    }

    /// Rows of a step of decoding that has `rows` sequences: a GPU adds copies of the first, whose results nobody reads, up to
    /// a multiple of eight, so that it sees few numbers of rows.
    pub fn decoded_rows(&self, rows: usize) -> usize {
        if self.is_cpu() || rows <= 8 { rows } else { rows.next_multiple_of(8) }
    }

    /// How attention's activations and gradients are held, so that a cache that holds keys and values so loses nothing.
    pub fn attention(&self, shape: AttentionShape) -> NumberFormat {
        if shape.fits_tensor_cores() { self.factors() } else { NumberFormat::F32 }
    }

    /// Into how many blocks independent rows are best cut when every block runs the whole stack by itself through
    /// [`Device::each`](crate::Device::each), given the size of the weights. Results do not depend on it.
    pub fn blocks(&self, rows: usize, weight_bytes: usize) -> usize {
        // Blocks read the weights once each: worth it while these stay in the caches. Up to 48 rows a
        // product reads the weights in place instead of packing them first.
        const CACHED: usize = 24 << 20;
        const FEW: usize = 12;
        const MANY: usize = 48;
        let Machine::Cpu { workers } = self.machine else { return 1 };
        if weight_bytes > CACHED {
            return 1;
        }
        let least = rows.div_ceil(MANY);
        let most = least.next_multiple_of(workers).min(rows.div_ceil(FEW));
        (rows / FEW).clamp(1, workers).max(most)
    }
}
