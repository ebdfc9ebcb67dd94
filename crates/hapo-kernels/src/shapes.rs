//! Shapes and tables that operations are told.

use std::fmt::Debug;

use crate::{number_format::NumberFormat, span::Span};

/// An item of a small integer table on the device, next to the buffers.
pub trait TableItem: bytemuck::Pod + Send + Sync + Debug {}

impl TableItem for u32 {}
impl TableItem for SegmentRow {}
impl TableItem for CacheRow {}
impl TableItem for HeadTarget {}
impl TableItem for DrawRow {}

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

/// The function of the gate in a block of the form `f(gate) ⊙ up`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// x·σ(x).
    #[default]
    Silu,
    /// GELU by its tanh approximation, x·σ(2u) with u = √(2/π)·(x + 0.044715·x³).
    GeluTanh,
}

/// The initial value of a product.
#[derive(Debug)]
pub enum Accumulate<'a, B> {
    /// Nothing: the output is overwritten.
    Nothing,
    /// Nothing, and the product is multiplied by a number; not for a gradient of weights.
    Multiplied(f32),
    /// The old output.
    Existing,
    /// A bias `[outputs]`, the same for every row; the output is then f32.
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
    /// Leading numbers of a head that the rotary embedding turns; even.
    pub rotated: usize,
    /// Positions that a query reads at most, its own included; `None` for all before it.
    pub window: Option<usize>,
}

impl AttentionShape {
    /// Heads that are turned whole and read all positions.
    pub const fn new(heads: usize, kv_heads: usize, head_dim: usize) -> Self {
        Self { heads, kv_heads, head_dim, rotated: head_dim, window: None }
    }

    /// The first position that the query of a position reads.
    pub fn first_read(&self, position: usize) -> usize {
        self.window.map_or(0, |window| (position + 1).saturating_sub(window))
    }

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

    /// True if a GPU's tensor cores can run attention in bf16: rows of whole 16 bytes, and heads at most 128 wide.
    pub fn fits_tensor_cores(&self) -> bool {
        self.head_dim <= 128 && self.head_dim.is_multiple_of(8)
    }

    /// Panics where rows of queries, or of what is shaped like them, or rows of keys or values are of other lengths.
    pub fn expect_rows(&self, rows: usize, of_queries: &[usize], of_keys: &[usize]) {
        let are = |lens: &[usize], width| lens.iter().all(|len| *len == rows * width);
        assert!(are(of_queries, self.q_dim()), "queries are [rows, heads · head_dim]");
        assert!(are(of_keys, self.kv_dim()), "keys are [rows, kv_heads · head_dim]");
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
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

/// Tokens of a page of the cache: a block of the CPU's kernel for up to four query heads a key, two warps of a GPU.
pub const PAGE: usize = 64;

/// In place of a cell: a GPU leaves out the key and the value. A CPU is given none.
pub const NO_CELL: u32 = u32::MAX;

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
    /// Number format; offsets count numbers.
    pub format: NumberFormat,
}

/// The tokens that one decoded row attends to: a shared prompt, then its own.
///
/// Its pages start at `first_page` in a table: the prompt's, then its own; the last page of each may be partly filled.
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

/// A token whose log-probability is wanted.
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
    /// Only the `top_k` most likely tokens, the lower ids of equal ones; 0 for all.
    pub top_k: u32,
    /// Of these only the fewest most likely ones that together have this share of their probability.
    pub top_p: f32,
    /// Of these only tokens at least this fraction as likely as the most likely one.
    pub min_p: f32,
    /// Zero.
    pub unused: u32,
}

impl DrawRow {
    /// True if every token may be drawn.
    pub(crate) fn keeps_all(self) -> bool {
        self.top_k == 0 && self.top_p == 1.0 && self.min_p == 0.0
    }
}

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
    /// Factors that are the same for all elements, computed in f64.
    pub fn factors(self) -> AdamWFactors {
        let n = self.step as f64;
        AdamWFactors {
            gradient: self.gradient_scale as f32,
            decay: (1.0 - self.learning_rate * self.weight_decay) as f32,
            beta1: self.beta1 as f32,
            one_less_beta1: (1.0 - self.beta1) as f32,
            beta2: self.beta2 as f32,
            one_less_beta2: (1.0 - self.beta2) as f32,
            rate: (self.learning_rate / (1.0 - libm::pow(self.beta1, n))) as f32,
            root_correction: (1.0 / (1.0 - libm::pow(self.beta2, n)).sqrt()) as f32,
            epsilon: self.epsilon as f32,
        }
    }
}

/// The numbers of one `AdamW` step as every element uses them: with g the scaled gradient,
/// m ← β₁·m + (1−β₁)·g, v ← β₂·v + (1−β₂)·g², p ← decay·p − rate·m / (correction·√v + ε).
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
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

/// Numbers of a buffer: rows of `width`, with room behind each where
/// [`Device::product`](crate::Device::product) of a device writes x·A there. Lengths and offsets count
/// no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSize {
    /// How many rows.
    pub rows: usize,
    /// Numbers of a row.
    pub width: usize,
    /// Numbers behind it.
    pub room: usize,
}

impl BufferSize {
    /// All numbers.
    pub(crate) fn len(self) -> usize {
        self.rows * self.width
    }
}

impl From<usize> for BufferSize {
    fn from(len: usize) -> Self {
        Self { rows: 1, width: len, room: 0 }
    }
}

/// Memory layout of rows, such as the embedding's.
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

/// The first and the second moments of all elements of an update.
///
/// A moment in bf16 is rounded up at random, with a probability equal to the fraction dropped, so its mean over many
/// steps is that of f32. A decay of 0.999 moves it by less than half a unit of bf16, so rounding to nearest would never
/// move it.
#[derive(Debug)]
pub enum MomentsMut<'a, B> {
    /// One number for each element.
    F32([&'a mut B; 2]),
    /// Bf16, two elements in a number of the buffer, the first of them in its low half.
    Bf16 {
        /// The buffers.
        buffers: [&'a mut B; 2],
        /// Seed of the draws that round ([`hapo_core::RngStream::Moments`]): at the counter of [`AdamW::step`] and
        /// of the element's number over eight, the element has 16 bits for the first moment and 16 for the second.
        seed: u64,
    },
}
