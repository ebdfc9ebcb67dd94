//! How much memory a decoder takes, from its shape alone.
//!
//! The formulas follow the buffers one by one; a test holds them against what a tape really holds.

use hapo_kernels::{CPU_LOGIT_BYTES, Compute, Cpu, Device, MatShape, NumberFormat};

use crate::config::Config;
use crate::packed;
pub use crate::packed::Packing;
use crate::params::ParamLayout;
use crate::weights::Locations;

const F32: u64 = size_of::<f32>() as u64;

/// Numbers per target in the statistics of the head.
pub(crate) const STATS: usize = 6;

/// Rows of logits that fit into `bytes`.
pub(crate) fn chunk_rows(vocabulary: usize, bytes: usize) -> usize {
    (bytes / (vocabulary * size_of::<f32>())).max(6) / 6 * 6
}

/// Which activations a forward pass saves for the backward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActivationCheckpointing {
    /// All are saved.
    #[default]
    None,
    /// Only the input of every layer is saved; the rest is computed again.
    Layers,
}

/// How a device holds activations and their gradients that are not f32 in any case: the stream of residuals, the sums of
/// norms and the logits are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActivationFormats {
    /// What products read and write between them.
    pub factors: NumberFormat,
    /// Queries, keys, values and outputs of attention.
    pub attention: NumberFormat,
}

impl ActivationFormats {
    /// Those of a device.
    pub fn of(device: &impl Device, config: &Config) -> Self {
        let attention = device.attention_format(config.attention_shape());
        Self { factors: device.factor_format(), attention }
    }
}

/// Bytes of the buffers of a forward and a backward pass, by part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TapeBytes {
    /// Activations: inputs of all layers and what the layers save.
    pub activations: u64,
    /// Gradients by activations, of one layer.
    pub gradients: u64,
    /// Hidden states that reach the head, their gradients, and numbers per target.
    pub head: u64,
    /// Logits held at once.
    pub logits: u64,
}

impl TapeBytes {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.activations + self.gradients + self.head + self.logits
    }
}

/// Bytes of one copy of the parameters in f32: that of the weights, of their gradient, and of each of
/// the two moments.
pub fn parameter_bytes(config: &Config) -> u64 {
    ParamLayout::of(config).len() as u64 * F32
}

/// Bytes of the weights of a model that is trained: beside an adapter too, where its folder is not in bf16.
pub fn weight_bytes(config: &Config, compute: Compute, by: Packing) -> u64 {
    if compute != Compute::Bf16 {
        return parameter_bytes(config);
    }
    2 * packed::bytes_split(config, by) + unpacked_bytes(config)
}

/// Bytes of the copy of a model's weights that the KL is measured from.
pub fn initial_bytes(config: &Config, compute: Compute, by: Packing) -> u64 {
    if compute != Compute::Bf16 {
        return parameter_bytes(config);
    }
    packed::bytes_split(config, by) + unpacked_bytes(config)
}

/// Bytes of what is not held packed where products are of bf16 factors.
fn unpacked_bytes(config: &Config) -> u64 {
    Locations::split(config, &ParamLayout::of(config)).len() as u64 * F32
}

/// Bytes of weights that an adapter leaves as they are, with their matrices held in bf16 alone.
pub fn frozen_bytes(config: &Config, compute: Compute, by: Packing) -> u64 {
    let vectors = ParamLayout::without_matrices(config).len() as u64 * F32;
    packed::bytes_alone(config, compute, by) + vectors
}

/// Bytes of the tape of a batch of `rows` packed tokens, of which `head_rows` predict `targets`
/// tokens; `rank` is that of an adapter, or 0, and `logit_bytes` the most that logits take at once.
pub fn tape_bytes(
    (config, formats): (&Config, ActivationFormats),
    rows: usize,
    head_rows: usize,
    targets: usize,
    checkpointing: ActivationCheckpointing,
    rank: usize,
    logit_bytes: usize,
) -> TapeBytes {
    let tokens = rows.next_multiple_of(16) as u64;
    let hidden = config.hidden as u64;
    let (q_dim, kv_dim) = attention_dims(config);
    let saved = match checkpointing {
        ActivationCheckpointing::None => config.layers as u64,
        ActivationCheckpointing::Layers => 1,
    };
    let logit_rows = chunk_rows(config.vocab_size, logit_bytes).min(head_rows.max(1)) as u64;
    let (head_rows, targets) =
        (head_rows.next_multiple_of(16) as u64, targets.next_multiple_of(16) as u64);
    let inputs = (config.layers as u64 + 1) * hidden;
    let (factor, attention) = (formats.factors.bytes() as u64, formats.attention.bytes() as u64);
    let low = F32 * rank as u64;
    let of_layers = saved * layer_bytes(config, formats) + shared_bytes(config, formats, rank);
    TapeBytes {
        activations: tokens * (F32 * inputs + of_layers),
        gradients: tokens * (F32 * 2 * hidden + attention * 2 * (q_dim + kv_dim) + low),
        head: head_rows * (F32 * (3 * hidden + 1) + factor * hidden)
            + F32 * targets * (STATS as u64 + 2),
        logits: F32 * logit_rows * config.vocab_size as u64,
    }
}

/// Whether a batch of which `head_rows` predict tokens keeps its logits, of which `logit_bytes` are held at once, for the
/// backward pass; they are computed twice where it does not.
pub fn keeps_logits(config: &Config, head_rows: usize, logit_bytes: usize) -> bool {
    head_rows <= chunk_rows(config.vocab_size, logit_bytes)
}

/// Bytes of what the backward pass of a batch of `rows` packed tokens, of which `head_rows` predict some, copies on the
/// CPU, one matrix at a time.
pub fn copied_bytes(config: &Config, compute: Compute, rows: usize, head_rows: usize) -> u64 {
    let (hidden, ffn) = (config.hidden, config.ffn);
    let (q_dim, _) = attention_dims(config);
    let logit_rows = chunk_rows(config.vocab_size, CPU_LOGIT_BYTES).min(head_rows);
    let product =
        |rows, inputs, outputs| Cpu::copied_bytes(compute, MatShape { rows, inputs, outputs });
    let matrices = [
        product(rows, hidden, ffn),
        product(rows, ffn, hidden),
        product(rows, hidden, q_dim as usize),
        product(rows, q_dim as usize, hidden),
        product(logit_rows, hidden, config.vocab_size),
    ];
    matrices.into_iter().max().unwrap_or_default() as u64
}

/// Bytes of the largest tensor: the copy that writing a model folder makes.
pub fn largest_tensor_bytes(config: &Config) -> u64 {
    let sizes = config.tensors().into_iter().map(|it| it.shape.iter().product::<usize>());
    sizes.max().unwrap_or_default() as u64 * F32
}

/// Bytes of the keys and values of one token, all layers.
pub fn kv_bytes_per_token(config: &Config, format: NumberFormat) -> u64 {
    2 * format.bytes() as u64 * config.layers as u64 * attention_dims(config).1
}

/// What generation has buffers for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenerationRows {
    /// Rows of the buffers of decoding, which are cut into blocks: a few more than sequences.
    pub decoded: usize,
    /// Prompt tokens read at once.
    pub prefill: usize,
    /// Prompts read at once.
    pub prompts: usize,
}

/// Bytes of the activations and logits of generation, without the cache; `rank` is that of an adapter, or 0.
pub fn generation_bytes(
    (config, formats): (&Config, ActivationFormats),
    of: GenerationRows,
    rank: usize,
) -> u64 {
    let (hidden, vocabulary) = (config.hidden as u64, config.vocab_size as u64);
    let factor = formats.factors.bytes() as u64;
    let row = F32 * 2 * hidden + layer_bytes(config, formats) + shared_bytes(config, formats, rank);
    let head_row = F32 * (hidden + 1 + vocabulary) + factor * hidden;
    // A layer's keys and values are counted in its row.
    let layers = config.layers as u64;
    let more_keys = kv_bytes_per_token(config, formats.attention) / layers * (layers - 1);
    let decode = of.decoded as u64 * (row + head_row + more_keys);
    let read = of.prefill as u64 * row + of.prompts as u64 * (head_row + F32 * 2 * vocabulary);
    decode + read
}

/// Operations of the attention alone within [`forward_flops`].
pub fn attention_flops(config: &Config, rows: f64, context: f64) -> f64 {
    4.0 * rows * config.layers as f64 * attention_dims(config).0 as f64 * context
}

/// Floating-point operations of a forward pass: products with the weights and with the `context`
/// tokens that each of the `rows` tokens attends to on average; `head_rows` of them reach the head. A
/// multiplication and an addition count as two. The backward pass takes twice as many.
pub fn forward_flops(config: &Config, rows: f64, head_rows: f64, context: f64) -> f64 {
    let (q_dim, kv_dim) = attention_dims(config);
    let hidden = config.hidden as f64;
    let per_layer = hidden * (2.0 * q_dim as f64 + 2.0 * kv_dim as f64 + 3.0 * config.ffn as f64);
    let layers = config.layers as f64;
    2.0 * rows * layers * per_layer
        + attention_flops(config, rows, context)
        + 2.0 * head_rows * hidden * config.vocab_size as f64
}

/// Widths of all query heads and of all key/value heads.
fn attention_dims(config: &Config) -> (u64, u64) {
    let shape = config.attention_shape();
    (shape.q_dim() as u64, shape.kv_dim() as u64)
}

/// Bytes of what all layers use in turn, for each token.
fn shared_bytes(config: &Config, formats: ActivationFormats, rank: usize) -> u64 {
    let (q_dim, kv_dim) = attention_dims(config);
    let heads = match formats.attention {
        NumberFormat::F32 => 0,
        NumberFormat::Bf16 => q_dim + 2 * kv_dim,
    };
    formats.factors.bytes() as u64 * config.ffn as u64 + F32 * (rank as u64 + heads)
}

/// Bytes that a layer saves for each token.
fn layer_bytes(config: &Config, formats: ActivationFormats) -> u64 {
    let (q_dim, kv_dim) = attention_dims(config);
    let (heads, kv_heads) = (config.heads as u64, config.kv_heads as u64);
    let (hidden, ffn) = (config.hidden as u64, config.ffn as u64);
    let raw = if config.qk_norm { q_dim + kv_dim + heads + kv_heads } else { 0 };
    let (factor, attention) = (formats.factors.bytes() as u64, formats.attention.bytes() as u64);
    F32 * (hidden + 2 + raw + heads)
        + factor * 2 * (hidden + ffn)
        + attention * 2 * (q_dim + kv_dim)
}
