//! Buffers of generation: one block of rows from its tokens to its logits.

use hapo_kernels::{Accumulate, Buffer, Device};

use crate::compute_error::ComputeError;
use crate::layer::{AttentionArgs, Layer, LayerActivations};
use crate::memory::{ActivationFormats, GenerationRows, generation_bytes, kv_bytes_per_token};
use crate::model::{Model, mat};
use crate::product::Scratch;

/// Buffers of one block of rows.
#[derive(Debug)]
pub(crate) struct Workspace<D: Device> {
    pub(crate) rows: usize,
    pub(crate) head_rows: usize,
    pub(crate) x: [D::Buf; 2],
    pub(crate) saved: LayerActivations<D>,
    pub(crate) scratch: Scratch<D>,
    pub(crate) last: D::Buf,
    norm: D::Buf,
    norm_inverse: D::Buf,
    pub(crate) logits: D::Buf,
}

impl<D: Device> Workspace<D> {
    /// `head_rows` rows reach the head; `decode` keeps the keys and values of all layers.
    pub(crate) fn new(
        model: &Model<D>,
        rows: usize,
        head_rows: usize,
        decode: bool,
    ) -> Result<Self, ComputeError> {
        let (device, config) = (&model.device, &model.config);
        let formats = ActivationFormats::of(device, config);
        let hidden = config.hidden;
        let kv_layers = if decode { config.layers } else { 1 };
        Ok(Self {
            rows,
            head_rows,
            x: [device.alloc(rows * hidden)?, device.alloc(rows * hidden)?],
            saved: LayerActivations::new(device, config, rows, kv_layers)?,
            scratch: Scratch::new(device, config, rows, model.rank())?,
            last: device.alloc(head_rows * hidden)?,
            norm: device.alloc_as(head_rows * hidden, formats.factors)?,
            norm_inverse: device.alloc(head_rows)?,
            logits: device.alloc(head_rows * config.vocab_size)?,
        })
    }

    /// Runs a layer: the block's rows go from `x[0]` to `x[0]`.
    pub(crate) fn run_layer(
        &mut self,
        layer: &Layer<'_, D>,
        attend: impl FnOnce(&D, AttentionArgs<'_, D>),
    ) {
        let [x, x_next] = &mut self.x;
        layer.forward(x, x_next, &mut self.saved, &mut self.scratch, attend);
        self.x.swap(0, 1);
    }
}

impl<D: Device> Model<D> {
    /// Bytes in addition to the cache that decoding up to `rows` rows and reading up to `prefill` prompt tokens
    /// of up to `prompts` prompts at once may take, the longest prompt in pieces included.
    pub fn workspace_bytes(&self, rows: usize, prefill: usize, prompts: usize) -> usize {
        let c = &self.config;
        let shape = c.attention_shape();
        let formats = ActivationFormats::of(&self.device, c);
        let weight_bytes = self.weight_bytes();
        // A block keeps the size of the largest step it was part of.
        let mut blocks: Vec<usize> = Vec::new();
        for n in 1..=rows {
            let size = n.div_ceil(self.device.blocks(n, weight_bytes).max(1));
            for (i, first) in (0..n).step_by(size).enumerate() {
                let here = size.min(n - first).next_multiple_of(4);
                match blocks.get_mut(i) {
                    Some(it) => *it = here.max(*it),
                    None => blocks.push(here),
                }
            }
        }
        let decoded: usize = blocks.iter().sum();
        let of_token = kv_bytes_per_token(c, formats.attention) as usize
            + 2 * shape.q_dim() * formats.attention.bytes()
            + c.heads * size_of::<f32>();
        let counts = GenerationRows { decoded, prefill, prompts };
        generation_bytes((c, formats), counts, self.rank()) as usize + self.positions * of_token
    }

    /// Final norm of the rows in `work.last`, and their logits in `work.logits`.
    pub(crate) fn head_rows(&self, device: &D, rows: usize, work: &mut Workspace<D>) {
        let (hidden, vocabulary) = (self.config.hidden, self.config.vocab_size);
        device.rms_norm(
            self.config.rms_eps,
            work.last.first(rows * hidden),
            self.param(self.roles.norm),
            work.norm.first_mut(rows * hidden),
            work.norm_inverse.first_mut(rows),
            None,
        );
        let shape = mat(rows, hidden, vocabulary);
        let x = work.norm.first(rows * hidden);
        let y = work.logits.first_mut(rows * vocabulary);
        if let Some(it) = self.packed_for(rows) {
            device.matmul_packed(shape, x, it.at(it.head), Accumulate::Nothing, y);
        } else {
            let head = self.param(self.roles.head);
            device.matmul(shape, x, head, Accumulate::Nothing, y);
        }
    }
}
