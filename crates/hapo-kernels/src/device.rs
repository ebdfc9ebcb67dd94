//! The seam between the decoder and the machine it runs on.
//!
//! Purpose: name every operation once, over flat buffers and weight matrices, with nothing in the signatures that only
//! one kind of memory could honour. Host data cross by `upload`, `download`, `write`, `read` and `table` alone. How a
//! weight matrix is held is the device's own type: a further number format is one more variant of it. Price: operations
//! are as coarse as the kernels behind them: the trait is the list of those a device has to write.

use std::fmt::Debug;

use crate::shapes::{
    Accumulate, Activation, AdamW, AttentionShape, BufferSize, CacheLayer, CacheRow, DrawRow,
    DrawnToken, EmbeddingLayout, HeadPart, HeadTarget, MatShape, MomentsMut, SegmentRow, TableItem,
};
use crate::span::{Buffer, Span, SpanMut};
use crate::weight::{Heads, Matrix, Numbers, Output, Placed};
use crate::{device_caps::DeviceCaps, error::Result, number_format::NumberFormat};

type Read<'a, D> = Span<'a, <D as Device>::Buf>;
type Write<'a, D> = SpanMut<'a, <D as Device>::Buf>;
type Table<'a, D, T> = &'a <D as Device>::Table<T>;

/// A machine that runs the decoder.
///
/// Lengths of spans are products of the stated shapes; a mismatch is a bug above and panics.
///
/// Operations return nothing, since a GPU only enqueues them. A failure is kept until the next [`Device::check`];
/// operations after it do nothing.
pub trait Device: Clone + Send + Sync + Debug + 'static {
    /// A flat buffer of numbers.
    type Buf: Buffer;
    /// A matrix `[inputs, outputs]` that products multiply by, in a form and an order of the device's own.
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
    fn upload(&self, src: &[f32], dst: Write<Self>);
    /// Device to host.
    fn download(&self, src: Read<Self>, dst: &mut [f32]);
    /// Device to device, equal lengths.
    fn copy(&self, src: Read<Self>, dst: Write<Self>);
    /// Sets every element.
    fn fill(&self, dst: Write<Self>, value: f32);
    /// Multiplies every element.
    fn scale(&self, x: Write<Self>, factor: f32);

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
    fn enter<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        work()
    }
    /// Runs `work`, whose operations are likely those of an earlier call: a GPU may begin all of them by one call.
    fn repeated(&self, work: impl FnOnce()) {
        work();
    }
    /// Runs `work` on every item, concurrently where the device can, each with a handle that shares no work.
    fn each<T: Send>(&self, items: &mut [T], work: impl Fn(&Self, &mut T) + Sync) {
        for item in items {
            work(self, item);
        }
    }

    /// Buffers of `rows` rows of these widths. A GPU puts their rows side by side, so that one product can write them all.
    fn alloc_beside(
        &self,
        rows: usize,
        widths: &[usize],
        format: NumberFormat,
    ) -> Result<Vec<Self::Buf>> {
        widths.iter().map(|width| self.alloc(rows * width, format)).collect()
    }
    /// `y [rows, outputs] = onto + x [rows, inputs] · w + s·(x·A)·B` for each of some matrices with one `x`, which have all
    /// pairs that [`Matrix::pairs`] put beside them. There is room for an `x·A` in `low`, and for all behind the rows of `x`.
    fn product(
        &self,
        x: Read<Self>,
        low: Option<&mut Self::Buf>,
        to: Vec<Output<'_, Self::Buf, Self::Weight>>,
    );
    /// `dx [rows, inputs] = onto + dy [rows, outputs] · wᵀ`; `onto` is never a bias.
    fn product_input_grad(
        &self,
        shape: MatShape,
        dy: Read<Self>,
        w: &Self::Weight,
        onto: Accumulate<Self::Buf>,
        dx: Write<Self>,
    );
    /// `dw = onto + xᵀ · dy`, in the order that the device holds matrices in; `onto` is never a bias.
    fn product_weight_grad(
        &self,
        shape: MatShape,
        x: Read<Self>,
        dy: Read<Self>,
        onto: Accumulate<Self::Buf>,
        dw: Write<Self>,
    );
    /// `out [width] += Σ_rows dy [rows, width]`: the gradient of a bias.
    fn add_column_sums(&self, width: usize, dy: Read<Self>, out: Write<Self>);

    /// `y += factor · x`.
    fn add(&self, factor: f32, x: Read<Self>, y: Write<Self>);

    /// [`RmsNorm`].
    fn rms_norm(&self, it: RmsNorm<Self>);
    /// [`RmsNormGrad`].
    fn rms_norm_grad(&self, it: RmsNormGrad<Self>);
    /// [`Rotation`].
    fn rope(&self, it: Rotation<Self>);
    /// [`Attention`].
    fn attention(&self, it: Attention<Self>);
    /// [`AttentionGrad`].
    fn attention_grad(&self, it: AttentionGrad<Self>);
    /// [`AttentionDecode`].
    fn attention_decode(&self, it: AttentionDecode<Self>);
    /// Rounds every number to the nearest bf16, ties to even.
    fn round_to_bf16(&self, x: Write<Self>);
    /// [`CacheAppend`].
    fn cache_append(&self, it: CacheAppend<Self>);

    /// `h = f(gate) ⊙ up`.
    fn gated(&self, f: Activation, gate: Read<Self>, up: Read<Self>, h: Write<Self>);
    /// Gradient of [`Device::gated`] in place: `gate`, `up` become their gradients, `dh` becomes
    /// `h` again (the gradient of the next weight needs it).
    fn gated_grad(&self, f: Activation, gate: Write<Self>, up: Write<Self>, dh: Write<Self>);

    /// `y [rows.len, width]` = the chosen rows of a buffer, or of an embedding `[vocabulary, width]`, maybe transposed.
    fn gather_rows(
        &self,
        layout: EmbeddingLayout,
        rows: &Self::Table<u32>,
        from: Numbers<'_, Self::Buf, Self::Weight>,
        y: Write<Self>,
    );
    /// Adds `dx` to the gradient of the embedding, in token order.
    fn embed_grad(
        &self,
        layout: EmbeddingLayout,
        tokens: &Self::Table<u32>,
        dx: Read<Self>,
        dembedding: Write<Self>,
    );
    /// `x` = 0 but for the chosen rows, which are `y`; the rows ascend.
    fn scatter_rows(&self, width: usize, rows: &Self::Table<u32>, y: Read<Self>, x: Write<Self>);

    /// [`HeadStats`].
    fn head(&self, it: HeadStats<Self>);
    /// [`HeadGrad`].
    fn head_grad(&self, it: HeadGrad<Self>);

    /// A token of an id below `usable` for each of `rows`, from its row of `logits [_, vocabulary]`, which stay there.
    fn draw(
        &self,
        vocabulary: usize,
        usable: usize,
        rows: &[DrawRow],
        logits: Read<Self>,
    ) -> Vec<DrawnToken>;

    /// Σ x² in f64 of each of these, in an order fixed by its length.
    fn squared_norms(&self, of: &[Numbers<'_, Self::Buf, Self::Weight>]) -> Vec<f64>;
    /// One optimiser step of parameters that lie anywhere; flat gradient and moments are laid out by [`Placed::at`].
    fn adamw(
        &self,
        step: AdamW,
        gradient: &Self::Buf,
        moments: MomentsMut<'_, Self::Buf>,
        parameters: Vec<Placed<'_, Self::Buf, Self::Weight>>,
    );
}

/// `y = x · r ⊙ (offset + w)` per row, `r = 1/√(mean(x²) + eps)`, saved in `inverse_rms [rows]`. When `residual` is given,
/// `x` is copied there too: the next product is added to it.
#[derive(Debug)]
#[expect(missing_docs, reason = "the equation names its buffers")]
pub struct RmsNorm<'a, D: Device> {
    pub eps: f32,
    pub offset: f32,
    pub x: Read<'a, D>,
    pub w: Read<'a, D>,
    pub y: Write<'a, D>,
    pub inverse_rms: Write<'a, D>,
    pub residual: Option<Write<'a, D>>,
}

/// `dx = onto + …`, `dw += …` of [`RmsNorm`]; `onto` is never a bias.
#[derive(Debug)]
#[expect(missing_docs, reason = "the equation names its buffers")]
pub struct RmsNormGrad<'a, D: Device> {
    pub offset: f32,
    pub x: Read<'a, D>,
    pub w: Read<'a, D>,
    pub inverse_rms: Read<'a, D>,
    pub dy: Read<'a, D>,
    pub onto: Accumulate<'a, D::Buf>,
    pub dx: Write<'a, D>,
    pub dw: Write<'a, D>,
}

/// Turns the leading numbers of heads by their positions' `angles [positions, rotated]`: the cosines of half of them, then the sines.
#[derive(Debug)]
#[expect(missing_docs, reason = "the equation names its buffers")]
pub struct Rotation<'a, D: Device> {
    pub shape: AttentionShape,
    pub angles: Read<'a, D>,
    pub positions: Table<'a, D, u32>,
    pub heads: Heads<'a, D::Buf>,
}

/// Causal attention of packed segments: `q, out [rows, heads · head_dim]`, `k, v [rows, kv_heads · head_dim]`, `log_sums
/// [rows, heads]` for the gradient.
#[derive(Debug)]
#[expect(missing_docs, reason = "the equation names its buffers")]
pub struct Attention<'a, D: Device> {
    pub shape: AttentionShape,
    pub segments: Table<'a, D, SegmentRow>,
    pub qkv: [Read<'a, D>; 3],
    pub out: Write<'a, D>,
    pub log_sums: Write<'a, D>,
}

/// Gradient of [`Attention`], scores recomputed block by block; overwrites `dq, dk, dv`.
#[derive(Debug)]
#[expect(missing_docs, reason = "the equation names its buffers")]
pub struct AttentionGrad<'a, D: Device> {
    pub shape: AttentionShape,
    pub segments: Table<'a, D, SegmentRow>,
    pub qkv: [Read<'a, D>; 3],
    pub out: Read<'a, D>,
    pub log_sums: Read<'a, D>,
    pub dout: Read<'a, D>,
    pub dqkv: [Write<'a, D>; 3],
}

/// One query row per sequence against the cache and its own `k, v`: [`Attention`]'s last row, on the CPU bit for bit.
#[derive(Debug)]
#[expect(missing_docs, reason = "the equation names its buffers")]
pub struct AttentionDecode<'a, D: Device> {
    pub shape: AttentionShape,
    pub layer: CacheLayer,
    pub rows: Table<'a, D, CacheRow>,
    pub pages: Table<'a, D, u32>,
    pub cache: &'a D::Buf,
    pub qkv: [Read<'a, D>; 3],
    pub out: Write<'a, D>,
}

/// Writes `k, v [layers, cells, kv_heads · head_dim]`, rounded to the nearest bf16 for a cache in bf16, into layers
/// from `first` on. A cell is a token's place: its page times [`PAGE`](crate::PAGE), plus its place in the page.
#[derive(Debug)]
#[expect(missing_docs, reason = "the equation names its buffers")]
pub struct CacheAppend<'a, D: Device> {
    pub shape: AttentionShape,
    pub first: CacheLayer,
    pub cells: Table<'a, D, u32>,
    pub kv: [Read<'a, D>; 2],
    pub cache: &'a mut D::Buf,
}

/// Log-probabilities and entropies of targets from `logits [rows, vocabulary]`: `stats [targets, 6]` = log-probability at
/// the target's temperature, at temperature 1, entropy at temperature 1, largest logit, log-sum at the target's
/// temperature, log-sum at 1 (both less the largest logit). Only targets `first..` of rows `first_row..` are touched.
#[derive(Debug)]
#[expect(missing_docs, reason = "the equation names its buffers")]
pub struct HeadStats<'a, D: Device> {
    pub vocabulary: usize,
    pub targets: Table<'a, D, HeadTarget>,
    pub part: HeadPart,
    pub logits: Read<'a, D>,
    pub stats: Write<'a, D>,
}

/// Gradient of [`HeadStats`], logits overwritten by theirs; `gradients [targets, 2]` holds those of the log-probability at
/// the target's temperature and of the entropy.
#[derive(Debug)]
#[expect(missing_docs, reason = "the equation names its buffers")]
pub struct HeadGrad<'a, D: Device> {
    pub vocabulary: usize,
    pub targets: Table<'a, D, HeadTarget>,
    pub part: HeadPart,
    pub stats: Read<'a, D>,
    pub gradients: Read<'a, D>,
    pub logits: Write<'a, D>,
}
