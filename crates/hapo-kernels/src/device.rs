//! The seam between the decoder and the machine it runs on.
//!
//! Purpose: name every operation once, over flat buffers and weight matrices, with nothing in the signatures that only
//! one kind of memory could honour. Host data cross by `upload`, `download`, `write`, `read` and `table` alone. How a
//! weight matrix is held is the device's own type: a further number format is one more variant of it.
//!
//! Price: operations are as coarse as the fused kernels behind them, so the trait is the list of
//! kernels a new device has to write.

use std::fmt::Debug;

use crate::device_caps::DeviceCaps;
use crate::error::Result;
use crate::moments::MomentsMut;
use crate::number_format::NumberFormat;
use crate::shapes::{
    Accumulate, Activation, AdamW, AttentionShape, BufferSize, CacheLayer, CacheRow, DrawRow,
    DrawnToken, EmbeddingLayout, HeadPart, HeadTarget, MatShape, SegmentRow, TableItem,
};
use crate::span::{Buffer, Span, SpanMut};
use crate::weight::{Heads, LowRank, Matrix, Numbers, Output, Paired, Placed};

/// A machine that runs the decoder.
///
/// Lengths of spans are products of the stated shapes; a mismatch is a bug above and panics.
///
/// Operations return nothing, since a GPU only enqueues them. A failure is kept until the next [`Device::check`];
/// operations after it do nothing.
pub trait Device: Clone + Send + Sync + Debug + 'static {
    /// A flat buffer of numbers.
    type Buf: Buffer;
    /// A matrix `[inputs, outputs]` that products multiply by, in a form of the device's own.
    type Weight: Matrix<Self>;
    /// A small table of integers, written once per batch.
    type Table<T: TableItem>: Send + Sync + Debug;

    /// Its caps, by which buffers are laid out and memory is counted.
    fn caps(&self) -> DeviceCaps;
    /// A buffer of `size` zeros in f32, or in a format that [`DeviceCaps`] names; lengths and offsets count numbers. Factors
    /// and results of products, and operations between two products, may be in bf16: results are computed in f32 and
    /// rounded when stored. Of an operation's buffers that may be in bf16, all are or none.
    fn alloc(&self, size: impl Into<BufferSize>, format: NumberFormat) -> Result<Self::Buf>;
    /// Copies a table to the device.
    fn table<T: TableItem>(&self, items: &[T]) -> Self::Table<T>;
    /// Host to device.
    fn upload(&self, src: &[f32], dst: SpanMut<Self::Buf>);
    /// Device to host.
    fn download(&self, src: Span<Self::Buf>, dst: &mut [f32]);
    /// Device to device, equal lengths.
    fn copy(&self, src: Span<Self::Buf>, dst: SpanMut<Self::Buf>);
    /// Sets every element.
    fn fill(&self, dst: SpanMut<Self::Buf>, value: f32);
    /// Multiplies every element.
    fn scale(&self, x: SpanMut<Self::Buf>, factor: f32);

    /// Bytes of memory that this process may still take there; `None` where nothing says so.
    fn free_bytes(&self) -> Option<u64>;

    /// The most bytes of its memory in use at once since the last call; `None` where nothing says so.
    fn peak_bytes(&self) -> Option<u64> {
        None
    }

    /// Forward products so far whose rows may depend on the rows beside them, because a library refused the algorithm that
    /// is the same for all; `None` where nothing counts them.
    fn refused_products(&self) -> Option<u64> {
        None
    }

    /// The first failure since the last call, which clears it. Earlier results hold only if there is none; on the CPU
    /// there never is.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Runs `work` where operations are cheap to start. Results do not depend on it.
    fn enter<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R;
    /// Runs `work`, whose operations are likely those of an earlier call: a GPU may begin all of them by one call.
    fn repeated(&self, work: impl FnOnce()) {
        work();
    }
    /// Runs `work` on every item, concurrently where the device can, each with a handle that does
    /// not share work with the others.
    fn each<T: Send>(&self, items: &mut [T], work: impl Fn(&Self, &mut T) + Sync);

    /// `y [rows, outputs] = onto + x [rows, inputs] · w` for each of some matrices of one shape.
    fn product<const N: usize>(
        &self,
        shape: MatShape,
        x: Span<Self::Buf>,
        to: [Output<'_, Self::Buf, Self::Weight>; N],
    );
    /// [`Device::product`] of matrices with pairs: `y = onto + x·w + s·(x·A)·B`. There is room for `s·(x·A)` of each
    /// in `low`, or behind the rows of `x`.
    fn product_with_pairs<const N: usize>(
        &self,
        shape: MatShape,
        x: Span<Self::Buf>,
        low: &mut [Self::Buf; 2],
        to: [Paired<'_, Self::Buf, Self::Weight>; N],
    ) {
        let low_shape = to[0].pair.low_shape(shape);
        let len = low_shape.rows * low_shape.outputs;
        let mut rooms = low.iter_mut();
        let lows = to.each_ref().map(|Paired { pair: LowRank { a, scale, .. }, .. }| {
            let y = rooms.next().expect("room for each").first_mut(len);
            Output { weight: *a, onto: Accumulate::Multiplied(*scale), y }
        });
        self.product(low_shape, x, lows);
        let pairs = to.each_ref().map(|it| it.pair.b);
        let mut to = to.map(|it| it.output);
        let outputs = to.each_mut().map(|it| {
            let onto = std::mem::replace(&mut it.onto, Accumulate::Existing);
            Output { weight: it.weight, onto, y: it.y.again() }
        });
        self.product(shape, x, outputs);
        let shape = MatShape { inputs: low_shape.outputs, ..shape };
        for ((it, b), low) in to.into_iter().zip(pairs).zip(&*low) {
            self.product(shape, low.first(len), [Output { weight: b, ..it }]);
        }
    }
    /// `dx [rows, inputs] = onto + dy [rows, outputs] · wᵀ`; `onto` is never a bias.
    fn product_input_grad(
        &self,
        shape: MatShape,
        dy: Span<Self::Buf>,
        w: &Self::Weight,
        onto: Accumulate<Self::Buf>,
        dx: SpanMut<Self::Buf>,
    );
    /// `dw [inputs, outputs] = onto + xᵀ · dy`; `onto` is never a bias.
    fn product_weight_grad(
        &self,
        shape: MatShape,
        x: Span<Self::Buf>,
        dy: Span<Self::Buf>,
        onto: Accumulate<Self::Buf>,
        dw: SpanMut<Self::Buf>,
    );
    /// `out [width] += Σ_rows dy [rows, width]`: the gradient of a bias.
    fn add_column_sums(&self, width: usize, dy: Span<Self::Buf>, out: SpanMut<Self::Buf>);

    /// `y += factor · x`.
    fn add(&self, factor: f32, x: Span<Self::Buf>, y: SpanMut<Self::Buf>);

    /// `y = x · r ⊙ (offset + w)` per row, `r = 1/√(mean(x²) + eps)`, saved in `inverse_rms [rows]`. When
    /// `residual` is given, `x` is copied there too: the next product is added to it.
    fn rms_norm(
        &self,
        eps: f32,
        offset: f32,
        x: Span<Self::Buf>,
        w: Span<Self::Buf>,
        y: SpanMut<Self::Buf>,
        inverse_rms: SpanMut<Self::Buf>,
        residual: Option<SpanMut<Self::Buf>>,
    );
    /// `dx = onto + …`, `dw += …` of [`Device::rms_norm`]; `onto` is never a bias.
    fn rms_norm_grad(
        &self,
        offset: f32,
        x: Span<Self::Buf>,
        w: Span<Self::Buf>,
        inverse_rms: Span<Self::Buf>,
        dy: Span<Self::Buf>,
        onto: Accumulate<Self::Buf>,
        dx: SpanMut<Self::Buf>,
        dw: SpanMut<Self::Buf>,
    );

    /// Turns the leading numbers of heads by the angles of their positions; `angles [positions, rotated]` holds cosines
    /// then sines of half of them.
    fn rope(
        &self,
        shape: AttentionShape,
        angles: Span<Self::Buf>,
        positions: &Self::Table<u32>,
        heads: Heads<'_, Self::Buf>,
    );

    /// Causal attention of packed segments: `q, out [rows, heads · head_dim]`,
    /// `k, v [rows, kv_heads · head_dim]`, `log_sums [rows, heads]` for the gradient.
    fn attention(
        &self,
        shape: AttentionShape,
        segments: &Self::Table<SegmentRow>,
        qkv: [Span<Self::Buf>; 3],
        out: SpanMut<Self::Buf>,
        log_sums: SpanMut<Self::Buf>,
    );
    /// Gradient of [`Device::attention`], scores recomputed block by block; overwrites `dq, dk, dv`.
    fn attention_grad(
        &self,
        shape: AttentionShape,
        segments: &Self::Table<SegmentRow>,
        qkv: [Span<Self::Buf>; 3],
        out: Span<Self::Buf>,
        log_sums: Span<Self::Buf>,
        dout: Span<Self::Buf>,
        dqkv: [SpanMut<Self::Buf>; 3],
    );
    /// One query row per sequence against the cache and the row's own `k, v`: the last row of
    /// [`Device::attention`] over the same tokens, on the CPU with the same bits.
    fn attention_decode(
        &self,
        shape: AttentionShape,
        layer: CacheLayer,
        rows: &Self::Table<CacheRow>,
        pages: &Self::Table<u32>,
        cache: &Self::Buf,
        qkv: [Span<Self::Buf>; 3],
        out: SpanMut<Self::Buf>,
    );
    /// Rounds every number to the nearest bf16, ties to even.
    fn round_to_bf16(&self, x: SpanMut<Self::Buf>);
    /// Writes `k, v [layers, cells, kv_heads · head_dim]`, rounded to the nearest bf16 where the cache is in bf16, into the layers of a cache from `first` on. A cell is a
    /// token's place: its page times [`PAGE`](crate::PAGE), plus its place in the page.
    fn cache_append(
        &self,
        shape: AttentionShape,
        first: CacheLayer,
        cells: &Self::Table<u32>,
        kv: [Span<Self::Buf>; 2],
        cache: &mut Self::Buf,
    );

    /// `h = f(gate) ⊙ up`.
    fn gated(
        &self,
        f: Activation,
        gate: Span<Self::Buf>,
        up: Span<Self::Buf>,
        h: SpanMut<Self::Buf>,
    );
    /// Gradient of [`Device::gated`] in place: `gate`, `up` become their gradients, `dh` becomes
    /// `h` again (the gradient of the next weight needs it).
    fn gated_grad(
        &self,
        f: Activation,
        gate: SpanMut<Self::Buf>,
        up: SpanMut<Self::Buf>,
        dh: SpanMut<Self::Buf>,
    );

    /// `y [rows.len, width]` = the chosen rows: of an embedding `[vocabulary, width]`, which may lie transposed, or of a
    /// buffer.
    fn gather_rows(
        &self,
        layout: EmbeddingLayout,
        rows: &Self::Table<u32>,
        from: Numbers<'_, Self::Buf, Self::Weight>,
        y: SpanMut<Self::Buf>,
    );
    /// Adds `dx` to the gradient of the embedding, in token order.
    fn embed_grad(
        &self,
        layout: EmbeddingLayout,
        tokens: &Self::Table<u32>,
        dx: Span<Self::Buf>,
        dembedding: SpanMut<Self::Buf>,
    );
    /// `x` = 0 but for the chosen rows, which are `y`; the rows ascend.
    fn scatter_rows(
        &self,
        width: usize,
        rows: &Self::Table<u32>,
        y: Span<Self::Buf>,
        x: SpanMut<Self::Buf>,
    );

    /// Log-probabilities and entropies of targets from `logits [rows, vocabulary]`:
    /// `stats [targets, 6]` = log-probability at the target's temperature, at temperature 1, entropy
    /// at temperature 1, largest logit, log-sum at the target's temperature, log-sum at 1 (both less
    /// the largest logit). Only targets `first..` of rows `first_row..` are touched.
    fn head(
        &self,
        vocabulary: usize,
        targets: &Self::Table<HeadTarget>,
        part: HeadPart,
        logits: Span<Self::Buf>,
        stats: SpanMut<Self::Buf>,
    );
    /// Gradient of [`Device::head`], logits overwritten by theirs; `gradients [targets, 2]` holds
    /// those of the log-probability at the target's temperature and of the entropy.
    fn head_grad(
        &self,
        vocabulary: usize,
        targets: &Self::Table<HeadTarget>,
        part: HeadPart,
        stats: Span<Self::Buf>,
        gradients: Span<Self::Buf>,
        logits: SpanMut<Self::Buf>,
    );

    /// A token from a row of `logits [_, vocabulary]` for each of `rows`, of ids below `usable`: the logits stay where
    /// they are.
    fn draw(
        &self,
        vocabulary: usize,
        usable: usize,
        rows: &[DrawRow],
        logits: Span<Self::Buf>,
    ) -> Vec<DrawnToken>;

    /// Σ x² in f64 of each of these, in an order fixed by its length.
    fn squared_norms(&self, of: &[Numbers<'_, Self::Buf, Self::Weight>]) -> Vec<f64>;
    /// One optimiser step of parameters that lie anywhere. The flat gradient and the moments are laid out by
    /// [`Placed::at`].
    fn adamw(
        &self,
        step: AdamW,
        gradient: &Self::Buf,
        moments: MomentsMut<'_, Self::Buf>,
        parameters: Vec<Placed<'_, Self::Buf, Self::Weight>>,
    );
}
