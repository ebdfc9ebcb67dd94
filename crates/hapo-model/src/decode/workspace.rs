//! Buffers of generation: one block of rows from its tokens to its logits.

use hapo_core::Refusal;
use hapo_kernels::{Buffer, BufferSize, Counting, Device, DeviceCaps, NumberFormat};

use crate::layer::{AttentionArgs, LayerActivations, LayerPass, Scratch};
use crate::{config::Config, linear::Input, model::Model};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenerationRows {
    /// Rows of the buffers of decoding, which are cut into blocks: a few more than sequences.
    pub decoded: usize,
    /// Prompt tokens read at once.
    pub prefill: usize,
    pub prompts: usize,
}

/// Bytes of generation's activations and logits, without the cache, on such a device; `rank` is an adapter's or 0.
pub fn generation_bytes(
    caps: DeviceCaps,
    config: &Config,
    of: GenerationRows,
    rank: usize,
) -> usize {
    let device = Counting::new(caps);
    let decoded = BlockRows { rows: of.decoded, head_rows: of.decoded, kv_layers: config.layers };
    let prefill = BlockRows { rows: of.prefill, head_rows: of.prompts, kv_layers: 1 };
    let held = [decoded, prefill].map(|it| Workspace::new(&device, config, rank, it));
    debug_assert!(held.iter().all(Result::is_ok), "counting refuses nothing");
    // Logits of prompts are on the host twice.
    device.tally().now() + 2 * size_of::<f32>() * of.prompts * config.vocab_size
}

#[derive(Clone, Copy)]
pub(super) struct BlockRows {
    pub(super) rows: usize,
    /// Of them those that reach the head.
    pub(super) head_rows: usize,
    /// Layers whose keys and values are kept.
    pub(super) kv_layers: usize,
}

#[derive(Debug)]
pub(crate) struct Workspace<D: Device> {
    pub(super) rank: usize,
    pub(crate) rows: usize,
    pub(crate) head_rows: usize,
    kv_layers: usize,
    pub(crate) x: [D::Buf; 2],
    pub(crate) saved: LayerActivations<D>,
    pub(crate) scratch: Scratch<D>,
    pub(crate) last: D::Buf,
    norm: D::Buf,
    norm_inverse: D::Buf,
    pub(crate) logits: D::Buf,
}

impl<D: Device> Workspace<D> {
    /// Buffers of a block; `rank` is the adapter's, or 0.
    pub(super) fn new(
        device: &D,
        config: &Config,
        rank: usize,
        BlockRows { rows, head_rows, kv_layers }: BlockRows,
    ) -> Result<Self, Refusal> {
        let hidden = config.hidden;
        let buf = |len| device.alloc(len, NumberFormat::F32);
        Ok(Self {
            rank,
            rows,
            head_rows,
            kv_layers,
            x: [buf(rows * hidden)?, buf(rows * hidden)?],
            saved: LayerActivations::new(device, config, rows, rank, kv_layers)?,
            scratch: Scratch::new(device, config, rows, rank)?,
            last: buf(head_rows * hidden)?,
            norm: device.alloc(head_rows * hidden, device.caps().factors())?,
            norm_inverse: buf(head_rows)?,
            logits: buf(head_rows * config.vocab_size)?,
        })
    }

    /// Runs tokens through all layers: their output is in `x[0]`. `attend` is given the number of the layer.
    pub(super) fn run(
        &mut self,
        model: &Model<D>,
        device: &D,
        rows: &TokenRows<D>,
        mut attend: impl FnMut(usize, &D, AttentionArgs<'_, D>),
    ) {
        let TokenRows { n, tokens, positions } = rows;
        let config = &model.config;
        model.embed(device, tokens, self.x[0].first_mut(n * config.hidden));
        for index in 0..config.layers {
            let mut layer = LayerPass::new(model, index, *n, positions);
            layer.device = device;
            layer.kv_at = index % self.kv_layers * n * config.attention_shape().kv_dim();
            let [x, x_next] = &mut self.x;
            let attend = |device: &D, a: AttentionArgs<'_, D>| attend(index, device, a);
            layer.forward(x, x_next, &mut self.saved, &mut self.scratch, attend);
            self.x.swap(0, 1);
        }
    }

    /// Final norm of the rows in `last`, and their logits in `logits`.
    pub(super) fn head_rows(&mut self, model: &Model<D>, device: &D, rows: usize) {
        let (hidden, vocabulary) = (model.config.hidden, model.config.vocab_size);
        let y = self.norm.first_mut(rows * hidden);
        let inverse = self.norm_inverse.first_mut(rows);
        model.final_norm(device, self.last.first(rows * hidden), y, inverse);
        let x = self.norm.first(rows * hidden);
        let y = self.logits.first_mut(rows * vocabulary);
        model.head.forward(Input { device, x, low: None }, y);
    }
}

pub(super) struct TokenRows<D: Device> {
    n: usize,
    tokens: D::Table<u32>,
    positions: D::Table<u32>,
}

impl<D: Device> TokenRows<D> {
    pub(super) fn new(device: &D, tokens: &[u32], positions: &[u32]) -> Self {
        let (n, positions) = (tokens.len(), device.table(positions));
        Self { n, tokens: device.table(tokens), positions }
    }
}

#[derive(Debug)]
pub(super) struct Pieces<D: Device> {
    /// `[layers, length, kv_dim]`.
    pub(super) keys: D::Buf,
    pub(super) values: D::Buf,
    pub(super) q: D::Buf,
    pub(super) out: D::Buf,
    pub(super) log_sums: D::Buf,
}

impl<D: Device> Pieces<D> {
    /// Of a prompt of `len` tokens; `rank` is the adapter's, or 0.
    pub(super) fn new(
        device: &D,
        config: &Config,
        rank: usize,
        len: usize,
    ) -> Result<Self, Refusal> {
        let shape = config.attention_shape();
        let all = config.layers * len * shape.kv_dim();
        let format = device.caps().attention(shape);
        let numbers = |len| device.alloc(len, format);
        Ok(Self {
            keys: numbers(all)?,
            values: numbers(all)?,
            q: numbers(len * shape.q_dim())?,
            out: device
                .alloc(BufferSize { rows: len, width: shape.q_dim(), room: rank }, format)?,
            log_sums: device.alloc(len * shape.heads, NumberFormat::F32)?,
        })
    }
}

/// Bytes in addition to the cache that decoding up to `rows` rows and reading up to `prefill` prompt tokens
/// of up to `prompts` prompts at once may take, the longest prompt in pieces included.
pub fn workspace_bytes<D: Device>(
    model: &Model<D>,
    rows: usize,
    prefill: usize,
    prompts: usize,
) -> usize {
    let (config, caps) = (model.config(), model.device().caps());
    let weight_bytes = model.weight_bytes();
    // A block keeps the size of the largest step it was part of.
    let mut blocks: Vec<usize> = Vec::new();
    for n in 1..=rows {
        let size = n.div_ceil(caps.blocks(n, weight_bytes).max(1));
        for (i, first) in (0..n).step_by(size).enumerate() {
            let here = caps.decoded_rows(size.min(n - first)).next_multiple_of(4);
            match blocks.get_mut(i) {
                Some(it) => *it = here.max(*it),
                None => blocks.push(here),
            }
        }
    }
    let of = GenerationRows { decoded: blocks.iter().sum(), prefill, prompts };
    let device = Counting::new(caps);
    let pieces = Pieces::new(&device, config, model.rank(), model.positions());
    debug_assert!(pieces.is_ok(), "counting refuses nothing");
    generation_bytes(caps, config, of, model.rank()) + device.tally().now()
}
