//! [`Device`] over a [`Launcher`]: which kernels an operation is, on which grid, with which arguments.
//!
//! Operations return nothing, so the first failure is kept for [`Device::check`] and what follows it is
//! skipped. Tables keep their items on the host too: tiles of attention and groups of equal tokens are
//! computed from them once and stay next to them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hapo_kernels::{
    Accumulate, AdamW, AttentionShape, Buffer, CacheRow, CacheSpan, Device, DeviceError,
    EmbeddingLayout, HeadPart, HeadTarget, MatShape, SegmentRow, Span, SpanMut, TableItem,
};

use crate::launch::{Launch, Launcher, Matrix, Memory, Number, Product, THREADS};
use crate::plan::{self, AttentionPlan, Rows, TooLarge};

/// What the factors of products are rounded to; sums are in f32 either way.
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
    inner: Arc<Inner<L>>,
}

impl<L: Launcher> Clone for CudaDevice<L> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

#[derive(Debug)]
struct Inner<L: Launcher> {
    launcher: L,
    products: MatmulPrecision,
    fault: Mutex<Option<DeviceError>>,
    /// Memory between the kernels of one operation; the next operation uses it again, in order.
    scratch: Mutex<Option<(L::Memory, usize)>>,
}

/// A buffer on a GPU.
#[derive(Debug)]
pub struct CudaBuf<L: Launcher> {
    memory: L::Memory,
    len: usize,
}

impl<L: Launcher> Buffer for CudaBuf<L> {
    fn len(&self) -> usize {
        self.len
    }
}

/// A table on a GPU, with its items on the host and what was computed from them.
#[derive(Debug)]
pub struct CudaTable<L: Launcher, T> {
    items: Vec<T>,
    /// `None` when there was not enough memory; [`Device::check`] says so.
    memory: Option<L::Memory>,
    derived: Mutex<Vec<(Derived, Arc<Uploaded<L>>)>>,
}

/// What is worked out from a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Derived {
    QueryTiles(usize),
    KeyTiles(usize),
    TokenGroups,
}

/// Words on the device.
#[derive(Debug)]
struct Uploaded<L: Launcher> {
    memory: L::Memory,
    words: usize,
    /// Number of groups, for [`Derived::TokenGroups`].
    groups: usize,
}

type Done = Result<(), DeviceError>;

/// Address of the first element of a span.
fn at<L: Launcher>(span: Span<CudaBuf<L>>) -> u64 {
    span.buf.memory.address() + (span.offset * size_of::<f32>()) as u64
}

/// Address of the first element of a span to write.
fn to<L: Launcher>(span: &SpanMut<CudaBuf<L>>) -> u64 {
    span.buf.memory.address() + (span.offset * size_of::<f32>()) as u64
}

/// An f32 as an argument.
fn f32_arg(x: f32) -> u64 {
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

    fn fault(&self) -> MutexGuard<'_, Option<DeviceError>> {
        self.inner
            .fault
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs an operation unless one before it failed, and keeps its failure.
    fn run(&self, work: impl FnOnce() -> Done) {
        if self.fault().is_some() {
            return;
        }
        if let Err(error) = work() {
            self.fault().get_or_insert(error);
        }
    }

    fn too_large(&self, it: TooLarge) -> DeviceError {
        DeviceError::Gpu {
            device: self.inner.launcher.name(),
            problem: format!("{} {}, the limit is {}", it.got, it.what, it.limit),
            hint: "use fewer tokens at once: a smaller optim.micro_batch_tokens, fewer sequences"
                .to_owned(),
        }
    }

    fn word(&self, what: &'static str, n: usize) -> Result<u64, DeviceError> {
        plan::narrow(what, n)
            .map(u64::from)
            .map_err(|it| self.too_large(it))
    }

    fn grid(&self, x: usize, y: usize, z: usize) -> Result<[u32; 3], DeviceError> {
        plan::grid(x, y, z).map_err(|it| self.too_large(it))
    }

    /// A kernel over `n` elements; the number is its first argument.
    fn over(&self, kernel: &'static str, n: usize, args: &[u64]) -> Done {
        if n == 0 {
            return Ok(());
        }
        let mut all = vec![n as u64];
        all.extend_from_slice(args);
        self.launch(kernel, plan::elements(n), 0, &all)
    }

    fn launch(&self, kernel: &'static str, grid: [u32; 3], shared: u32, args: &[u64]) -> Done {
        if grid.contains(&0) {
            return Ok(());
        }
        self.inner.launcher.launch(&Launch {
            kernel,
            grid,
            shared,
            args,
        })
    }

    /// Runs `work` with scratch memory of at least `bytes`, alone.
    fn with_scratch(&self, bytes: usize, work: impl FnOnce(u64) -> Done) -> Done {
        let mut scratch = self
            .inner
            .scratch
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if scratch.as_ref().is_none_or(|it| it.1 < bytes) {
            // The old one goes first, so that both need not fit.
            *scratch = None;
            let size = bytes.next_multiple_of(1 << 20);
            *scratch = Some((self.inner.launcher.alloc(size)?, size));
        }
        let address = scratch.as_ref().map_or(0, |it| it.0.address());
        work(address)
    }

    fn upload_words(&self, words: &[u32]) -> Result<L::Memory, DeviceError> {
        let bytes: &[u8] = bytemuck::cast_slice(words);
        let memory = self.inner.launcher.alloc(bytes.len())?;
        self.inner.launcher.upload(bytes, memory.address())?;
        Ok(memory)
    }

    /// What `make` works out from a table's items, uploaded once.
    fn derived<T: TableItem>(
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
        let made = Arc::new(Uploaded {
            memory: self.upload_words(&words)?,
            words: words.len(),
            groups,
        });
        all.push((which, Arc::clone(&made)));
        Ok(made)
    }

    /// Address of a table; one without memory has left a fault, so nothing runs.
    fn table_at<T>(table: &CudaTable<L, T>) -> u64 {
        table.memory.as_ref().map_or(0, Memory::address)
    }

    /// Puts a bias or nothing where the product goes; whether it is added to that.
    fn start(
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
    fn product(&self, product: Product, left_len: usize, right_len: usize) -> Done {
        let Product { m, n, k, add, .. } = product;
        if m == 0 || n == 0 {
            return Ok(());
        }
        if k == 0 {
            return if add {
                Ok(())
            } else {
                self.inner
                    .launcher
                    .zero(product.out.address, m * n * size_of::<f32>())
            };
        }
        for (what, n) in [("rows", m), ("columns", n), ("inner columns", k)] {
            if n > i32::MAX as usize {
                return Err(self.too_large(TooLarge {
                    what,
                    got: n,
                    limit: i32::MAX as usize,
                }));
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
            self.over(
                "round_to_bf16",
                right_len,
                &[product.right.address, right_to],
            )?;
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
    fn column_sums(&self, rows: usize, width: usize, [dy, x, inverse]: [u64; 3], out: u64) -> Done {
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

    fn attention_plan(&self, shape: AttentionShape) -> Result<AttentionPlan, DeviceError> {
        AttentionPlan::of(shape.head_dim).ok_or_else(|| DeviceError::Gpu {
            device: self.inner.launcher.name(),
            problem: format!(
                "heads of {} columns, the kernels have room for 256",
                shape.head_dim
            ),
            hint: "compute on the CPU for this model".to_owned(),
        })
    }

    fn query_tiles(
        &self,
        segments: &CudaTable<L, SegmentRow>,
        tile: usize,
    ) -> Result<Arc<Uploaded<L>>, DeviceError> {
        self.derived(segments, Derived::QueryTiles(tile), |it| {
            (plan::query_tiles(it, tile), 0)
        })
    }

    /// heads, `kv_heads`, `head_dim`, scale.
    fn shape_args(shape: AttentionShape) -> [u64; 4] {
        [
            shape.heads as u64,
            shape.kv_heads as u64,
            shape.head_dim as u64,
            f32_arg(shape.scale()),
        ]
    }

    /// Downloads one number per block of `kernel`, which is given the elements of a block.
    fn numbers_of_blocks<T: bytemuck::Pod>(
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
                self.inner
                    .launcher
                    .download(scratch, bytemuck::cast_slice_mut(&mut numbers))
            })?;
        }
        Ok(numbers)
    }
}

impl<L: Launcher> Device for CudaDevice<L> {
    type Buf = CudaBuf<L>;
    type Table<T: TableItem> = CudaTable<L, T>;

    fn alloc(&self, len: usize) -> Result<CudaBuf<L>, DeviceError> {
        let bytes = len.checked_mul(size_of::<f32>());
        let bytes = bytes.ok_or(DeviceError::Allocation { bytes: usize::MAX })?;
        Ok(CudaBuf {
            memory: self.inner.launcher.alloc(bytes)?,
            len,
        })
    }

    fn table<T: TableItem>(&self, items: &[T]) -> CudaTable<L, T> {
        let mut memory = None;
        self.run(|| {
            let bytes: &[u8] = bytemuck::cast_slice(items);
            let made = self.inner.launcher.alloc(bytes.len())?;
            self.inner.launcher.upload(bytes, made.address())?;
            memory = Some(made);
            Ok(())
        });
        CudaTable {
            items: items.to_vec(),
            memory,
            derived: Mutex::new(Vec::new()),
        }
    }

    fn upload(&self, src: &[f32], dst: SpanMut<CudaBuf<L>>) {
        assert_eq!(src.len(), dst.len, "equal lengths");
        self.run(|| {
            self.inner
                .launcher
                .upload(bytemuck::cast_slice(src), to(&dst))
        });
    }

    fn download(&self, src: Span<CudaBuf<L>>, dst: &mut [f32]) {
        assert_eq!(src.len, dst.len(), "equal lengths");
        self.run(|| {
            self.inner
                .launcher
                .download(at(src), bytemuck::cast_slice_mut(dst))
        });
    }

    fn copy(&self, src: Span<CudaBuf<L>>, dst: SpanMut<CudaBuf<L>>) {
        assert_eq!(src.len, dst.len, "equal lengths");
        self.run(|| {
            self.inner
                .launcher
                .copy(at(src), to(&dst), src.len * size_of::<f32>())
        });
    }

    fn fill(&self, dst: SpanMut<CudaBuf<L>>, value: f32) {
        self.run(|| self.over("fill", dst.len, &[f32_arg(value), to(&dst)]));
    }

    fn check(&self) -> Result<(), DeviceError> {
        self.fault().take().map_or(Ok(()), Err)
    }

    fn enter<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        work()
    }

    fn blocks(&self, _rows: usize, _weight_bytes: usize) -> usize {
        1
    }

    fn each<T: Send>(&self, items: &mut [T], work: impl Fn(&Self, &mut T) + Sync) {
        for item in items {
            work(self, item);
        }
    }

    fn matmul(
        &self,
        shape: MatShape,
        x: Span<CudaBuf<L>>,
        w: Span<CudaBuf<L>>,
        onto: Accumulate<CudaBuf<L>>,
        y: SpanMut<CudaBuf<L>>,
    ) {
        let MatShape {
            rows,
            inputs,
            outputs,
        } = shape;
        assert_eq!(x.len, rows * inputs, "x is [rows, inputs]");
        assert_eq!(w.len, inputs * outputs, "w is [inputs, outputs]");
        assert_eq!(y.len, rows * outputs, "y is [rows, outputs]");
        self.run(|| {
            let add = self.start(&onto, to(&y), rows, outputs)?;
            self.product(
                forward_product(shape, at(x), at(w), add, to(&y)),
                w.len,
                x.len,
            )
        });
    }

    fn packed_len(&self, inputs: usize, outputs: usize) -> Option<usize> {
        match self.inner.products {
            // A product of f32 factors has other bits than one of packed weights could promise.
            MatmulPrecision::F32 => None,
            MatmulPrecision::Bf16 => Some((inputs * outputs).div_ceil(2)),
        }
    }

    fn pack(
        &self,
        inputs: usize,
        outputs: usize,
        w: Span<CudaBuf<L>>,
        packed: SpanMut<CudaBuf<L>>,
    ) {
        assert_eq!(w.len, inputs * outputs, "w is [inputs, outputs]");
        assert_eq!(packed.len, w.len.div_ceil(2), "half a word per weight");
        self.run(|| self.over("round_to_bf16", w.len, &[at(w), to(&packed)]));
    }

    fn is_bf16(&self, x: Span<CudaBuf<L>>) -> bool {
        let mut all = true;
        self.run(|| {
            let found: Vec<u32> =
                self.numbers_of_blocks("find_wider", plan::reduction_bytes(4), x)?;
            all = found.iter().all(|&it| it == 0);
            Ok(())
        });
        all
    }

    fn matmul_packed(
        &self,
        shape: MatShape,
        x: Span<CudaBuf<L>>,
        packed: Span<CudaBuf<L>>,
        onto: Accumulate<CudaBuf<L>>,
        y: SpanMut<CudaBuf<L>>,
    ) {
        let MatShape {
            rows,
            inputs,
            outputs,
        } = shape;
        assert_eq!(x.len, rows * inputs, "x is [rows, inputs]");
        assert_eq!(
            packed.len,
            (inputs * outputs).div_ceil(2),
            "half a word per weight"
        );
        assert_eq!(y.len, rows * outputs, "y is [rows, outputs]");
        self.run(|| {
            if y.len == 0 {
                return Ok(());
            }
            let add = self.start(&onto, to(&y), rows, outputs)?;
            self.with_scratch(x.len * 2, |scratch| {
                self.over("round_to_bf16", x.len, &[at(x), scratch])?;
                let product = forward_product(shape, scratch, at(packed), add, to(&y));
                self.inner.launcher.product(&Product {
                    number: Number::Bf16,
                    ..product
                })
            })
        });
    }

    fn matmul_input_grad(
        &self,
        shape: MatShape,
        dy: Span<CudaBuf<L>>,
        w: Span<CudaBuf<L>>,
        onto: Accumulate<CudaBuf<L>>,
        dx: SpanMut<CudaBuf<L>>,
    ) {
        let MatShape {
            rows,
            inputs,
            outputs,
        } = shape;
        assert_eq!(dy.len, rows * outputs, "dy is [rows, outputs]");
        assert_eq!(w.len, inputs * outputs, "w is [inputs, outputs]");
        assert_eq!(dx.len, rows * inputs, "dx is [rows, inputs]");
        self.run(|| {
            // By columns: dxᵀ = w · dyᵀ.
            let product = Product {
                m: inputs,
                n: rows,
                k: outputs,
                number: Number::F32,
                left: Matrix {
                    address: at(w),
                    stride: outputs,
                    transposed: true,
                },
                right: plain(at(dy), outputs),
                add: self.start(&onto, to(&dx), rows, inputs)?,
                out: plain(to(&dx), inputs),
            };
            self.product(product, w.len, dy.len)
        });
    }

    fn matmul_weight_grad(
        &self,
        shape: MatShape,
        x: Span<CudaBuf<L>>,
        dy: Span<CudaBuf<L>>,
        onto: Accumulate<CudaBuf<L>>,
        dw: SpanMut<CudaBuf<L>>,
    ) {
        let MatShape {
            rows,
            inputs,
            outputs,
        } = shape;
        assert_eq!(x.len, rows * inputs, "x is [rows, inputs]");
        assert_eq!(dy.len, rows * outputs, "dy is [rows, outputs]");
        assert_eq!(dw.len, inputs * outputs, "dw is [inputs, outputs]");
        self.run(|| {
            // By columns: dwᵀ = dyᵀ · x.
            let product = Product {
                m: outputs,
                n: inputs,
                k: rows,
                number: Number::F32,
                left: plain(at(dy), outputs),
                right: Matrix {
                    address: at(x),
                    stride: inputs,
                    transposed: true,
                },
                add: self.start(&onto, to(&dw), inputs, outputs)?,
                out: plain(to(&dw), outputs),
            };
            self.product(product, dy.len, x.len)
        });
    }

    fn add_column_sums(&self, width: usize, dy: Span<CudaBuf<L>>, out: SpanMut<CudaBuf<L>>) {
        assert!(
            out.len == width && dy.len.is_multiple_of(width),
            "dy is [rows, width], out [width]"
        );
        self.run(|| self.column_sums(dy.len / width, width, [at(dy), 0, 0], to(&out)));
    }

    fn rms_norm(
        &self,
        eps: f32,
        x: Span<CudaBuf<L>>,
        w: Span<CudaBuf<L>>,
        y: SpanMut<CudaBuf<L>>,
        inverse_rms: SpanMut<CudaBuf<L>>,
        residual: Option<SpanMut<CudaBuf<L>>>,
    ) {
        let (width, rows) = (w.len, inverse_rms.len);
        assert!(
            x.len == rows * width && y.len == rows * width,
            "x and y are [rows, width]"
        );
        let residual = residual.map_or(0, |it| {
            assert_eq!(it.len, rows * width, "residual is [rows, width]");
            to(&it)
        });
        self.run(|| {
            let layout = Rows::of(width);
            let kernel = match layout {
                Rows::Warp => "rms_norm_narrow",
                Rows::Block => "rms_norm_wide",
            };
            let args = [
                self.word("rows", rows)?,
                self.word("columns", width)?,
                f32_arg(eps),
                at(x),
                at(w),
                to(&y),
                to(&inverse_rms),
                residual,
            ];
            let grid = self.grid(layout.blocks(rows), 1, 1)?;
            self.launch(kernel, grid, plan::reduction_bytes(4), &args)
        });
    }

    fn rms_norm_grad(
        &self,
        x: Span<CudaBuf<L>>,
        w: Span<CudaBuf<L>>,
        inverse_rms: Span<CudaBuf<L>>,
        dy: Span<CudaBuf<L>>,
        onto: Accumulate<CudaBuf<L>>,
        dx: SpanMut<CudaBuf<L>>,
        dw: SpanMut<CudaBuf<L>>,
    ) {
        let (width, rows) = (w.len, inverse_rms.len);
        assert!(
            x.len == rows * width && dy.len == x.len && dx.len == x.len,
            "x, dy and dx are [rows, width]"
        );
        assert_eq!(dw.len, width, "dw is [width]");
        self.run(|| {
            self.column_sums(rows, width, [at(dy), at(x), at(inverse_rms)], to(&dw))?;
            let layout = Rows::of(width);
            let kernel = match layout {
                Rows::Warp => "rms_norm_grad_narrow",
                Rows::Block => "rms_norm_grad_wide",
            };
            let args = [
                self.word("rows", rows)?,
                self.word("columns", width)?,
                u64::from(matches!(onto, Accumulate::Existing)),
                at(x),
                at(w),
                at(inverse_rms),
                at(dy),
                to(&dx),
            ];
            let grid = self.grid(layout.blocks(rows), 1, 1)?;
            self.launch(kernel, grid, plan::reduction_bytes(4), &args)
        });
    }

    fn rope(
        &self,
        head_dim: usize,
        direction: f32,
        angles: Span<CudaBuf<L>>,
        positions: &CudaTable<L, u32>,
        x: SpanMut<CudaBuf<L>>,
    ) {
        let rows = positions.items.len();
        if rows == 0 {
            return;
        }
        let width = x.len / rows;
        assert!(
            width * rows == x.len && width.is_multiple_of(head_dim),
            "x is [positions, heads · head_dim]"
        );
        self.run(|| {
            let args = [
                self.word("heads", width / head_dim)?,
                self.word("columns", head_dim / 2)?,
                f32_arg(direction),
                at(angles),
                Self::table_at(positions),
                to(&x),
            ];
            self.over("rope", x.len / 2, &args)
        });
    }

    fn attention(
        &self,
        shape: AttentionShape,
        segments: &CudaTable<L, SegmentRow>,
        q: Span<CudaBuf<L>>,
        k: Span<CudaBuf<L>>,
        v: Span<CudaBuf<L>>,
        out: SpanMut<CudaBuf<L>>,
        log_sums: SpanMut<CudaBuf<L>>,
    ) {
        let rows = log_sums.len / shape.heads;
        assert!(
            q.len == rows * shape.q_dim() && out.len == q.len,
            "q and out are [rows, heads · head_dim]"
        );
        assert!(
            k.len == rows * shape.kv_dim() && v.len == k.len,
            "k and v are [rows, kv_heads · head_dim]"
        );
        self.run(|| {
            let plan = self.attention_plan(shape)?;
            let tiles = self.query_tiles(segments, plan.forward)?;
            let [heads, kv_heads, head_dim, scale] = Self::shape_args(shape);
            let args = [
                Self::table_at(segments),
                tiles.memory.address(),
                heads,
                kv_heads,
                head_dim,
                scale,
                at(q),
                at(k),
                at(v),
                to(&out),
                to(&log_sums),
            ];
            let grid = self.grid(tiles.words / 2, shape.heads, 1)?;
            self.launch(plan.kernels[0], grid, plan.forward_bytes(), &args)
        });
    }

    fn attention_grad(
        &self,
        shape: AttentionShape,
        segments: &CudaTable<L, SegmentRow>,
        q: Span<CudaBuf<L>>,
        k: Span<CudaBuf<L>>,
        v: Span<CudaBuf<L>>,
        out: Span<CudaBuf<L>>,
        log_sums: Span<CudaBuf<L>>,
        dout: Span<CudaBuf<L>>,
        dq: SpanMut<CudaBuf<L>>,
        dk: SpanMut<CudaBuf<L>>,
        dv: SpanMut<CudaBuf<L>>,
    ) {
        let rows = log_sums.len / shape.heads;
        assert!(
            dq.len == rows * shape.q_dim()
                && q.len == dq.len
                && out.len == dq.len
                && dout.len == dq.len,
            "q, out and their gradients are [rows, heads · head_dim]"
        );
        assert!(
            dk.len == rows * shape.kv_dim()
                && dv.len == dk.len
                && k.len == dk.len
                && v.len == dk.len,
            "k, v and their gradients are [rows, kv_heads · head_dim]"
        );
        self.run(|| {
            let plan = self.attention_plan(shape)?;
            let queries = self.query_tiles(segments, plan.backward)?;
            let keys = self.derived(segments, Derived::KeyTiles(plan.backward), |it| {
                (plan::key_tiles(it, plan.backward), 0)
            })?;
            let [heads, kv_heads, head_dim, scale] = Self::shape_args(shape);
            let row_heads = rows * shape.heads;
            self.with_scratch(row_heads * size_of::<f32>(), |deltas| {
                let warps = THREADS as usize / 32;
                let grid = self.grid(row_heads.div_ceil(warps), 1, 1)?;
                let args = [row_heads as u64, head_dim, at(out), at(dout), deltas];
                self.launch("attention_deltas", grid, 0, &args)?;
                let common = |tiles: &Uploaded<L>| {
                    vec![
                        Self::table_at(segments),
                        tiles.memory.address(),
                        heads,
                        kv_heads,
                        head_dim,
                        scale,
                        at(q),
                        at(k),
                        at(v),
                        at(log_sums),
                        deltas,
                        at(dout),
                    ]
                };
                let mut args = common(&queries);
                args.push(to(&dq));
                let grid = self.grid(queries.words / 2, shape.heads, 1)?;
                self.launch(plan.kernels[1], grid, plan.backward_bytes(), &args)?;
                let mut args = common(&keys);
                args.extend([to(&dk), to(&dv)]);
                let grid = self.grid(keys.words / 4, shape.kv_heads, 1)?;
                self.launch(plan.kernels[2], grid, plan.backward_bytes(), &args)
            })
        });
    }

    fn attention_decode(
        &self,
        shape: AttentionShape,
        layer: usize,
        rows: &CudaTable<L, CacheRow>,
        cache: &CudaBuf<L>,
        q: Span<CudaBuf<L>>,
        k: Span<CudaBuf<L>>,
        v: Span<CudaBuf<L>>,
        out: SpanMut<CudaBuf<L>>,
    ) {
        let n = rows.items.len();
        assert!(
            q.len == n * shape.q_dim() && out.len == q.len,
            "q and out are [rows, heads · head_dim]"
        );
        assert!(
            k.len == n * shape.kv_dim() && v.len == k.len,
            "k and v are [rows, kv_heads · head_dim]"
        );
        if n == 0 {
            return;
        }
        self.run(|| {
            // Widths beyond this have no place in shared memory.
            self.attention_plan(shape)?;
            let parts = plan::decode_parts(&rows.items);
            let blocks = shape.kv_heads * shape.group().div_ceil(plan::DECODE_GROUP);
            let [heads, kv_heads, head_dim, scale] = Self::shape_args(shape);
            let table = Self::table_at(rows);
            let bytes = n * shape.heads * parts * (shape.head_dim + 2) * size_of::<f32>();
            self.with_scratch(bytes, |scratch| {
                let args = [
                    table,
                    layer as u64,
                    heads,
                    kv_heads,
                    head_dim,
                    scale,
                    cache.memory.address(),
                    at(q),
                    at(k),
                    at(v),
                    scratch,
                ];
                let grid = self.grid(n, blocks, parts)?;
                let shared = plan::decode_bytes(shape.head_dim);
                self.launch("decode_parts", grid, shared, &args)?;
                let args = [table, heads, head_dim, parts as u64, scratch, to(&out)];
                self.launch("decode_sum", self.grid(n, shape.heads, 1)?, 0, &args)
            })
        });
    }

    fn cache_append(
        &self,
        shape: AttentionShape,
        layer: usize,
        span: CacheSpan,
        k: Span<CudaBuf<L>>,
        v: Span<CudaBuf<L>>,
        cache: &mut CudaBuf<L>,
    ) {
        let tokens = k.len / shape.kv_dim();
        assert!(
            k.len == tokens * shape.kv_dim() && v.len == k.len,
            "k and v are [tokens, kv_heads · head_dim]"
        );
        assert!(
            span.len as usize + tokens <= span.capacity as usize,
            "a region has room for its tokens"
        );
        let args = [
            span.base,
            u64::from(span.capacity),
            u64::from(span.len),
            layer as u64,
            shape.kv_heads as u64,
            shape.head_dim as u64,
            at(k),
            at(v),
            cache.memory.address(),
        ];
        self.run(|| self.over("cache_append", k.len, &args));
    }

    fn cache_append_rows(
        &self,
        shape: AttentionShape,
        layers: usize,
        rows: &[CacheRow],
        k: Span<CudaBuf<L>>,
        v: Span<CudaBuf<L>>,
        cache: &mut CudaBuf<L>,
    ) {
        assert!(
            k.len == layers * rows.len() * shape.kv_dim() && v.len == k.len,
            "k and v are [layers, rows, kv_heads · head_dim]"
        );
        assert!(
            rows.iter().all(|it| it.own.len < it.own.capacity),
            "a region has room for its tokens"
        );
        let table = self.table(rows);
        self.run(|| {
            let args = [
                Self::table_at(&table),
                self.word("rows", rows.len())?,
                shape.kv_heads as u64,
                shape.head_dim as u64,
                at(k),
                at(v),
                cache.memory.address(),
            ];
            self.over("cache_append_rows", k.len, &args)
        });
    }

    fn swiglu(&self, gate: Span<CudaBuf<L>>, up: Span<CudaBuf<L>>, h: SpanMut<CudaBuf<L>>) {
        assert!(gate.len == h.len && up.len == h.len, "equal shapes");
        self.run(|| self.over("swiglu", h.len, &[at(gate), at(up), to(&h)]));
    }

    fn swiglu_grad(
        &self,
        gate: SpanMut<CudaBuf<L>>,
        up: SpanMut<CudaBuf<L>>,
        dh: SpanMut<CudaBuf<L>>,
    ) {
        assert!(gate.len == dh.len && up.len == dh.len, "equal shapes");
        self.run(|| self.over("swiglu_grad", dh.len, &[to(&gate), to(&up), to(&dh)]));
    }

    fn embed(
        &self,
        layout: EmbeddingLayout,
        tokens: &CudaTable<L, u32>,
        embedding: Span<CudaBuf<L>>,
        x: SpanMut<CudaBuf<L>>,
    ) {
        match layout {
            EmbeddingLayout::Rows { width } => self.gather_rows(width, tokens, embedding, x),
            EmbeddingLayout::Columns { vocabulary } => {
                let width = embedding.len / vocabulary;
                assert_eq!(x.len, tokens.items.len() * width, "x is [tokens, width]");
                self.run(|| {
                    let args = [
                        self.word("columns", width)?,
                        self.word("tokens", vocabulary)?,
                        Self::table_at(tokens),
                        at(embedding),
                        to(&x),
                    ];
                    self.over("embed_columns", x.len, &args)
                });
            }
        }
    }

    fn embed_grad(
        &self,
        layout: EmbeddingLayout,
        tokens: &CudaTable<L, u32>,
        dx: Span<CudaBuf<L>>,
        dembedding: SpanMut<CudaBuf<L>>,
    ) {
        let (width, token_stride, width_stride) = match layout {
            EmbeddingLayout::Rows { width } => (width, width, 1),
            EmbeddingLayout::Columns { vocabulary } => (dembedding.len / vocabulary, 1, vocabulary),
        };
        assert_eq!(dx.len, tokens.items.len() * width, "dx is [tokens, width]");
        self.run(|| {
            let groups = self.derived(tokens, Derived::TokenGroups, |it| {
                let groups = plan::token_groups(it);
                let words = [&groups.ids[..], &groups.starts, &groups.rows].concat();
                (words, groups.ids.len())
            })?;
            let ids = groups.memory.address();
            let starts = ids + (groups.groups * size_of::<u32>()) as u64;
            let rows = starts + ((groups.groups + 1) * size_of::<u32>()) as u64;
            let args = [
                self.word("columns", width)?,
                token_stride as u64,
                width_stride as u64,
                ids,
                starts,
                rows,
                at(dx),
                to(&dembedding),
            ];
            let grid = self.grid(groups.groups, 1, 1)?;
            self.launch("embed_grad", grid, 0, &args)
        });
    }

    fn gather_rows(
        &self,
        width: usize,
        rows: &CudaTable<L, u32>,
        x: Span<CudaBuf<L>>,
        y: SpanMut<CudaBuf<L>>,
    ) {
        assert_eq!(y.len, rows.items.len() * width, "y is [rows, width]");
        self.run(|| {
            let width = self.word("columns", width)?;
            let args = [width, Self::table_at(rows), at(x), to(&y)];
            self.over("gather_rows", y.len, &args)
        });
    }

    fn scatter_rows(
        &self,
        width: usize,
        rows: &CudaTable<L, u32>,
        y: Span<CudaBuf<L>>,
        x: SpanMut<CudaBuf<L>>,
    ) {
        assert_eq!(y.len, rows.items.len() * width, "y is [rows, width]");
        self.run(|| {
            self.inner.launcher.zero(to(&x), x.len * size_of::<f32>())?;
            let width = self.word("columns", width)?;
            let args = [width, Self::table_at(rows), at(y), to(&x)];
            self.over("scatter_rows", y.len, &args)
        });
    }

    fn head(
        &self,
        vocabulary: usize,
        targets: &CudaTable<L, HeadTarget>,
        part: HeadPart,
        logits: Span<CudaBuf<L>>,
        stats: SpanMut<CudaBuf<L>>,
    ) {
        assert_eq!(
            logits.len,
            part.rows * vocabulary,
            "logits are [rows, vocabulary]"
        );
        assert_eq!(stats.len, targets.items.len() * 6, "stats are [targets, 6]");
        self.run(|| {
            let args = [
                self.word("tokens", vocabulary)?,
                part.first_row as u64,
                part.first_target as u64,
                Self::table_at(targets),
                at(logits),
                to(&stats),
            ];
            let grid = self.grid(part.targets, 1, 1)?;
            self.launch("head", grid, plan::reduction_bytes(8), &args)
        });
    }

    fn head_grad(
        &self,
        vocabulary: usize,
        targets: &CudaTable<L, HeadTarget>,
        part: HeadPart,
        stats: Span<CudaBuf<L>>,
        gradients: Span<CudaBuf<L>>,
        logits: SpanMut<CudaBuf<L>>,
    ) {
        assert_eq!(
            logits.len,
            part.rows * vocabulary,
            "logits are [rows, vocabulary]"
        );
        self.run(|| {
            let args = [
                self.word("tokens", vocabulary)?,
                part.first_row as u64,
                part.first_target as u64,
                part.targets as u64,
                Self::table_at(targets),
                at(stats),
                at(gradients),
                to(&logits),
            ];
            self.launch("head_grad", self.grid(part.rows, 1, 1)?, 0, &args)
        });
    }

    fn squared_norm(&self, x: Span<CudaBuf<L>>) -> f64 {
        let mut sum = 0.0;
        self.run(|| {
            let parts: Vec<f64> =
                self.numbers_of_blocks("squared_norm", plan::reduction_bytes(8), x)?;
            sum = parts.into_iter().sum();
            Ok(())
        });
        sum
    }

    fn adamw(
        &self,
        step: AdamW,
        gradient: Span<CudaBuf<L>>,
        parameter: SpanMut<CudaBuf<L>>,
        first_moment: SpanMut<CudaBuf<L>>,
        second_moment: SpanMut<CudaBuf<L>>,
    ) {
        for part in [&parameter, &first_moment, &second_moment] {
            assert_eq!(
                part.len, gradient.len,
                "parameters and moments as long as the gradient"
            );
        }
        let f = step.factors();
        let mut args: Vec<u64> = [
            f.gradient,
            f.decay,
            f.beta1,
            f.one_less_beta1,
            f.beta2,
            f.one_less_beta2,
            f.rate,
            f.root_correction,
            f.epsilon,
        ]
        .into_iter()
        .map(f32_arg)
        .collect();
        args.extend([
            at(gradient),
            to(&parameter),
            to(&first_moment),
            to(&second_moment),
        ]);
        self.run(|| self.over("adamw", gradient.len, &args));
    }
}

/// A matrix as it lies.
fn plain(address: u64, stride: usize) -> Matrix {
    Matrix {
        address,
        stride,
        transposed: false,
    }
}

/// `y = x · w`, by columns: yᵀ = wᵀ · xᵀ.
fn forward_product(shape: MatShape, x: u64, w: u64, add: bool, y: u64) -> Product {
    Product {
        m: shape.outputs,
        n: shape.rows,
        k: shape.inputs,
        number: Number::F32,
        left: plain(w, shape.outputs),
        right: plain(x, shape.inputs),
        add,
        out: plain(y, shape.outputs),
    }
}
