//! The machine below a device: memory, kernels and products.

use std::fmt::Debug;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hapo_kernels::{Compute, DeviceError};

/// The lock's contents, also where another thread panicked.
pub(crate) fn lock<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) type Result<T, E = DeviceError> = std::result::Result<T, E>;

/// Threads of every block.
pub const THREADS: u32 = 256;

/// An operation with all that it depends on but a kernel's arguments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operation {
    /// A kernel on a grid of blocks of [`THREADS`] threads, each with bytes of shared memory; and how many arguments.
    Launch {
        kernel: &'static str,
        grid: [u32; 3],
        shared: u32,
        args: usize,
    },
    /// No matrix is empty.
    Product(Product),
    /// Device to device; the ranges do not overlap.
    Copy {
        from: u64,
        to: u64,
        bytes: usize,
    },
    Zero {
        at: u64,
        bytes: usize,
    },
}

/// A matrix by columns, `stride` elements apart, as BLAS has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    pub address: u64,
    pub stride: usize,
    pub transposed: bool,
}

/// `out [m, n] = left [m, k] · right [k, n]`, column-major; plus the old `out` if `add`, plus a bias `[m]` in every
/// column. Sums are in f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Product {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub number: Compute,
    pub left: Matrix,
    pub right: Matrix,
    pub factor: f32,
    /// Add to `out` instead of overwriting it.
    pub add: bool,
    /// Add up the inner dimension in one piece, so that a column of the result does not depend on `n`.
    pub whole: bool,
    pub out: Matrix,
    /// Store the result in bf16, otherwise in f32.
    pub out_is_bf16: bool,
    /// Address of the bias, in f32; only where the result is stored in f32.
    pub bias: Option<u64>,
}

/// Memory of a launcher, given back when dropped.
pub trait Memory: Send + Sync + Debug {
    fn address(&self) -> u64;
}

/// A machine that runs kernels one after the other, in the order of the calls.
///
/// Calls only enqueue work; `download` waits for all of it. Addresses lie inside live [`Memory`].
pub trait Launcher: Send + Sync + Debug + 'static {
    type Memory: Memory;

    fn alloc(&self, bytes: usize) -> Result<Self::Memory>;
    /// Memory that holds `from`, which is free when the call returns.
    fn alloc_of(&self, from: &[u8]) -> Result<Self::Memory> {
        let memory = self.alloc(from.len())?;
        self.upload(from, memory.address())?;
        Ok(memory)
    }
    /// Host to device; `from` is free when the call returns.
    fn upload(&self, from: &[u8], to: u64) -> Result<()>;
    fn download(&self, from: u64, to: &mut [u8]) -> Result<()>;
    /// `args` are a kernel's arguments: the low bytes of each word.
    fn begin(&self, operation: Operation, args: &[u64]) -> Result<()>;
    /// Runs `work`, whose operations are likely those of an earlier call.
    fn repeated(&self, work: impl FnOnce()) -> Result<()> {
        work();
        Ok(())
    }
    /// Bytes of its memory that are free; `None` where nothing says so.
    fn free_bytes(&self) -> Option<u64> {
        None
    }
    /// The most bytes of its memory in use at once since the last call; `None` where nothing says so.
    fn peak_bytes(&self) -> Option<u64> {
        None
    }
    /// Forward products so far whose rows may depend on the rows beside them; `None` where nothing counts them.
    fn refused_products(&self) -> Option<u64> {
        None
    }
    /// Its name on the command line.
    fn name(&self) -> String;
}
