//! A GPU behind a [`Launcher`]: buffers, tables, launches and the first failure.
//!
//! Operations return nothing, so the first failure is kept for [`check`](hapo_kernels::Device::check) and what follows it is
//! skipped. Tables keep their items on the host too: tiles of attention and groups of equal tokens are
//! computed from them once and stay next to them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hapo_kernels::{
    Accumulate, AttentionShape, Buffer, DeviceError, SegmentRow, Span, SpanMut, TableItem,
};

use crate::launch::{Launch, Launcher, Matrix, Memory, Number, Product, THREADS};
use crate::plan::{self, AttentionPlan, TooLarge};

/// What the inputs of matrix products are rounded to; sums are in f32 either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatmulPrecision {
    /// Nothing: f32 in (no TF32).
    #[default]
    F32,
    /// bf16 in, on the tensor cores; weights, activations and gradients stay f32 in memory.
    Bf16,
}

/// A GPU, or a stand-in for one.
#[derive(Debug)]
pub struct CudaDevice<L: Launcher> {
    pub(crate) inner: Arc<Inner<L>>,
}

impl<L: Launcher> Clone for CudaDevice<L> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

#[derive(Debug)]
pub(crate) struct Inner<L: Launcher> {
    pub(crate) launcher: L,
    pub(crate) products: MatmulPrecision,
    pub(crate) fault: Mutex<Option<DeviceError>>,
    /// Memory between the kernels of one operation; the next operation uses it again, in order.
    pub(crate) scratch: Mutex<Option<(L::Memory, usize)>>,
}

/// A buffer on a GPU.
#[derive(Debug)]
pub struct CudaBuf<L: Launcher> {
    pub(crate) memory: L::Memory,
    pub(crate) len: usize,
}

impl<L: Launcher> Buffer for CudaBuf<L> {
    fn len(&self) -> usize {
        self.len
    }
}

/// A table on a GPU, with its items on the host and what was computed from them.
#[derive(Debug)]
pub struct CudaTable<L: Launcher, T> {
    pub(crate) items: Vec<T>,
    /// `None` when there was not enough memory; [`check`](hapo_kernels::Device::check) says so.
    pub(crate) memory: Option<L::Memory>,
    pub(crate) derived: Mutex<Vec<(Derived, Arc<Uploaded<L>>)>>,
}

/// What is computed from a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Derived {
    QueryTiles(usize),
    KeyTiles(usize),
    TokenGroups,
}

/// Words on the device.
#[derive(Debug)]
pub(crate) struct Uploaded<L: Launcher> {
    pub(crate) memory: L::Memory,
    pub(crate) words: usize,
    /// Number of groups, for [`Derived::TokenGroups`].
    pub(crate) groups: usize,
}

pub(crate) type Done = Result<(), DeviceError>;

/// Address of the first element of a span.
pub(crate) fn at<L: Launcher>(span: Span<CudaBuf<L>>) -> u64 {
    span.buf.memory.address() + (span.offset * size_of::<f32>()) as u64
}

/// Address of the first element of a span to write.
pub(crate) fn to<L: Launcher>(span: &SpanMut<CudaBuf<L>>) -> u64 {
    span.buf.memory.address() + (span.offset * size_of::<f32>()) as u64
}

/// An f32 as an argument.
pub(crate) fn f32_arg(x: f32) -> u64 {
    u64::from(x.to_bits())
}

impl<L: Launcher> CudaDevice<L> {
    /// A device over a launcher.
    pub fn new(launcher: L, products: MatmulPrecision) -> Self {
        Self {
            inner: Arc::new(Inner {
                launcher,
                products,
                fault: Mutex::new(None),
                scratch: Mutex::new(None),
            }),
        }
    }

    /// The machine below.
    pub fn launcher(&self) -> &L {
        &self.inner.launcher
    }

    pub(crate) fn fault(&self) -> MutexGuard<'_, Option<DeviceError>> {
        self.inner.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs an operation unless one before it failed, and keeps its failure.
    pub(crate) fn run(&self, work: impl FnOnce() -> Done) {
        if self.fault().is_some() {
            return;
        }
        if let Err(error) = work() {
            self.fault().get_or_insert(error);
        }
    }

    pub(crate) fn too_large(&self, it: TooLarge) -> DeviceError {
        DeviceError::Gpu {
            device: self.inner.launcher.name(),
            problem: format!("{} {}, the limit is {}", it.got, it.what, it.limit),
            hint: "use fewer tokens at once: a smaller optim.micro_batch_tokens, fewer sequences"
                .to_owned(),
        }
    }

    pub(crate) fn word(&self, what: &'static str, n: usize) -> Result<u64, DeviceError> {
        plan::narrow(what, n).map(u64::from).map_err(|it| self.too_large(it))
    }

    pub(crate) fn grid(&self, x: usize, y: usize, z: usize) -> Result<[u32; 3], DeviceError> {
        plan::grid(x, y, z).map_err(|it| self.too_large(it))
    }

    /// A kernel over `n` elements; the number is its first argument.
    pub(crate) fn over(&self, kernel: &'static str, n: usize, args: &[u64]) -> Done {
        if n == 0 {
            return Ok(());
        }
        let mut all = vec![n as u64];
        all.extend_from_slice(args);
        self.launch(kernel, plan::elements(n), 0, &all)
    }

    pub(crate) fn launch(
        &self,
        kernel: &'static str,
        grid: [u32; 3],
        shared: u32,
        args: &[u64],
    ) -> Done {
        if grid.contains(&0) {
            return Ok(());
        }
        self.inner.launcher.launch(&Launch { kernel, grid, shared, args })
    }

    /// Runs `work` with scratch memory of at least `bytes`, alone.
    pub(crate) fn with_scratch(&self, bytes: usize, work: impl FnOnce(u64) -> Done) -> Done {
        let mut scratch = self.inner.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        if scratch.as_ref().is_none_or(|it| it.1 < bytes) {
            // The old one goes first, so that both need not fit.
            *scratch = None;
            let size = bytes.next_multiple_of(1 << 20);
            *scratch = Some((self.inner.launcher.alloc(size)?, size));
        }
        let address = scratch.as_ref().map_or(0, |it| it.0.address());
        work(address)
    }

    pub(crate) fn upload_words(&self, words: &[u32]) -> Result<L::Memory, DeviceError> {
        let bytes: &[u8] = bytemuck::cast_slice(words);
        let memory = self.inner.launcher.alloc(bytes.len())?;
        self.inner.launcher.upload(bytes, memory.address())?;
        Ok(memory)
    }

    /// What `make` works out from a table's items, uploaded once.
    pub(crate) fn derived<T: TableItem>(
        &self,
        table: &CudaTable<L, T>,
        which: Derived,
        make: impl FnOnce(&[T]) -> (Vec<u32>, usize),
    ) -> Result<Arc<Uploaded<L>>, DeviceError> {
        let mut all = table.derived.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, it)) = all.iter().find(|it| it.0 == which) {
            return Ok(Arc::clone(it));
        }
        let (words, groups) = make(&table.items);
        let made =
            Arc::new(Uploaded { memory: self.upload_words(&words)?, words: words.len(), groups });
        all.push((which, Arc::clone(&made)));
        Ok(made)
    }

    /// Address of a table; one without memory has left a fault, so nothing runs.
    pub(crate) fn table_at<T>(table: &CudaTable<L, T>) -> u64 {
        table.memory.as_ref().map_or(0, Memory::address)
    }

    /// Puts a bias or nothing where the product goes; whether it is added to that.
    pub(crate) fn start(
        &self,
        onto: &Accumulate<CudaBuf<L>>,
        out: u64,
        rows: usize,
        width: usize,
    ) -> Result<bool, DeviceError> {
        match onto {
            Accumulate::Nothing => Ok(false),
            Accumulate::Existing => Ok(true),
            Accumulate::Bias(bias) => {
                assert_eq!(bias.len, width, "a bias is [outputs]");
                let width = self.word("outputs", width)?;
                self.over("repeat_row", rows * bias.len, &[width, at(*bias), out])?;
                Ok(true)
            }
        }
    }

    /// A product whose factors are f32 in memory.
    pub(crate) fn product(&self, product: Product, left_len: usize, right_len: usize) -> Done {
        let Product { m, n, k, add, .. } = product;
        if m == 0 || n == 0 {
            return Ok(());
        }
        if k == 0 {
            return if add {
                Ok(())
            } else {
                self.inner.launcher.zero(product.out.address, m * n * size_of::<f32>())
            };
        }
        for (what, n) in [("rows", m), ("columns", n), ("inner columns", k)] {
            if n > i32::MAX as usize {
                return Err(self.too_large(TooLarge { what, got: n, limit: i32::MAX as usize }));
            }
        }
        if self.inner.products == MatmulPrecision::F32 {
            return self.inner.launcher.product(&product);
        }
        // Both factors in bf16, the second on a boundary of 256 bytes.
        let right_at = (left_len * 2).next_multiple_of(256);
        self.with_scratch(right_at + right_len * 2, |scratch| {
            let right_to = scratch + right_at as u64;
            self.over("round_to_bf16", left_len, &[product.left.address, scratch])?;
            self.over("round_to_bf16", right_len, &[product.right.address, right_to])?;
            let moved = |matrix: Matrix, address| Matrix { address, ..matrix };
            self.inner.launcher.product(&Product {
                number: Number::Bf16,
                left: moved(product.left, scratch),
                right: moved(product.right, right_to),
                ..product
            })
        })
    }

    /// Sums over rows: `out += Σ dy`, or `Σ dy · x · inverse` where these are given.
    pub(crate) fn column_sums(
        &self,
        rows: usize,
        width: usize,
        [dy, x, inverse]: [u64; 3],
        out: u64,
    ) -> Done {
        let (per_part, parts) = plan::column_parts(rows);
        if parts == 0 || width == 0 {
            return Ok(());
        }
        let grid = self.grid(width.div_ceil(32), parts, 1)?;
        let (rows, columns) = (self.word("rows", rows)?, self.word("columns", width)?);
        self.with_scratch(parts * width * size_of::<f32>(), |scratch| {
            let args = [rows, columns, per_part as u64, dy, x, inverse, scratch];
            self.launch("column_parts", grid, THREADS * 4, &args)?;
            self.over("add_parts", width, &[parts as u64, scratch, out])
        })
    }

    pub(crate) fn attention_plan(
        &self,
        shape: AttentionShape,
    ) -> Result<AttentionPlan, DeviceError> {
        AttentionPlan::of(shape.head_dim).ok_or_else(|| DeviceError::Gpu {
            device: self.inner.launcher.name(),
            problem: format!("heads of {} columns, the kernels take at most 256", shape.head_dim),
            hint: "compute on the CPU for this model".to_owned(),
        })
    }

    pub(crate) fn query_tiles(
        &self,
        segments: &CudaTable<L, SegmentRow>,
        tile: usize,
    ) -> Result<Arc<Uploaded<L>>, DeviceError> {
        self.derived(segments, Derived::QueryTiles(tile), |it| (plan::query_tiles(it, tile), 0))
    }

    /// heads, `kv_heads`, `head_dim`, scale.
    pub(crate) fn shape_args(shape: AttentionShape) -> [u64; 4] {
        [shape.heads as u64, shape.kv_heads as u64, shape.head_dim as u64, f32_arg(shape.scale())]
    }

    /// Downloads one number per block of `kernel`, which is given the elements of a block.
    pub(crate) fn numbers_of_blocks<T: bytemuck::Pod>(
        &self,
        kernel: &'static str,
        shared: u32,
        x: Span<CudaBuf<L>>,
    ) -> Result<Vec<T>, DeviceError> {
        let blocks = x.len.div_ceil(plan::PER_BLOCK);
        let mut numbers = vec![T::zeroed(); blocks];
        if blocks > 0 {
            let grid = self.grid(blocks, 1, 1)?;
            self.with_scratch(size_of_val(&numbers[..]), |scratch| {
                let args = [x.len as u64, plan::PER_BLOCK as u64, at(x), scratch];
                self.launch(kernel, grid, shared, &args)?;
                self.inner.launcher.download(scratch, bytemuck::cast_slice_mut(&mut numbers))
            })?;
        }
        Ok(numbers)
    }
}
