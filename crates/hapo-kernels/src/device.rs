//! The seam between the decoder and the machine it runs on.
//!
//! Purpose: name every operation once, over flat buffers, with nothing in the signatures that only
//! one kind of memory could honour. Host data cross by `upload`, `download` and `table` alone.
//!
//! Price: operations are as coarse as the fused kernels behind them, so the trait is the list of
//! kernels a new device has to write.

use std::fmt::Debug;

use crate::compute::Compute;
use crate::moments::MomentsMut;
use crate::number_format::NumberFormat;

/// What a device can refuse.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The system has no memory for a buffer of this size.
    #[error("no memory for a buffer of {bytes} bytes")]
    Allocation {
        /// Size asked for.
        bytes: usize,
    },
    /// The worker threads could not be started.
    #[error("cannot start {threads} worker threads: {reason}")]
    Threads {
        /// Number asked for.
        threads: usize,
        /// What the system said.
        reason: String,
    },
    /// The device has no products of the factors that were asked for.
    #[error("{problem}")]
    Compute {
        /// What was asked for, and what is missing.
        problem: String,
        /// What can be done about it.
        hint: &'static str,
    },
    /// A GPU has no free memory for a buffer.
    #[error(
        "{device} is out of memory: {:.3} GB asked for, {:.3} of its {:.3} GB are free",
        *asked as f64 / 1e9, *free as f64 / 1e9, *total as f64 / 1e9
    )]
    OutOfMemory {
        /// Name of the GPU, as `cuda:0`.
        device: String,
        /// Bytes asked for.
        asked: u64,
        /// Bytes free.
        free: u64,
        /// Bytes of the GPU.
        total: u64,
    },
    /// A GPU cannot be used, or failed while it was.
    #[error("{device}: {problem}")]
    Gpu {
        /// Name of the GPU, as `cuda:0`.
        device: String,
        /// What is missing or went wrong.
        problem: String,
        /// What can be done about it.
        hint: String,
    },
}

impl DeviceError {
    /// Whether there was no memory.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Allocation { .. } | Self::OutOfMemory { .. })
    }

    /// What the reader can do, where there is something.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Gpu { hint, .. } => Some(hint),
            Self::Compute { hint, .. } => Some(hint),
            Self::Allocation { .. } | Self::OutOfMemory { .. } => Some(
                "smaller batches and activation checkpointing need less memory in training, fewer or \
                 shorter sequences at once need less in sampling",
            ),
            _ => None,
        }
    }
}

/// A flat buffer of numbers on a device, `f32` unless it was asked for in another format ([`Device::alloc_as`]).
pub trait Buffer: Send + Sync + Debug + Sized {
    /// Number of elements.
    fn len(&self) -> usize;

    /// Whether there is no element.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory that it takes.
    fn bytes(&self) -> usize {
        self.len() * size_of::<f32>()
    }

    /// The elements `offset..offset + len`, to read.
    fn at(&self, offset: usize, len: usize) -> Span<'_, Self> {
        assert!(offset + len <= self.len(), "span inside its buffer");
        Span { buf: self, offset, len }
    }

    /// The elements `offset..offset + len`, to write.
    fn at_mut(&mut self, offset: usize, len: usize) -> SpanMut<'_, Self> {
        assert!(offset + len <= self.len(), "span inside its buffer");
        SpanMut { buf: self, offset, len }
    }

    /// The first `len` elements, to read.
    fn first(&self, len: usize) -> Span<'_, Self> {
        self.at(0, len)
    }

    /// The first `len` elements, to write.
    fn first_mut(&mut self, len: usize) -> SpanMut<'_, Self> {
        self.at_mut(0, len)
    }
}

/// A read-only range of a buffer.
#[derive(Debug)]
pub struct Span<'a, B> {
    /// The whole buffer.
    pub buf: &'a B,
    /// First element.
    pub offset: usize,
    /// Number of elements.
    pub len: usize,
}

impl<B> Clone for Span<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for Span<'_, B> {}

impl<B> Span<'_, B> {
    /// The elements `offset..offset + len` of the range.
    #[must_use]
    pub fn part(self, offset: usize, len: usize) -> Self {
        assert!(offset + len <= self.len, "a part inside its span");
        Self { buf: self.buf, offset: self.offset + offset, len }
    }
}

/// A writable range of a buffer.
#[derive(Debug)]
pub struct SpanMut<'a, B> {
    /// The whole buffer.
    pub buf: &'a mut B,
    /// First element.
    pub offset: usize,
    /// Number of elements.
    pub len: usize,
}

impl<B> SpanMut<'_, B> {
    /// The same range again, for one operation of several.
    pub fn again(&mut self) -> SpanMut<'_, B> {
        SpanMut { buf: &mut *self.buf, offset: self.offset, len: self.len }
    }
}

/// An item of a small integer table on the device, next to the buffers.
pub trait TableItem: bytemuck::Pod + Send + Sync + Debug {}

impl TableItem for u32 {}

/// The shape of a matrix product: activations `[rows, inputs]`, weights `[inputs, outputs]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatShape {
    /// Rows of activations.
    pub rows: usize,
    /// Width of the activations.
    pub inputs: usize,
    /// Width of the result.
    pub outputs: usize,
}

/// What a product is added to.
#[derive(Debug)]
pub enum Accumulate<'a, B> {
    /// Nothing: the output is overwritten.
    Nothing,
    /// What the output holds.
    Existing,
    /// A bias `[outputs]`, the same for every row; what it is added to is stored in f32.
    Bias(Span<'a, B>),
}

/// Widths of an attention block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
}

impl AttentionShape {
    /// Width of a row of queries.
    pub fn q_dim(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Width of a row of keys, and of values.
    pub fn kv_dim(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Query heads that read one key/value head.
    pub fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Whether attention runs on a GPU's tensor cores where products are of bf16 factors: rows are made of 16 bytes, and
    /// heads are at most 128 wide.
    pub fn fits_tensor_cores(&self) -> bool {
        self.head_dim <= 128 && self.head_dim.is_multiple_of(8)
    }

    /// Factor of the scores, 1/√`head_dim`.
    pub fn scale(&self) -> f32 {
        1.0 / (self.head_dim as f32).sqrt()
    }
}

/// A run of packed rows that attends causally to itself, after the rows of a prefix.
///
/// Segments of one prefix group (a prefix and those that read it) are adjacent in their table, the prefix
/// first: gradients of the prefix are summed in table order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct SegmentRow {
    /// First packed row.
    pub start: u32,
    /// Number of rows.
    pub len: u32,
    /// First row of the prefix.
    pub prefix_start: u32,
    /// Rows of the prefix; 0 for none.
    pub prefix_len: u32,
    /// Number shared by a prefix and the segments that read it.
    pub prefix_group: u32,
}

impl TableItem for SegmentRow {}

/// Tokens of a page of the key/value cache: what the CPU's kernel reads as one block where up to four query
/// heads share a key, and two warps of a GPU.
pub const PAGE: usize = 64;

/// A layer of a key/value cache, which is made of pages of [`PAGE`] tokens.
///
/// In page `p`, layer `index` of `count` and head `h` hold `Kᵀ [head_dim, PAGE]` and then `V [PAGE, head_dim]`, at
/// `((p · count + index) · kv_heads + h) · 2 · head_dim · PAGE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLayer {
    /// Which one.
    pub index: usize,
    /// Layers of the cache.
    pub count: usize,
    /// What its numbers are; offsets count numbers.
    pub format: NumberFormat,
}

/// What one decoded row may look at: a shared prompt, then its own tokens.
///
/// Its pages are those of the prompt and then its own, from `first_page` on in a table of pages; the last one of
/// each may be partly filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct CacheRow {
    /// Where its pages begin in the table.
    pub first_page: u32,
    /// Tokens of the prompt.
    pub prompt_len: u32,
    /// Tokens of this sequence already in the cache; the row's own key and value are given separately.
    pub own_len: u32,
}

impl CacheRow {
    /// Tokens it looks at, its own included.
    pub fn positions(&self) -> usize {
        (self.prompt_len + self.own_len) as usize + 1
    }

    /// Pages of the prompt.
    pub fn prompt_pages(&self) -> usize {
        (self.prompt_len as usize).div_ceil(PAGE)
    }

    /// Pages of its own that are written.
    pub fn own_pages(&self) -> usize {
        (self.own_len as usize).div_ceil(PAGE)
    }
}

impl TableItem for CacheRow {}

/// A token whose log-probability is asked for.
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct HeadTarget {
    /// Row of the logits; targets are sorted by it.
    pub row: u32,
    /// The token.
    pub token: u32,
    /// 1 / temperature.
    pub inverse_temperature: f32,
}

impl TableItem for HeadTarget {}

/// How a token is drawn from a row of logits.
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct DrawRow {
    /// In [0, 1): picks the token whose interval of the cumulative distribution holds it, tokens in id order.
    pub uniform: f64,
    /// Row of the logits.
    pub row: u32,
    /// 1 / temperature; 0 for the most likely token, the lowest id on ties.
    pub inverse_temperature: f32,
    /// Only so many of the most likely tokens, the lower ids of equal ones; 0 for all.
    pub top_k: u32,
    /// Of these only the fewest most likely ones that together have this share of their probability.
    pub top_p: f32,
    /// Of these only tokens at least this fraction as likely as the most likely one.
    pub min_p: f32,
    /// Zero.
    pub unused: u32,
}

impl DrawRow {
    /// Whether every token may be drawn.
    pub(crate) fn keeps_all(self) -> bool {
        self.top_k == 0 && self.top_p == 1.0 && self.min_p == 0.0
    }
}

impl TableItem for DrawRow {}

/// A token that was drawn, with its log-probabilities under the whole distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct DrawnToken {
    /// The token.
    pub token: u32,
    /// At the temperature it was drawn at; 1 for the most likely token.
    pub log_prob: f32,
    /// At temperature 1.
    pub log_prob_t1: f32,
    /// Entropy in nats of the distribution at temperature 1.
    pub entropy: f32,
}

/// Bytes of logits that the CPU holds at once.
pub const CPU_LOGIT_BYTES: usize = 128 << 20;

/// Bytes of logits that a GPU holds at once: fewer chunks read and write the gradient of the head's matrix less often.
pub const GPU_LOGIT_BYTES: usize = 1 << 30;

/// One `AdamW` step (Loshchilov and Hutter, decoupled decay; as `torch.optim.AdamW`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Learning rate of this step.
    pub learning_rate: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Decoupled weight decay, on every parameter.
    pub weight_decay: f64,
    /// Number of this step, from 1; for the bias correction.
    pub step: u64,
    /// Factor of the gradient before anything else: the clipping coefficient.
    pub gradient_scale: f64,
}

impl AdamW {
    /// What is the same for all elements, worked out in f64.
    pub fn factors(self) -> AdamWFactors {
        let n = i32::try_from(self.step).unwrap_or(i32::MAX);
        AdamWFactors {
            gradient: self.gradient_scale as f32,
            decay: (1.0 - self.learning_rate * self.weight_decay) as f32,
            beta1: self.beta1 as f32,
            one_less_beta1: (1.0 - self.beta1) as f32,
            beta2: self.beta2 as f32,
            one_less_beta2: (1.0 - self.beta2) as f32,
            rate: (self.learning_rate / (1.0 - self.beta1.powi(n))) as f32,
            root_correction: (1.0 / (1.0 - self.beta2.powi(n)).sqrt()) as f32,
            epsilon: self.epsilon as f32,
        }
    }
}

/// The numbers of one `AdamW` step as every element uses them: with g the scaled gradient,
/// m ← β₁·m + (1−β₁)·g, v ← β₂·v + (1−β₂)·g², p ← decay·p − rate·m / (correction·√v + ε).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWFactors {
    /// Factor of the gradient.
    pub gradient: f32,
    /// Factor of the parameter.
    pub decay: f32,
    /// β₁.
    pub beta1: f32,
    /// 1 − β₁.
    pub one_less_beta1: f32,
    /// β₂.
    pub beta2: f32,
    /// 1 − β₂.
    pub one_less_beta2: f32,
    /// The learning rate over the bias correction of the first moment.
    pub rate: f32,
    /// 1 / the root of the bias correction of the second moment.
    pub root_correction: f32,
    /// ε.
    pub epsilon: f32,
}

/// A machine that runs the decoder.
///
/// Lengths of spans are products of the stated shapes; a mismatch is a bug above and panics.
///
/// Operations return nothing, since on a GPU they are only enqueued. What went wrong in one is kept until
/// [`Device::check`] is asked; operations after it do nothing.
pub trait Device: Send + Sync + Sized + Debug {
    /// A flat buffer of `f32`.
    type Buf: Buffer;
    /// A small table of integers, written once per batch.
    type Table<T: TableItem>: Send + Sync + Debug;

    /// A buffer of zeros.
    fn alloc(&self, len: usize) -> Result<Self::Buf, DeviceError>;
    /// A buffer of zeros in a format that the device names, whose lengths and offsets count numbers all the same. In bf16 it
    /// may be what a product's factors, its result, and the operations between two products read and write; what these say
    /// of f32 holds of the numbers before they are stored. All of an operation's buffers that may be in bf16 are, or none.
    ///
    /// # Panics
    /// In a format that the device does not name.
    fn alloc_as(&self, len: usize, format: NumberFormat) -> Result<Self::Buf, DeviceError> {
        assert_eq!(format, NumberFormat::F32, "a format that the device names");
        self.alloc(len)
    }
    /// How activations and gradients are held that nothing but products and the operations between them reads.
    fn factor_format(&self) -> NumberFormat {
        NumberFormat::F32
    }
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

    /// What the factors of its products are rounded to.
    fn compute(&self) -> Compute {
        Compute::F32
    }

    /// How attention's queries, keys, values, outputs and their gradients are held, so that a cache which holds keys and
    /// values so loses nothing.
    fn attention_format(&self, _shape: AttentionShape) -> NumberFormat {
        NumberFormat::F32
    }

    /// Bytes of memory that this process may still take there; `None` where nothing says so.
    fn free_bytes(&self) -> Option<u64>;

    /// Bytes of logits that are best held at once.
    fn logit_bytes(&self) -> usize {
        CPU_LOGIT_BYTES
    }

    /// Whether memory that is given back is cheap to take again, so that buffers are given back while they are idle.
    fn lends_memory(&self) -> bool {
        false
    }

    /// What went wrong since the last call, which forgets it. Results up to here hold only if nothing
    /// did; on the CPU nothing can.
    fn check(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Runs `work` where operations are cheap to start. Results do not depend on it.
    fn enter<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R;
    /// Into how many blocks independent rows are best cut when every block runs the whole stack by
    /// itself through [`Device::each`], given the size of the weights. Results do not depend on it.
    fn blocks(&self, rows: usize, weight_bytes: usize) -> usize;
    /// Runs `work` on every item, concurrently where the device can, each with a handle that does
    /// not share work with the others.
    fn each<T: Send>(&self, items: &mut [T], work: impl Fn(&Self, &mut T) + Sync);

    /// `y [rows, outputs] = onto + x [rows, inputs] · w [inputs, outputs]`.
    fn matmul(
        &self,
        shape: MatShape,
        x: Span<Self::Buf>,
        w: Span<Self::Buf>,
        onto: Accumulate<Self::Buf>,
        y: SpanMut<Self::Buf>,
    );
    /// Two products of one shape and one `x`, each as [`Device::matmul`].
    fn matmul_pair(
        &self,
        shape: MatShape,
        x: Span<Self::Buf>,
        w: [Span<Self::Buf>; 2],
        onto: [Accumulate<Self::Buf>; 2],
        y: [SpanMut<Self::Buf>; 2],
    ) {
        for ((w, onto), y) in w.into_iter().zip(onto).zip(y) {
            self.matmul(shape, x, w, onto, y);
        }
    }
    /// Elements of a buffer for weights `[inputs, outputs]` in the form that [`Device::matmul_packed`]
    /// reads, bf16 in an order of the device's own; `None` where it has none.
    fn packed_len(&self, inputs: usize, outputs: usize) -> Option<usize>;
    /// Packs `w [inputs, some]`, rounded to the nearest bf16, as the outputs from `first` on, a multiple of 64, of weights
    /// `[inputs, outputs]`.
    fn pack(&self, shape: [usize; 2], first: usize, w: Span<Self::Buf>, packed: SpanMut<Self::Buf>);
    /// Whether every element is a bf16 number, so that packing loses nothing.
    fn is_bf16(&self, x: Span<Self::Buf>) -> bool;
    /// [`Device::matmul`] with packed weights: the same bits where packing lost nothing.
    fn matmul_packed(
        &self,
        shape: MatShape,
        x: Span<Self::Buf>,
        packed: Span<Self::Buf>,
        onto: Accumulate<Self::Buf>,
        y: SpanMut<Self::Buf>,
    );
    /// Two products of one shape and one `x`, each as [`Device::matmul_packed`].
    fn matmul_packed_pair(
        &self,
        shape: MatShape,
        x: Span<Self::Buf>,
        packed: [Span<Self::Buf>; 2],
        onto: [Accumulate<Self::Buf>; 2],
        y: [SpanMut<Self::Buf>; 2],
    ) {
        for ((packed, onto), y) in packed.into_iter().zip(onto).zip(y) {
            self.matmul_packed(shape, x, packed, onto, y);
        }
    }
    /// Whether packed weights are all that a model needs whose weights do not change: [`Device::unpack`],
    /// [`Device::matmul_packed_input_grad`] and [`Device::embed_packed`] are there.
    fn computes_packed(&self) -> bool {
        false
    }
    /// Whether the matrices of a model that is trained are held split: packed, as the nearest bf16 numbers, ties away from
    /// zero, and in a second buffer of that length what these lack, 16 bits each. Together they are exactly the f32.
    fn splits_weights(&self) -> bool {
        false
    }
    /// Host to device: the elements of a split `w [inputs, outputs]` from `first` on.
    fn upload_split(
        &self,
        _shape: [usize; 2],
        _first: usize,
        _src: &[f32],
        _packed: SpanMut<Self::Buf>,
        _tails: SpanMut<Self::Buf>,
    ) {
        unreachable!("only where the device splits weights")
    }
    /// Device to host: the same.
    fn download_split(
        &self,
        _shape: [usize; 2],
        _first: usize,
        _packed: Span<Self::Buf>,
        _tails: Span<Self::Buf>,
        _dst: &mut [f32],
    ) {
        unreachable!("only where the device splits weights")
    }
    /// [`Device::squared_norm`] of a split matrix.
    fn squared_norm_split(&self, _packed: Span<Self::Buf>, _tails: Span<Self::Buf>) -> f64 {
        unreachable!("only where the device splits weights")
    }
    /// The same of every range of split weights that lie in one buffer and its tails, each an offset and a length.
    fn squared_norms_split(
        &self,
        packed: &Self::Buf,
        tails: &Self::Buf,
        ranges: &[(usize, usize)],
    ) -> Vec<f64> {
        let norm = |&(at, len): &(usize, usize)| {
            self.squared_norm_split(packed.at(at, len), tails.at(at, len))
        };
        ranges.iter().map(norm).collect()
    }
    /// [`Device::adamw`] of a split matrix `[inputs, outputs]`; the gradient and the moments are not packed.
    fn adamw_split(
        &self,
        _step: AdamW,
        _shape: [usize; 2],
        _gradient: Span<Self::Buf>,
        _packed: SpanMut<Self::Buf>,
        _tails: SpanMut<Self::Buf>,
        _moments: MomentsMut<Self::Buf>,
    ) {
        unreachable!("only where the device splits weights")
    }
    /// From packed weights to `w [inputs, outputs]`.
    fn unpack(
        &self,
        _inputs: usize,
        _outputs: usize,
        _packed: Span<Self::Buf>,
        _w: SpanMut<Self::Buf>,
    ) {
        unreachable!("only where the device computes with packed weights alone")
    }
    /// [`Device::matmul_input_grad`] with packed weights.
    fn matmul_packed_input_grad(
        &self,
        _shape: MatShape,
        _dy: Span<Self::Buf>,
        _packed: Span<Self::Buf>,
        _onto: Accumulate<Self::Buf>,
        _dx: SpanMut<Self::Buf>,
    ) {
        unreachable!("only where the device computes with packed weights alone")
    }
    /// `x [tokens, width]` = columns of packed weights `[width, vocabulary]`.
    fn embed_packed(
        &self,
        _width: usize,
        _tokens: &Self::Table<u32>,
        _packed: Span<Self::Buf>,
        _x: SpanMut<Self::Buf>,
    ) {
        unreachable!("only where the device computes with packed weights alone")
    }
    /// `dx [rows, inputs] = onto + dy [rows, outputs] · wᵀ`; `onto` is never a bias.
    fn matmul_input_grad(
        &self,
        shape: MatShape,
        dy: Span<Self::Buf>,
        w: Span<Self::Buf>,
        onto: Accumulate<Self::Buf>,
        dx: SpanMut<Self::Buf>,
    );
    /// `dw [inputs, outputs] = onto + xᵀ · dy`; `onto` is never a bias.
    fn matmul_weight_grad(
        &self,
        shape: MatShape,
        x: Span<Self::Buf>,
        dy: Span<Self::Buf>,
        onto: Accumulate<Self::Buf>,
        dw: SpanMut<Self::Buf>,
    );
    /// `out [width] += Σ_rows dy [rows, width]`: the gradient of a bias.
    fn add_column_sums(&self, width: usize, dy: Span<Self::Buf>, out: SpanMut<Self::Buf>);

    /// `y = x · r ⊙ w` per row, `r = 1/√(mean(x²) + eps)`, saved in `inverse_rms [rows]`. When
    /// `residual` is given, `x` is copied there too: the next product is added to it.
    fn rms_norm(
        &self,
        eps: f32,
        x: Span<Self::Buf>,
        w: Span<Self::Buf>,
        y: SpanMut<Self::Buf>,
        inverse_rms: SpanMut<Self::Buf>,
        residual: Option<SpanMut<Self::Buf>>,
    );
    /// `dx = onto + …`, `dw += …` of [`Device::rms_norm`]; `onto` is never a bias.
    fn rms_norm_grad(
        &self,
        x: Span<Self::Buf>,
        w: Span<Self::Buf>,
        inverse_rms: Span<Self::Buf>,
        dy: Span<Self::Buf>,
        onto: Accumulate<Self::Buf>,
        dx: SpanMut<Self::Buf>,
        dw: SpanMut<Self::Buf>,
    );

    /// Rotates the heads of `x [rows, heads · head_dim]` in place by the angles of their positions;
    /// `angles [positions, head_dim]` holds cosines then sines of half a head. `direction` 1 rotates,
    /// −1 rotates back (the gradient).
    fn rope(
        &self,
        head_dim: usize,
        direction: f32,
        angles: Span<Self::Buf>,
        positions: &Self::Table<u32>,
        x: SpanMut<Self::Buf>,
    );

    /// Queries, keys and values `from` products, in f32, to what attention reads of them, in its own format: of the first
    /// two the heads are rotated as by [`Device::rope`].
    fn store_heads(
        &self,
        _shape: AttentionShape,
        _angles: Span<Self::Buf>,
        _positions: &Self::Table<u32>,
        _from: [Span<Self::Buf>; 3],
        _to: [SpanMut<Self::Buf>; 3],
    ) {
        unreachable!("only where attention's numbers are not f32")
    }

    /// Causal attention of packed segments: `q, out [rows, heads · head_dim]`,
    /// `k, v [rows, kv_heads · head_dim]`, `log_sums [rows, heads]` for the gradient.
    fn attention(
        &self,
        shape: AttentionShape,
        segments: &Self::Table<SegmentRow>,
        q: Span<Self::Buf>,
        k: Span<Self::Buf>,
        v: Span<Self::Buf>,
        out: SpanMut<Self::Buf>,
        log_sums: SpanMut<Self::Buf>,
    );
    /// Gradient of [`Device::attention`], scores recomputed block by block; overwrites `dq, dk, dv`.
    fn attention_grad(
        &self,
        shape: AttentionShape,
        segments: &Self::Table<SegmentRow>,
        q: Span<Self::Buf>,
        k: Span<Self::Buf>,
        v: Span<Self::Buf>,
        out: Span<Self::Buf>,
        log_sums: Span<Self::Buf>,
        dout: Span<Self::Buf>,
        dq: SpanMut<Self::Buf>,
        dk: SpanMut<Self::Buf>,
        dv: SpanMut<Self::Buf>,
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
        q: Span<Self::Buf>,
        k: Span<Self::Buf>,
        v: Span<Self::Buf>,
        out: SpanMut<Self::Buf>,
    );
    /// Rounds every number to the nearest bf16, ties to even.
    fn round_to_bf16(&self, x: SpanMut<Self::Buf>);
    /// Writes `k, v [layers, cells, kv_heads · head_dim]`, rounded to the nearest bf16 where the cache is in bf16, into the layers of a cache from `first` on. A cell is a
    /// token's place: its page times [`PAGE`], plus its place in the page.
    fn cache_append(
        &self,
        shape: AttentionShape,
        first: CacheLayer,
        cells: &Self::Table<u32>,
        k: Span<Self::Buf>,
        v: Span<Self::Buf>,
        cache: &mut Self::Buf,
    );

    /// `h = silu(gate) ⊙ up`.
    fn swiglu(&self, gate: Span<Self::Buf>, up: Span<Self::Buf>, h: SpanMut<Self::Buf>);
    /// Gradient of [`Device::swiglu`] in place: `gate`, `up` become their gradients, `dh` becomes
    /// `h` again (the gradient of the next weight needs it).
    fn swiglu_grad(&self, gate: SpanMut<Self::Buf>, up: SpanMut<Self::Buf>, dh: SpanMut<Self::Buf>);

    /// `x [tokens, width]` = rows of the embedding `[vocabulary, width]`, or columns of a transposed
    /// one `[width, vocabulary]`.
    fn embed(
        &self,
        layout: EmbeddingLayout,
        tokens: &Self::Table<u32>,
        embedding: Span<Self::Buf>,
        x: SpanMut<Self::Buf>,
    );
    /// Adds `dx` to the gradient of the embedding, in token order.
    fn embed_grad(
        &self,
        layout: EmbeddingLayout,
        tokens: &Self::Table<u32>,
        dx: Span<Self::Buf>,
        dembedding: SpanMut<Self::Buf>,
    );
    /// `y [rows.len, width]` = the chosen rows of `x`.
    fn gather_rows(
        &self,
        width: usize,
        rows: &Self::Table<u32>,
        x: Span<Self::Buf>,
        y: SpanMut<Self::Buf>,
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

    /// Σ x² in f64, in an order fixed by the length.
    fn squared_norm(&self, x: Span<Self::Buf>) -> f64;
    /// [`Device::squared_norm`] of every range of `x`, each an offset and a length.
    fn squared_norms(&self, x: &Self::Buf, ranges: &[(usize, usize)]) -> Vec<f64> {
        ranges.iter().map(|&(offset, len)| self.squared_norm(x.at(offset, len))).collect()
    }
    /// One optimiser step over flat buffers.
    fn adamw(
        &self,
        step: AdamW,
        gradient: Span<Self::Buf>,
        parameter: SpanMut<Self::Buf>,
        moments: MomentsMut<Self::Buf>,
    );
}

/// Memory layout of the embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmbeddingLayout {
    /// `[vocabulary, width]`.
    Rows {
        /// Width of an embedding.
        width: usize,
    },
    /// `[width, vocabulary]`: the layout of the output head, for tied weights.
    Columns {
        /// Number of tokens.
        vocabulary: usize,
    },
}

/// Which rows and targets a chunk of logits holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadPart {
    /// Row of the first row of the chunk, in the numbering of the targets.
    pub first_row: usize,
    /// Rows of the chunk.
    pub rows: usize,
    /// First target of the chunk.
    pub first_target: usize,
    /// Targets of the chunk.
    pub targets: usize,
}
