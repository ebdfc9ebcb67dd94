//! The CPU's own pool of threads, the slices that its tasks share, and the copy that its products keep.
//!
//! Purpose: work is cut into tasks that depend on shapes alone, so that no sum depends on the number of threads. Tiles
//! of a matrix and heads of a row are interleaved in memory, which `chunks_mut` cannot express. Price: the caller
//! promises that tasks write disjoint elements; bounds are still checked.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use hapo_core::Refusal;
use rayon::prelude::*;

use super::buffer::CpuBuf;
use crate::{isa::multiplies_bf16, memory_counter::MemoryCounter, number_format::Compute};

/// The CPU: a pool of threads of its own.
#[derive(Clone, Debug)]
pub struct Cpu {
    pub(super) pool: Arc<rayon::ThreadPool>,
    threads: usize,
    /// A handle of one worker.
    pub(super) serial: bool,
    compute: Compute,
    /// The largest copy that a product has made.
    copy: Arc<Mutex<Option<CpuBuf>>>,
    /// The bytes of its buffers.
    tally: MemoryCounter,
}

impl Cpu {
    /// A device with `threads` workers, whose products are of f32 factors; 0 takes one per available core.
    pub fn new(threads: usize) -> Result<Self, Refusal> {
        Self::computing(threads, Compute::F32)
    }

    /// The same, with products of factors that are rounded so.
    ///
    /// # Errors
    /// Products that the CPU has no instructions for.
    pub fn computing(threads: usize, compute: Compute) -> Result<Self, Refusal> {
        let refuse = |problem: &str, hint: &'static str| {
            Err(Refusal::input(format!("compute = \"{compute}\": {problem}")).hint(hint))
        };
        match compute {
            Compute::Bf16 if !multiplies_bf16() => {
                return refuse(
                    "the CPU has no products of bf16 numbers (AVX-512 BF16, the feature avx512_bf16)",
                    "compute = \"f32\" runs on every CPU, and reads weights that are stored in bf16 as bf16 where it decodes",
                );
            }
            Compute::Tf32 => {
                let hint = "compute = \"f32\" and compute = \"bf16\" are what a CPU has";
                return refuse("the CPU has no TF32 products", hint);
            }
            Compute::F32 | Compute::Bf16 => {}
        }
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n,
        };
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("hapo-cpu-{i}"))
            .build()
            .map_err(|error| {
                Refusal::machine(format!("cannot start {threads} worker threads")).source(error)
            })?;
        let (pool, serial, copy) = (Arc::new(pool), threads == 1, Arc::default());
        Ok(Self { pool, threads, serial, compute, copy, tally: MemoryCounter::default() })
    }

    /// Number of workers.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The bytes of its buffers.
    pub fn tally(&self) -> &MemoryCounter {
        &self.tally
    }

    /// The rounding of its products' factors.
    pub fn compute(&self) -> Compute {
        self.compute
    }

    /// Runs `task(0..tasks)`, on the pool unless this handle is serial.
    pub(super) fn for_tasks(&self, tasks: usize, task: impl Fn(usize) + Sync + Send) {
        if self.serial || tasks <= 1 {
            (0..tasks).for_each(task);
        } else {
            self.pool.install(|| {
                (0..tasks).into_par_iter().with_max_len(1).for_each(task);
            });
        }
    }

    /// Runs `work` on blocks of a slice, each with its first element.
    pub(super) fn for_blocks(
        &self,
        x: &mut [f32],
        block: usize,
        work: impl Fn(usize, &mut [f32]) + Sync + Send,
    ) {
        let (len, x) = (x.len(), Shared::new(x));
        self.for_tasks(len.div_ceil(block), |task| {
            let first = task * block;
            // SAFETY: blocks are disjoint.
            work(first, unsafe { x.part(first, block.min(len - first)) });
        });
    }

    /// As [`Cpu::for_tasks`], results in task order.
    pub(super) fn map_tasks<R: Send>(
        &self,
        tasks: usize,
        task: impl Fn(usize) -> R + Sync + Send,
    ) -> Vec<R> {
        if self.serial || tasks <= 1 {
            (0..tasks).map(task).collect()
        } else {
            self.pool.install(|| (0..tasks).into_par_iter().with_max_len(1).map(task).collect())
        }
    }

    /// Runs `work` on room for `len` numbers, which is kept for the next one.
    pub(super) fn with_copy<R>(&self, len: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
        let kept = || self.copy.lock().unwrap_or_else(PoisonError::into_inner);
        let held = kept().take().filter(|it| it.as_slice().len() >= len);
        let mut buf = held.unwrap_or_else(|| {
            CpuBuf::counted(len, &self.tally).expect("memory for a copy of one matrix")
        });
        let result = work(&mut buf.as_mut_slice()[..len]);
        *kept() = Some(buf);
        result
    }
}

/// A mutable slice that tasks share.
#[derive(Clone, Copy)]
pub(super) struct Shared<'a, T = f32> {
    pointer: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: the only access is `part`, whose callers promise disjoint ranges between threads.
unsafe impl<T: Send> Send for Shared<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    pub(super) fn new(slice: &'a mut [T]) -> Self {
        Self { pointer: slice.as_mut_ptr(), len: slice.len(), slice: PhantomData }
    }

    /// The elements `offset..offset + len`.
    ///
    /// # Safety
    /// No other reference to any of these elements is alive while the result is.
    pub(super) unsafe fn part(&self, offset: usize, len: usize) -> &'a mut [T] {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.len),
            "a part inside the shared slice"
        );
        // SAFETY: in bounds by the assertion, unaliased by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.add(offset), len) }
    }

    /// A pointer to element `offset`, for a product that writes `rows` rows of `width` elements, `stride` apart.
    pub(super) fn tile(&self, offset: usize, rows: usize, stride: usize, width: usize) -> *mut T {
        assert!(
            rows == 0 || offset + (rows - 1) * stride + width <= self.len,
            "a tile inside the shared slice"
        );
        self.pointer.wrapping_add(offset)
    }
}
