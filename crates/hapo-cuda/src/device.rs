//! A GPU behind a [`Launcher`]: buffers, tables, launches and the first failure.
//!
//! Operations return nothing. The first failure is kept for [`check`](hapo_kernels::Device::check), and operations
//! after it are skipped. Tables keep their items on the host too: tiles of attention and groups of equal tokens are
//! computed from them once and stay next to them.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use hapo_kernels::{
    AttentionShape, Buffer, Compute, DeviceError, NumberFormat, SegmentRow, Span, SpanMut,
    TableItem,
};

use crate::launch::{Launcher, Matrix, Memory, Operation, Product, Result, THREADS, lock};
use crate::plan::{self, AttentionPlan, TooLarge};

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
    pub(crate) products: Compute,
    pub(crate) fault: Mutex<Option<DeviceError>>,
    /// Memory between the kernels of one operation; the next operation uses it again, in order.
    pub(crate) scratch: Mutex<Scratch<L>>,
    /// The last gradient that was rounded for a product: the product with its input rounds the same one.
    rounded: Mutex<Rounded<L>>,
}

#[derive(Debug)]
pub(crate) struct Scratch<L: Launcher>(Option<(L::Memory, usize)>);

impl<L: Launcher> Scratch<L> {
    /// Address of at least `bytes`; growing it discards the contents.
    fn at_least(&mut self, bytes: usize, launcher: &L) -> Result<u64> {
        if self.0.as_ref().is_none_or(|it| it.1 < bytes) {
            // The old one goes first, so that both need not fit.
            self.0 = None;
            let size = bytes.next_multiple_of(1 << 20);
            self.0 = Some((launcher.alloc(size)?, size));
        }
        Ok(self.0.as_ref().map_or(0, |it| it.0.address()))
    }
}

#[derive(Debug)]
struct Rounded<L: Launcher> {
    scratch: Scratch<L>,
    /// Address, length and state of the buffer when it was rounded.
    of: Option<(u64, usize, u64)>,
}

#[derive(Debug)]
pub struct CudaBuf<L: Launcher> {
    /// Shared by buffers that lie beside each other.
    memory: Arc<L::Memory>,
    start: usize,
    pub(crate) len: usize,
    pub(crate) format: NumberFormat,
    /// Numbers of a row, and from one row to the next, where there is room behind rows.
    rows: Option<[usize; 2]>,
    /// Of all buffers no two have the same, and none has it again after a write.
    state: AtomicU64,
}

impl<L: Launcher> Buffer for CudaBuf<L> {
    fn len(&self) -> usize {
        self.len
    }

    fn bytes(&self) -> usize {
        self.bytes_of(self.len)
    }
}

fn new_state() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

impl<L: Launcher> CudaBuf<L> {
    /// Rows `stride` numbers apart, from the number `first` of a memory on.
    pub(crate) fn part(
        memory: &Arc<L::Memory>,
        first: usize,
        [rows, width, stride]: [usize; 3],
        format: NumberFormat,
    ) -> Self {
        Self {
            memory: Arc::clone(memory),
            start: first * format.bytes(),
            len: rows * width,
            format,
            rows: (stride > width).then_some([width, stride]),
            state: AtomicU64::new(new_state()),
        }
    }

    /// Their address, and the numbers from one row of `width` to the next.
    pub(crate) fn rows_at(&self, width: usize) -> (u64, usize) {
        (self.address(), self.stride(width))
    }

    pub(crate) fn is_beside_others(&self) -> bool {
        Arc::strong_count(&self.memory) > 1
    }

    pub(crate) fn address(&self) -> u64 {
        self.memory.address() + self.start as u64
    }

    /// Bytes from the first of `n` numbers to the last, with the room between their rows.
    fn bytes_of(&self, n: usize) -> usize {
        self.spaced_rows().map_or(n, |_| self.extent(n)) * self.format.bytes()
    }

    /// Width and stride of rows between which there is room.
    fn spaced_rows(&self) -> Option<[usize; 2]> {
        self.rows.filter(|[width, _]| self.len > *width)
    }

    /// Numbers in memory that `n` numbers take, with the room behind their rows.
    fn extent(&self, n: usize) -> usize {
        self.rows.map_or(n, |[width, stride]| {
            assert!(n.is_multiple_of(width), "whole rows of {width} numbers");
            n / width * stride
        })
    }

    /// Numbers from one row of `width` to the next.
    pub(crate) fn stride(&self, width: usize) -> usize {
        self.rows.map_or(width, |[of, stride]| {
            assert_eq!(of, width, "rows of the buffer");
            stride
        })
    }
}

/// A table on a GPU, with its items on the host and the tables derived from them.
#[derive(Debug)]
pub struct CudaTable<L: Launcher, T> {
    pub(crate) items: Vec<T>,
    /// Why there is none: [`check`](hapo_kernels::Device::check) says so, and so does every operation that needs it.
    pub(crate) memory: Result<L::Memory>,
    pub(crate) derived: Mutex<Vec<(Derived, Arc<Uploaded<L>>)>>,
}

/// Tables derived from a table's items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Derived {
    QueryTiles(usize),
    /// By keys and queries of a tile: the tiles of keys, then the chunks.
    KeyChunks(usize, usize),
    TokenGroups,
}

#[derive(Debug)]
pub(crate) struct Uploaded<L: Launcher> {
    pub(crate) memory: L::Memory,
    pub(crate) words: usize,
    /// Number of groups, for [`Derived::TokenGroups`], or of parts, for [`Derived::KeyChunks`].
    pub(crate) groups: usize,
}

pub(crate) type Done = Result<()>;

/// Address of the first element of a span whose elements lie side by side.
pub(crate) fn at<L: Launcher>(span: Span<CudaBuf<L>>) -> u64 {
    assert!(span.buf.spaced_rows().is_none(), "numbers side by side");
    at_row(span)
}

/// Address of the first element of a span; there may be room behind its rows.
pub(crate) fn at_row<L: Launcher>(span: Span<CudaBuf<L>>) -> u64 {
    span.buf.address() + (span.buf.extent(span.offset) * span.buf.format.bytes()) as u64
}

/// Address of the first element of a span to write, whose elements lie side by side.
pub(crate) fn to<L: Launcher>(span: &SpanMut<CudaBuf<L>>) -> u64 {
    assert!(span.buf.spaced_rows().is_none(), "numbers side by side");
    to_row(span)
}

/// Address of the first element of a span to write; there may be room behind its rows.
pub(crate) fn to_row<L: Launcher>(span: &SpanMut<CudaBuf<L>>) -> u64 {
    span.buf.state.store(new_state(), Ordering::Relaxed);
    span.buf.address() + (span.buf.extent(span.offset) * span.buf.format.bytes()) as u64
}

/// Bytes of two spans of one format whose rows lie alike, with the room behind them.
pub(crate) fn bytes_of<L: Launcher>(from: Span<CudaBuf<L>>, to: &SpanMut<CudaBuf<L>>) -> usize {
    assert!(from.buf.spaced_rows() == to.buf.spaced_rows(), "rows that lie alike");
    shared_format([from.buf, &*to.buf]);
    from.buf.bytes_of(from.len)
}

/// Of a kernel for f32 and one for bf16, that for a format.
pub(crate) fn of_format(format: NumberFormat, kernels: [&'static str; 2]) -> &'static str {
    match format {
        NumberFormat::F32 => kernels[0],
        NumberFormat::Bf16 => kernels[1],
    }
}

/// The format that buffers of one operation share.
pub(crate) fn shared_format<L: Launcher, const N: usize>(
    buffers: [&CudaBuf<L>; N],
) -> NumberFormat {
    let format = buffers[0].format;
    assert!(buffers.iter().all(|it| it.format == format), "buffers of one format");
    format
}

pub(crate) fn f32_arg(x: f32) -> u64 {
    u64::from(x.to_bits())
}

pub(crate) enum Factor<'a, L: Launcher> {
    Numbers(Span<'a, CudaBuf<L>>),
    /// Numbers that the next product reads too.
    Again(Span<'a, CudaBuf<L>>),
}

impl<L: Launcher> Factor<'_, L> {
    /// Numbers that are rounded into scratch memory.
    fn scratch_len(&self) -> usize {
        match self {
            Self::Numbers(it) if it.buf.format == NumberFormat::F32 => it.buf.extent(it.len),
            _ => 0,
        }
    }
}

impl<L: Launcher> CudaDevice<L> {
    pub fn new(launcher: L, products: Compute) -> Self {
        Self {
            inner: Arc::new(Inner {
                launcher,
                products,
                fault: Mutex::new(None),
                scratch: Mutex::new(Scratch(None)),
                rounded: Mutex::new(Rounded { scratch: Scratch(None), of: None }),
            }),
        }
    }

    pub fn launcher(&self) -> &L {
        &self.inner.launcher
    }

    pub(crate) fn fault(&self) -> MutexGuard<'_, Option<DeviceError>> {
        lock(&self.inner.fault)
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
        let hint = "use fewer tokens at once: a smaller optim.micro_batch_tokens, fewer sequences";
        DeviceError::gpu(&self.inner.launcher.name(), it.to_string(), hint)
    }

    pub(crate) fn word(&self, what: &'static str, n: usize) -> Result<u64> {
        plan::narrow(what, n).map(u64::from).map_err(|it| self.too_large(it))
    }

    pub(crate) fn grid(&self, x: usize, y: usize, z: usize) -> Result<[u32; 3]> {
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

    /// As [`Self::over`], of a kernel that counts its elements in 32 bits.
    pub(crate) fn over_32(&self, kernel: &'static str, n: usize, args: &[u64]) -> Done {
        // The last block's index plus a whole grid must fit as well.
        let limit = i32::MAX as usize;
        if n > limit {
            return Err(self.too_large(TooLarge { what: "elements", got: n, limit }));
        }
        self.over(kernel, n, args)
    }

    /// Runs a kernel over `n` elements of two buffers whose rows lie alike and of a third, four at a time if all rows are
    /// aligned.
    pub(crate) fn over_fours(
        &self,
        kernel: &'static str,
        of: [(&CudaBuf<L>, u64); 3],
        n: usize,
    ) -> Done {
        if n == 0 {
            return Ok(());
        }
        // Without room behind them all elements are one row.
        let spaced = of.iter().find_map(|it| it.0.spaced_rows());
        let [width, _] = spaced.unwrap_or([n, n]);
        let [stride, second, last] = of.map(|it| it.0.stride(width));
        assert_eq!(stride, second, "rows that lie alike");
        let (rows, four) = (n / width, 4 * of[0].0.format.bytes() as u64);
        let is_aligned = of.iter().all(|it| it.1.is_multiple_of(four))
            && (rows == 1 || [width, stride, last].iter().all(|it| it.is_multiple_of(4)));
        let fours = if is_aligned { width / 4 } else { 0 };
        let args = [rows, width, stride, last, fours].map(|it| it as u64);
        let [x, ..] = plan::elements(fours.max(width - 4 * fours));
        let grid = [x, rows.min(plan::MOST_IN_Y) as u32, 1];
        self.launch(kernel, grid, 0, &[&args[..], &of.map(|it| it.1)].concat())
    }

    /// Zeros that several buffers share.
    pub(crate) fn memory(&self, len: usize, format: NumberFormat) -> Result<Arc<L::Memory>> {
        let bytes = len.checked_mul(format.bytes());
        let bytes = bytes.ok_or(DeviceError::Allocation { bytes: usize::MAX })?;
        Ok(Arc::new(self.inner.launcher.alloc(bytes)?))
    }

    /// Copies some elements of rows of `width`, from and to an address with the numbers between two rows.
    pub(crate) fn copy_rows(
        &self,
        format: NumberFormat,
        elements: Range<usize>,
        width: usize,
        [from, to]: [(u64, usize); 2],
    ) -> Done {
        let kernel = of_format(format, ["copy_rows", "copy_rows_bf16"]);
        let args = [elements.start, width, from.1, to.1].map(|it| it as u64);
        self.over(kernel, elements.len(), &[&args[..], &[from.0, to.0]].concat())
    }

    /// Host to device: the numbers from `first` on; there may be room between their rows.
    pub(crate) fn put(&self, bytes: &[u8], first: usize, to: &CudaBuf<L>) -> Done {
        to.state.store(new_state(), Ordering::Relaxed);
        let (launcher, number) = (&self.inner.launcher, to.format.bytes());
        let (address, offset) = (to.address(), (first * number) as u64);
        let Some([width, stride]) = to.spaced_rows() else {
            return launcher.upload(bytes, address + offset);
        };
        self.with_scratch(bytes.len(), |scratch| {
            launcher.upload(bytes, scratch)?;
            let from = (scratch.wrapping_sub(offset), width);
            let elements = first..first + bytes.len() / number;
            self.copy_rows(to.format, elements, width, [from, (address, stride)])
        })
    }

    /// Device to host: the same.
    pub(crate) fn get(&self, from: &CudaBuf<L>, first: usize, bytes: &mut [u8]) -> Done {
        let (launcher, number) = (&self.inner.launcher, from.format.bytes());
        let (address, offset) = (from.address(), (first * number) as u64);
        let Some([width, stride]) = from.spaced_rows() else {
            return launcher.download(address + offset, bytes);
        };
        self.with_scratch(bytes.len(), |scratch| {
            let to = (scratch.wrapping_sub(offset), width);
            let elements = first..first + bytes.len() / number;
            self.copy_rows(from.format, elements, width, [(address, stride), to])?;
            launcher.download(scratch, bytes)
        })
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
        let operation = Operation::Launch { kernel, grid, shared, args: args.len() };
        self.inner.launcher.begin(operation, args)
    }

    pub(crate) fn begin(&self, operation: Operation) -> Done {
        self.inner.launcher.begin(operation, &[])
    }

    /// Runs `work` with scratch memory of at least `bytes`, alone.
    pub(crate) fn with_scratch(&self, bytes: usize, work: impl FnOnce(u64) -> Done) -> Done {
        let mut scratch = lock(&self.inner.scratch);
        work(scratch.at_least(bytes, &self.inner.launcher)?)
    }

    /// The result of `make` on a table's items, uploaded once.
    pub(crate) fn derived<T: TableItem>(
        &self,
        table: &CudaTable<L, T>,
        which: Derived,
        make: impl FnOnce(&[T]) -> (Vec<u32>, usize),
    ) -> Result<Arc<Uploaded<L>>> {
        let mut all = lock(&table.derived);
        if let Some((_, it)) = all.iter().find(|it| it.0 == which) {
            return Ok(Arc::clone(it));
        }
        let (words, groups) = make(&table.items);
        let made =
            Arc::new(Uploaded { memory: self.upload_items(&words)?, words: words.len(), groups });
        all.push((which, Arc::clone(&made)));
        Ok(made)
    }

    pub(crate) fn table_at<T>(table: &CudaTable<L, T>) -> Result<u64> {
        table.memory.as_ref().map(Memory::address).map_err(Clone::clone)
    }

    /// Address of numbers in bf16 that a product after this one reads too.
    fn rounded_again(&self, x: Span<CudaBuf<L>>) -> Result<u64> {
        let mut rounded = lock(&self.inner.rounded);
        let of = (at(x), x.len, x.buf.state.load(Ordering::Relaxed));
        let bytes = x.len * size_of::<u16>();
        let known = rounded.of.take() == Some(of);
        let address = rounded.scratch.at_least(bytes, &self.inner.launcher)?;
        if !known {
            self.over("round_to_bf16", x.len, &[at(x), address])?;
        }
        rounded.of = Some(of);
        Ok(address)
    }

    /// A product whose factors are rounded for it where products are of bf16 factors and they are not in bf16 already.
    pub(crate) fn product(&self, product: Product, left: Factor<L>, right: Factor<L>) -> Done {
        let Product { m, n, k, add, .. } = product;
        if m == 0 || n == 0 {
            return Ok(());
        }
        if k == 0 {
            return if add {
                Ok(())
            } else {
                let bytes = if product.out_is_bf16 { size_of::<u16>() } else { size_of::<f32>() };
                self.begin(Operation::Zero { at: product.out.address, bytes: m * n * bytes })
            };
        }
        for (what, n) in [("rows", m), ("columns", n), ("inner columns", k)] {
            if n > i32::MAX as usize {
                return Err(self.too_large(TooLarge { what, got: n, limit: i32::MAX as usize }));
            }
        }
        match self.inner.products {
            Compute::Bf16 => self.rounded_product(product, left, right),
            number => self.begin(Operation::Product(Product { number, ..product })),
        }
    }

    fn rounded_product(&self, product: Product, left: Factor<L>, right: Factor<L>) -> Done {
        // Numbers that are rounded here, the second on a boundary of 256 bytes.
        let right_at = (left.scratch_len() * 2).next_multiple_of(256);
        self.with_scratch(right_at + right.scratch_len() * 2, |scratch| {
            let rounded = |factor: Factor<L>, to: u64| match factor {
                Factor::Numbers(x) | Factor::Again(x) if x.buf.format == NumberFormat::Bf16 => {
                    Ok(at_row(x))
                }
                Factor::Again(x) => self.rounded_again(x),
                Factor::Numbers(x) => {
                    self.over("round_to_bf16", x.buf.extent(x.len), &[at_row(x), to])?;
                    Ok(to)
                }
            };
            let moved = |matrix: Matrix, address| Matrix { address, ..matrix };
            let left_at = rounded(left, scratch)?;
            let right_at = rounded(right, scratch + right_at as u64)?;
            self.begin(Operation::Product(Product {
                number: Compute::Bf16,
                left: moved(product.left, left_at),
                right: moved(product.right, right_at),
                ..product
            }))
        })
    }

    /// Sums over rows: `out += Σ dy`, or `Σ dy · x · inverse` where these are given.
    pub(crate) fn column_sums(
        &self,
        rows: usize,
        width: usize,
        (format, [dy, x, inverse]): (NumberFormat, [u64; 3]),
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
            let kernel = of_format(format, ["column_parts", "column_parts_bf16"]);
            self.launch(kernel, grid, THREADS * 4, &args)?;
            self.over("add_parts", width, &[parts as u64, scratch, out])
        })
    }

    /// The tensor cores' attention for numbers in bf16: products are of them too, and heads fit.
    pub(crate) fn attention_plan(
        &self,
        shape: AttentionShape,
        format: NumberFormat,
    ) -> Result<AttentionPlan> {
        if format == NumberFormat::Bf16 {
            let plan = AttentionPlan::of_tensor_cores(shape)
                .filter(|_| self.inner.products == Compute::Bf16);
            return Ok(plan.expect("the format of this shape's attention"));
        }
        AttentionPlan::of(shape.head_dim).ok_or_else(|| {
            let (n, hint) = (shape.head_dim, "compute on the CPU for this model");
            let problem = format!("heads of {n} columns, the kernels take at most 256");
            DeviceError::gpu(&self.inner.launcher.name(), problem, hint)
        })
    }

    pub(crate) fn query_tiles(
        &self,
        segments: &CudaTable<L, SegmentRow>,
        tile: usize,
    ) -> Result<Arc<Uploaded<L>>> {
        self.derived(segments, Derived::QueryTiles(tile), |it| (plan::query_tiles(it, tile), 0))
    }

    /// heads, `kv_heads`, `head_dim`, scale.
    pub(crate) fn shape_args(shape: AttentionShape) -> [u64; 4] {
        [shape.heads as u64, shape.kv_heads as u64, shape.head_dim as u64, f32_arg(shape.scale())]
    }

    pub(crate) fn upload_items<T: bytemuck::Pod>(&self, items: &[T]) -> Result<L::Memory> {
        self.inner.launcher.alloc_of(bytemuck::cast_slice(items))
    }
}
