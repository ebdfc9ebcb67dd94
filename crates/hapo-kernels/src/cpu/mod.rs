//! The CPU as a [`Device`].
//!
//! Purpose: products by `gemm` on tiles, fused kernels on blocks of rows, spread over an own pool of
//! threads. Tiles and blocks depend on shapes alone.
//!
//! Price: buffers are over-allocated by one cache line so that every tensor starts on one.

mod adamw;
mod attention;
mod bf16;
mod cache;
mod embedding;
mod head;
mod matmul;
mod memory;
mod moments;
mod norm;
mod packed;
mod rope;
mod share;
mod split;
mod swiglu;
mod trace;

use std::panic::Location;
use std::sync::{Arc, Mutex};

use rayon::prelude::*;

use crate::compute::Compute;
use crate::device::{
    Accumulate, AdamW, AttentionShape, Buffer, CacheLayer, CacheRow, Device, DeviceError, DrawRow,
    DrawnToken, EmbeddingLayout, HeadPart, HeadTarget, MatShape, SegmentRow, Span, SpanMut,
    TableItem,
};
use crate::draw::draw;
use crate::isa::multiplies_bf16;
use crate::moments::MomentsMut;
use moments::Moments;
pub use trace::TracedCall;
use trace::{Trace, stage_of};

/// Elements of a cache line.
const LINE: usize = 16;

/// The CPU: a pool of threads of its own.
#[derive(Clone, Debug)]
pub struct Cpu {
    pool: Arc<rayon::ThreadPool>,
    threads: usize,
    serial: bool,
    compute: Compute,
    /// The largest copy that a product has made.
    copy: Arc<Mutex<Option<CpuBuf>>>,
    /// Where tasks are run one after the other and timed.
    trace: Option<Arc<Trace>>,
}

impl Cpu {
    /// A device with `threads` workers, whose products are of f32 factors; 0 takes one per available core.
    pub fn new(threads: usize) -> Result<Self, DeviceError> {
        Self::computing(threads, Compute::F32)
    }

    /// The same, with products of factors that are rounded so.
    ///
    /// # Errors
    /// Products that the CPU has no instructions for.
    pub fn computing(threads: usize, compute: Compute) -> Result<Self, DeviceError> {
        if let Some((problem, hint)) = refusal(compute) {
            return Err(DeviceError::Compute {
                problem: format!("compute = \"{compute}\": {problem}"),
                hint,
            });
        }
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n,
        };
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("hapo-cpu-{i}"))
            .build()
            .map_err(|error| DeviceError::Threads { threads, reason: error.to_string() })?;
        let (pool, serial) = (Arc::new(pool), threads == 1);
        Ok(Self { pool, threads, serial, compute, copy: Arc::default(), trace: None })
    }

    /// A device of one thread that cuts its work as for `workers` of them, and times every task.
    ///
    /// # Errors
    /// Those of [`Cpu::computing`].
    pub fn tracing(workers: usize, compute: Compute) -> Result<Self, DeviceError> {
        let one = Self::computing(1, compute)?;
        Ok(Self { threads: workers, trace: Some(Arc::default()), ..one })
    }

    /// The calls since it was last asked, of a device that times its tasks.
    pub fn take_trace(&self) -> Vec<TracedCall> {
        self.trace.as_ref().map_or_else(Vec::new, |it| it.take())
    }

    /// Number of workers.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Numbers of `f32` that a packed matrix `[inputs, outputs]` takes.
    pub fn packed_words(compute: Compute, inputs: usize, outputs: usize) -> usize {
        match compute {
            Compute::Bf16 => bf16::words(inputs, outputs),
            _ => packed::words(inputs, outputs),
        }
    }

    /// Bytes that a product and its gradients take beside their results, one at a time; kept for the next one.
    pub fn copied_bytes(compute: Compute, shape: MatShape) -> usize {
        let numbers = match compute {
            Compute::Bf16 => bf16::copied(shape),
            _ => matmul::copied(shape),
        };
        numbers * size_of::<f32>()
    }

    /// Runs `task(0..tasks)`, on the pool unless this handle is serial.
    #[track_caller]
    fn for_tasks(&self, tasks: usize, task: impl Fn(usize) + Sync + Send) {
        if let Some(trace) = &self.trace {
            trace.run(stage_of(Location::caller()), tasks, task);
        } else if self.serial || tasks <= 1 {
            (0..tasks).for_each(task);
        } else {
            self.pool.install(|| {
                (0..tasks).into_par_iter().with_max_len(1).for_each(task);
            });
        }
    }

    /// As [`Cpu::for_tasks`], results in task order.
    #[track_caller]
    fn map_tasks<R: Send>(&self, tasks: usize, task: impl Fn(usize) -> R + Sync + Send) -> Vec<R> {
        if let Some(trace) = &self.trace {
            trace.run(stage_of(Location::caller()), tasks, task)
        } else if self.serial || tasks <= 1 {
            (0..tasks).map(task).collect()
        } else {
            self.pool.install(|| (0..tasks).into_par_iter().with_max_len(1).map(task).collect())
        }
    }
}

/// Why the CPU has no such products, and what can be done.
fn refusal(compute: Compute) -> Option<(&'static str, &'static str)> {
    match compute {
        Compute::Bf16 if !multiplies_bf16() => Some((
            "the CPU has no products of bf16 numbers (AVX-512 BF16, the feature avx512_bf16)",
            "compute = \"f32\" runs on every CPU, and reads weights that are stored in bf16 as bf16 where it decodes",
        )),
        Compute::Tf32 => Some((
            "the CPU has no TF32 products",
            "compute = \"f32\" and compute = \"bf16\" are what a CPU has",
        )),
        Compute::F32 | Compute::Bf16 => None,
    }
}

/// A buffer in main memory, aligned to a cache line.
#[derive(Debug)]
pub struct CpuBuf {
    data: Vec<f32>,
    start: usize,
    len: usize,
}

impl CpuBuf {
    fn zeros(len: usize) -> Result<Self, DeviceError> {
        let bytes = len.saturating_mul(size_of::<f32>());
        let refused = DeviceError::Allocation { bytes };
        let Some(total) = len.checked_add(LINE) else {
            return Err(refused);
        };
        if Vec::<f32>::new().try_reserve_exact(total).is_err() {
            return Err(refused);
        }
        // `vec!` asks for zeroed pages, which cost nothing until they are touched.
        let data = vec![0.0_f32; total];
        ask_for_huge_pages(&data);
        let misaligned = (data.as_ptr().addr() / size_of::<f32>()) % LINE;
        Ok(Self { start: (LINE - misaligned) % LINE, data, len })
    }

    /// The elements.
    pub fn as_slice(&self) -> &[f32] {
        &self.data[self.start..self.start + self.len]
    }

    /// The elements, to write.
    pub fn as_mut_slice(&mut self) -> &mut [f32] {
        &mut self.data[self.start..self.start + self.len]
    }
}

/// A product walks down columns of a matrix, a page per step: with 2 MiB pages it does not wait for
/// addresses. Only advice; nothing depends on it.
#[cfg(target_os = "linux")]
fn ask_for_huge_pages(data: &[f32]) {
    const HUGE: usize = 2 << 20;
    let start = data.as_ptr().addr().next_multiple_of(HUGE);
    let end = (data.as_ptr().addr() + size_of_val(data)) / HUGE * HUGE;
    if start < end {
        let pointer = data.as_ptr().with_addr(start).cast_mut().cast();
        // SAFETY: the range is inside the allocation; this advice changes no contents.
        unsafe { libc::madvise(pointer, end - start, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(not(target_os = "linux"))]
fn ask_for_huge_pages(_: &[f32]) {}

impl Buffer for CpuBuf {
    fn len(&self) -> usize {
        self.len
    }
}

impl<'a> Span<'a, CpuBuf> {
    fn read(self) -> &'a [f32] {
        &self.buf.as_slice()[self.offset..self.offset + self.len]
    }
}

impl<'a> SpanMut<'a, CpuBuf> {
    fn write(self) -> &'a mut [f32] {
        &mut self.buf.as_mut_slice()[self.offset..self.offset + self.len]
    }
}

impl Device for Cpu {
    type Buf = CpuBuf;
    type Table<T: TableItem> = Vec<T>;

    fn alloc(&self, len: usize) -> Result<CpuBuf, DeviceError> {
        CpuBuf::zeros(len)
    }

    fn table<T: TableItem>(&self, items: &[T]) -> Vec<T> {
        items.to_vec()
    }

    fn compute(&self) -> Compute {
        self.compute
    }

    fn free_bytes(&self) -> Option<u64> {
        memory::free_bytes()
    }

    fn upload(&self, src: &[f32], dst: SpanMut<CpuBuf>) {
        dst.write().copy_from_slice(src);
    }

    fn download(&self, src: Span<CpuBuf>, dst: &mut [f32]) {
        dst.copy_from_slice(src.read());
    }

    fn copy(&self, src: Span<CpuBuf>, dst: SpanMut<CpuBuf>) {
        dst.write().copy_from_slice(src.read());
    }

    fn fill(&self, dst: SpanMut<CpuBuf>, value: f32) {
        dst.write().fill(value);
    }

    fn scale(&self, x: SpanMut<CpuBuf>, factor: f32) {
        x.write().iter_mut().for_each(|it| *it *= factor);
    }

    fn enter<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        if self.serial { work() } else { self.pool.install(work) }
    }

    fn blocks(&self, rows: usize, weight_bytes: usize) -> usize {
        // Blocks read the weights once each: worth it while these stay in the caches. Up to 48 rows a
        // product reads the weights in place instead of packing them first.
        const CACHED: usize = 24 << 20;
        const FEW: usize = 12;
        const MANY: usize = 48;
        if weight_bytes > CACHED {
            1
        } else {
            let least = rows.div_ceil(MANY);
            (rows / FEW)
                .clamp(1, self.threads)
                .max(least.next_multiple_of(self.threads).min(rows.div_ceil(FEW)))
        }
    }

    fn each<T: Send>(&self, items: &mut [T], work: impl Fn(&Self, &mut T) + Sync) {
        if items.len() <= 1 || self.serial && self.trace.is_none() {
            for item in items {
                work(self, item);
            }
            return;
        }
        let alone = Self { serial: true, trace: None, ..self.clone() };
        if let Some(trace) = &self.trace {
            trace.run("blocks of rows", items.len(), |index| work(&alone, &mut items[index]));
            return;
        }
        self.pool.install(|| {
            items.par_iter_mut().with_max_len(1).for_each(|item| work(&alone, item));
        });
    }

    fn matmul(
        &self,
        shape: MatShape,
        x: Span<CpuBuf>,
        w: Span<CpuBuf>,
        onto: Accumulate<CpuBuf>,
        y: SpanMut<CpuBuf>,
    ) {
        let onto = matmul::Start::of(&onto);
        matmul::forward(self, shape, x.read(), w.read(), onto, y.write());
    }

    fn packed_len(&self, inputs: usize, outputs: usize) -> Option<usize> {
        Some(Self::packed_words(self.compute, inputs, outputs))
    }

    fn pack(&self, shape: [usize; 2], first: usize, w: Span<CpuBuf>, to: SpanMut<CpuBuf>) {
        let pack = if self.splits_weights() { bf16::pack } else { packed::pack };
        let ([inputs, _], outputs) = (shape, w.len / shape[0]);
        // The packed form of a matrix is that of its first outputs followed by that of the others.
        let words = |outputs| Self::packed_words(self.compute(), inputs, outputs);
        let at = words(first);
        pack(self, inputs, outputs, w.read(), &mut to.write()[at..at + words(outputs)]);
    }

    fn is_bf16(&self, x: Span<CpuBuf>) -> bool {
        packed::is_bf16(self, x.read())
    }

    fn matmul_packed(
        &self,
        shape: MatShape,
        x: Span<CpuBuf>,
        packed: Span<CpuBuf>,
        onto: Accumulate<CpuBuf>,
        y: SpanMut<CpuBuf>,
    ) {
        let onto = matmul::Start::of(&onto);
        let forward = if self.splits_weights() { bf16::forward } else { packed::forward };
        forward(self, shape, x.read(), packed.read(), onto, y.write());
    }

    fn computes_packed(&self) -> bool {
        true
    }

    fn splits_weights(&self) -> bool {
        self.compute == Compute::Bf16
    }

    fn upload_split(
        &self,
        shape: [usize; 2],
        first: usize,
        src: &[f32],
        packed: SpanMut<CpuBuf>,
        tails: SpanMut<CpuBuf>,
    ) {
        split::upload(shape, first, src, packed.write(), tails.write());
    }

    fn download_split(
        &self,
        shape: [usize; 2],
        first: usize,
        packed: Span<CpuBuf>,
        tails: Span<CpuBuf>,
        dst: &mut [f32],
    ) {
        split::download(shape, first, packed.read(), tails.read(), dst);
    }

    fn squared_norm_split(&self, packed: Span<CpuBuf>, tails: Span<CpuBuf>) -> f64 {
        split::squared_norm(self, packed.read(), tails.read())
    }

    fn adamw_split(
        &self,
        step: AdamW,
        shape: [usize; 2],
        gradient: Span<CpuBuf>,
        packed: SpanMut<CpuBuf>,
        tails: SpanMut<CpuBuf>,
        moments: MomentsMut<CpuBuf>,
    ) {
        let moments = Moments::of(moments, gradient.len, step.step);
        let weights = [packed.write(), tails.write()];
        split::adamw(self, step, shape, gradient.read(), weights, moments);
    }

    fn unpack(&self, inputs: usize, outputs: usize, from: Span<CpuBuf>, w: SpanMut<CpuBuf>) {
        let unpack = if self.splits_weights() { bf16::unpack } else { packed::unpack };
        unpack(self, inputs, outputs, from.read(), w.write());
    }

    fn matmul_packed_input_grad(
        &self,
        shape: MatShape,
        dy: Span<CpuBuf>,
        packed: Span<CpuBuf>,
        onto: Accumulate<CpuBuf>,
        dx: SpanMut<CpuBuf>,
    ) {
        let onto = matmul::Start::of(&onto);
        let grad = if self.splits_weights() { bf16::input_grad } else { packed::input_grad };
        grad(self, shape, dy.read(), packed.read(), onto, dx.write());
    }

    fn embed_packed(
        &self,
        width: usize,
        tokens: &Vec<u32>,
        packed: Span<CpuBuf>,
        x: SpanMut<CpuBuf>,
    ) {
        let embed = if self.splits_weights() { bf16::embed } else { packed::embed };
        embed(self, width, tokens, packed.read(), x.write());
    }

    fn matmul_input_grad(
        &self,
        shape: MatShape,
        dy: Span<CpuBuf>,
        w: Span<CpuBuf>,
        onto: Accumulate<CpuBuf>,
        dx: SpanMut<CpuBuf>,
    ) {
        let onto = matmul::Start::of(&onto);
        matmul::input_grad(self, shape, dy.read(), w.read(), onto, dx.write());
    }

    fn matmul_weight_grad(
        &self,
        shape: MatShape,
        x: Span<CpuBuf>,
        dy: Span<CpuBuf>,
        onto: Accumulate<CpuBuf>,
        dw: SpanMut<CpuBuf>,
    ) {
        let onto = matmul::Start::of(&onto);
        let grad = if self.splits_weights() { bf16::weight_grad } else { matmul::weight_grad };
        grad(self, shape, x.read(), dy.read(), onto, dw.write());
    }

    fn add_column_sums(&self, width: usize, dy: Span<CpuBuf>, out: SpanMut<CpuBuf>) {
        norm::add_column_sums(self, width, dy.read(), out.write());
    }

    fn rms_norm(
        &self,
        eps: f32,
        x: Span<CpuBuf>,
        w: Span<CpuBuf>,
        y: SpanMut<CpuBuf>,
        inverse_rms: SpanMut<CpuBuf>,
        residual: Option<SpanMut<CpuBuf>>,
    ) {
        norm::rms_norm(
            self,
            eps,
            x.read(),
            w.read(),
            y.write(),
            inverse_rms.write(),
            residual.map(SpanMut::write),
        );
    }

    fn rms_norm_grad(
        &self,
        x: Span<CpuBuf>,
        w: Span<CpuBuf>,
        inverse_rms: Span<CpuBuf>,
        dy: Span<CpuBuf>,
        onto: Accumulate<CpuBuf>,
        dx: SpanMut<CpuBuf>,
        dw: SpanMut<CpuBuf>,
    ) {
        norm::rms_norm_grad(
            self,
            x.read(),
            w.read(),
            inverse_rms.read(),
            dy.read(),
            &matmul::Start::of(&onto),
            dx.write(),
            dw.write(),
        );
    }

    fn rope(
        &self,
        head_dim: usize,
        direction: f32,
        angles: Span<CpuBuf>,
        positions: &Vec<u32>,
        x: SpanMut<CpuBuf>,
    ) {
        rope::rope(self, head_dim, direction, angles.read(), positions, x.write());
    }

    fn attention(
        &self,
        shape: AttentionShape,
        segments: &Vec<SegmentRow>,
        q: Span<CpuBuf>,
        k: Span<CpuBuf>,
        v: Span<CpuBuf>,
        out: SpanMut<CpuBuf>,
        log_sums: SpanMut<CpuBuf>,
    ) {
        attention::forward(
            self,
            shape,
            segments,
            [q.read(), k.read(), v.read()],
            out.write(),
            log_sums.write(),
        );
    }

    fn attention_grad(
        &self,
        shape: AttentionShape,
        segments: &Vec<SegmentRow>,
        q: Span<CpuBuf>,
        k: Span<CpuBuf>,
        v: Span<CpuBuf>,
        out: Span<CpuBuf>,
        log_sums: Span<CpuBuf>,
        dout: Span<CpuBuf>,
        dq: SpanMut<CpuBuf>,
        dk: SpanMut<CpuBuf>,
        dv: SpanMut<CpuBuf>,
    ) {
        attention::backward(
            self,
            shape,
            segments,
            &attention::Saved {
                q: q.read(),
                k: k.read(),
                v: v.read(),
                out: out.read(),
                log_sums: log_sums.read(),
                dout: dout.read(),
            },
            [dq.write(), dk.write(), dv.write()],
        );
    }

    fn attention_decode(
        &self,
        shape: AttentionShape,
        layer: CacheLayer,
        rows: &Vec<CacheRow>,
        pages: &Vec<u32>,
        cache: &CpuBuf,
        q: Span<CpuBuf>,
        k: Span<CpuBuf>,
        v: Span<CpuBuf>,
        out: SpanMut<CpuBuf>,
    ) {
        cache::attention_decode(
            self,
            shape,
            layer,
            (rows, pages),
            cache.as_slice(),
            [q.read(), k.read(), v.read()],
            out.write(),
        );
    }

    fn round_to_bf16(&self, x: SpanMut<CpuBuf>) {
        bf16::round(self, x.write());
    }

    fn cache_append(
        &self,
        shape: AttentionShape,
        first: CacheLayer,
        cells: &Vec<u32>,
        k: Span<CpuBuf>,
        v: Span<CpuBuf>,
        cache: &mut CpuBuf,
    ) {
        cache::append(self, shape, first, cells, [k.read(), v.read()], cache.as_mut_slice());
    }

    fn swiglu(&self, gate: Span<CpuBuf>, up: Span<CpuBuf>, h: SpanMut<CpuBuf>) {
        swiglu::forward(self, gate.read(), up.read(), h.write());
    }

    fn swiglu_grad(&self, gate: SpanMut<CpuBuf>, up: SpanMut<CpuBuf>, dh: SpanMut<CpuBuf>) {
        swiglu::backward(self, gate.write(), up.write(), dh.write());
    }

    fn embed(
        &self,
        layout: EmbeddingLayout,
        tokens: &Vec<u32>,
        embedding: Span<CpuBuf>,
        x: SpanMut<CpuBuf>,
    ) {
        embedding::embed(self, layout, tokens, embedding.read(), x.write());
    }

    fn embed_grad(
        &self,
        layout: EmbeddingLayout,
        tokens: &Vec<u32>,
        dx: Span<CpuBuf>,
        dembedding: SpanMut<CpuBuf>,
    ) {
        embedding::embed_grad(self, layout, tokens, dx.read(), dembedding.write());
    }

    fn gather_rows(&self, width: usize, rows: &Vec<u32>, x: Span<CpuBuf>, y: SpanMut<CpuBuf>) {
        embedding::gather_rows(self, width, rows, x.read(), y.write());
    }

    fn scatter_rows(&self, width: usize, rows: &Vec<u32>, y: Span<CpuBuf>, x: SpanMut<CpuBuf>) {
        embedding::scatter_rows(self, width, rows, y.read(), x.write());
    }

    fn head(
        &self,
        vocabulary: usize,
        targets: &Vec<HeadTarget>,
        part: HeadPart,
        logits: Span<CpuBuf>,
        stats: SpanMut<CpuBuf>,
    ) {
        head::forward(self, vocabulary, targets, part, logits.read(), stats.write());
    }

    fn head_grad(
        &self,
        vocabulary: usize,
        targets: &Vec<HeadTarget>,
        part: HeadPart,
        stats: Span<CpuBuf>,
        gradients: Span<CpuBuf>,
        logits: SpanMut<CpuBuf>,
    ) {
        head::backward(
            self,
            vocabulary,
            targets,
            part,
            stats.read(),
            gradients.read(),
            logits.write(),
        );
    }

    fn draw(
        &self,
        vocabulary: usize,
        usable: usize,
        rows: &[DrawRow],
        logits: Span<CpuBuf>,
    ) -> Vec<DrawnToken> {
        let logits = logits.read();
        self.map_tasks(rows.len(), |task| {
            let it = rows[task];
            draw(&logits[it.row as usize * vocabulary..][..vocabulary], it, usable)
        })
    }

    fn squared_norm(&self, x: Span<CpuBuf>) -> f64 {
        adamw::squared_norm(self, x.read())
    }

    fn adamw(
        &self,
        step: AdamW,
        gradient: Span<CpuBuf>,
        parameter: SpanMut<CpuBuf>,
        moments: MomentsMut<CpuBuf>,
    ) {
        let moments = Moments::of(moments, gradient.len, step.step);
        adamw::adamw(self, step, gradient.read(), parameter.write(), moments);
    }
}
