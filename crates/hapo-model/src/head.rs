//! The language-model head: final norm, logits, statistics of the targets, and their gradient.
//!
//! Price: logits beyond a chunk are computed twice, once for each pass.

use hapo_core::Refusal;
use hapo_kernels::{
    Accumulate, Buffer, Device, EmbeddingLayout, HeadGrad, HeadPart, HeadStats, MatShape,
    NumberFormat, Numbers, RmsNormGrad,
};

use crate::linear::{Backward, Input};
use crate::model::{Model, times};
use crate::{batch::Prepared, config::Config};

/// Numbers per target in the statistics of the head.
const STATS: usize = 6;

/// Rows of logits that fit into `bytes`.
pub(crate) fn chunk_rows(vocabulary: usize, bytes: usize) -> usize {
    (bytes / (vocabulary * size_of::<f32>())).max(6) / 6 * 6
}

/// True if a batch in which `head_rows` rows predict tokens keeps its logits for the backward pass; `logit_bytes` are
/// held at once. Otherwise they are computed twice.
pub fn keeps_logits(config: &Config, head_rows: usize, logit_bytes: usize) -> bool {
    head_rows <= chunk_rows(config.vocab_size, logit_bytes)
}

/// One number per target, in the caller's order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outputs {
    /// Log-probability at the target's temperature.
    pub log_probs: Vec<f32>,
    pub log_probs_t1: Vec<f32>,
    /// Entropy in nats, at temperature 1, of the distribution that predicts the target.
    pub entropies: Vec<f32>,
}

#[derive(Debug)]
pub(crate) struct Head<D: Device> {
    rows: usize,
    targets: usize,
    logit_rows: usize,
    chunk: usize,
    x: D::Buf,
    norm: D::Buf,
    norm_inverse: D::Buf,
    d_norm: D::Buf,
    dx: D::Buf,
    logits: D::Buf,
    stats: D::Buf,
    pub(crate) gradients: D::Buf,
}

impl<D: Device> Head<D> {
    /// Buffers for `rows` rows, `targets` targets and up to `chunk` rows of logits at once; `old` if large enough.
    pub(crate) fn reserve(
        old: Option<Self>,
        model: &Model<D>,
        rows: usize,
        targets: usize,
        chunk: usize,
    ) -> Result<Self, Refusal> {
        let logit_rows = chunk.min(rows.max(1));
        let held = match old {
            Some(it) if rows <= it.rows && targets <= it.targets && logit_rows <= it.logit_rows => {
                return Ok(Self { chunk, ..it });
            }
            old => old.map_or((0, 0, 0), |it| (it.rows, it.targets, it.logit_rows)),
        };
        let rows = rows.max(held.0).next_multiple_of(16);
        let targets = targets.max(held.1).next_multiple_of(16);
        let logit_rows = logit_rows.max(held.2);
        let device = &model.device;
        let hidden = model.config.hidden;
        Ok(Self {
            rows,
            targets,
            logit_rows,
            chunk,
            x: device.alloc(rows * hidden, NumberFormat::F32)?,
            norm: device.alloc(rows * hidden, device.caps().factors())?,
            norm_inverse: device.alloc(rows, NumberFormat::F32)?,
            d_norm: device.alloc(rows * hidden, NumberFormat::F32)?,
            dx: device.alloc(rows * hidden, NumberFormat::F32)?,
            logits: device.alloc(logit_rows * model.config.vocab_size, NumberFormat::F32)?,
            stats: device.alloc(targets * STATS, NumberFormat::F32)?,
            gradients: device.alloc(targets * 2, NumberFormat::F32)?,
        })
    }

    pub(crate) fn logit_bytes(&self) -> usize {
        self.logits.bytes()
    }

    pub(crate) fn forward(
        &mut self,
        model: &Model<D>,
        batch: &Prepared<D>,
        hidden_states: &D::Buf,
    ) {
        let vocabulary = model.config.vocab_size;
        self.norm_rows(model, batch.head_row_count, &batch.head_rows, hidden_states);
        for part in self.parts(batch) {
            self.product(model, part.first_row, part.rows);
            model.device.head(HeadStats {
                vocabulary,
                targets: &batch.targets,
                part,
                logits: self.logits.first(part.rows * vocabulary),
                stats: self.stats.first_mut(batch.order.len() * STATS),
            });
        }
    }

    pub(crate) fn backward(
        &mut self,
        model: &Model<D>,
        batch: &Prepared<D>,
        d_hidden_states: &mut D::Buf,
        pass: &mut Backward<'_, D>,
    ) {
        let (device, hidden) = (&model.device, model.config.hidden);
        self.logits_backward(model, batch, pass);
        let rows = batch.head_row_count;
        let multiplier = model.config.decoder.multipliers.logits;
        times(device, self.d_norm.first_mut(rows * hidden), multiplier);
        device.rms_norm_grad(RmsNormGrad {
            offset: model.config.decoder.norm_offset(),
            x: self.x.first(rows * hidden),
            w: model.norm.all(),
            inverse_rms: self.norm_inverse.first(rows),
            dy: self.d_norm.first(rows * hidden),
            onto: Accumulate::Nothing,
            dx: self.dx.first_mut(rows * hidden),
            dw: pass.gradients.of_norm(device, model.norm.place),
        });
        let to = d_hidden_states.first_mut(batch.rows * hidden);
        device.scatter_rows(hidden, &batch.head_rows, self.dx.first(rows * hidden), to);
    }

    /// Gradients of the normalised rows and of the head's matrix, chunk by chunk.
    fn logits_backward(
        &mut self,
        model: &Model<D>,
        batch: &Prepared<D>,
        pass: &mut Backward<'_, D>,
    ) {
        let (device, config) = (&model.device, &model.config);
        let (hidden, vocabulary) = (config.hidden, config.vocab_size);
        let parts = self.parts(batch);
        let logits_are_held = parts.len() <= 1;
        let (place, is_trained) = (model.head.place, pass.gradients.are_of_weights());
        if parts.is_empty() && is_trained {
            // No target: only the shared sum must start from zero.
            pass.gradients.cleared(device, place);
        }
        for (i, part) in parts.into_iter().enumerate() {
            if !logits_are_held {
                self.product(model, part.first_row, part.rows);
            }
            let (at, len) = (part.first_row * hidden, part.rows * hidden);
            device.head_grad(HeadGrad {
                vocabulary,
                targets: &batch.targets,
                part,
                stats: self.stats.first(batch.order.len() * STATS),
                gradients: self.gradients.first(batch.order.len() * 2),
                logits: self.logits.first_mut(part.rows * vocabulary),
            });
            let d_logits = self.logits.first(part.rows * vocabulary);
            let d_norm = self.d_norm.at_mut(at, len);
            model.head.input_grad(pass, d_logits, Accumulate::Nothing, d_norm);
            if is_trained {
                let onto = if i == 0 { pass.gradients.accumulate() } else { Accumulate::Existing };
                let shape = MatShape { rows: part.rows, inputs: hidden, outputs: vocabulary };
                let (x, dw) = (self.norm.at(at, len), pass.gradients.at_mut(place));
                device.product_weight_grad(shape, x, d_logits, onto, dw);
            }
        }
    }

    /// Logits `[rows, vocabulary]` of some rows of the last layer's output, at most a chunk of them.
    pub(crate) fn logits(
        &mut self,
        model: &Model<D>,
        rows: &[u32],
        hidden_states: &D::Buf,
    ) -> Vec<f32> {
        self.norm_rows(model, rows.len(), &model.device.table(rows), hidden_states);
        self.product(model, 0, rows.len());
        let mut logits = vec![0.0; rows.len() * model.config.vocab_size];
        model.device.download(self.logits.first(logits.len()), &mut logits);
        logits
    }

    pub(crate) fn outputs(&self, device: &D, batch: &Prepared<D>) -> Outputs {
        let n = batch.order.len();
        let mut stats = vec![0.0; n * STATS];
        device.download(self.stats.first(n * STATS), &mut stats);
        let [mut log_probs, mut log_probs_t1, mut entropies] = [(); 3].map(|()| vec![0.0; n]);
        for (&i, stats) in batch.order.iter().zip(stats.chunks_exact(STATS)) {
            (log_probs[i], log_probs_t1[i], entropies[i]) = (stats[0], stats[1], stats[2]);
        }
        Outputs { log_probs, log_probs_t1, entropies }
    }

    fn norm_rows(
        &mut self,
        model: &Model<D>,
        rows: usize,
        table: &D::Table<u32>,
        hidden_states: &D::Buf,
    ) {
        let (device, hidden) = (&model.device, model.config.hidden);
        let all = Numbers::Span(hidden_states.first(hidden_states.len()));
        let layout = EmbeddingLayout::Rows { width: hidden };
        device.gather_rows(layout, table, all, self.x.first_mut(rows * hidden));
        let y = self.norm.first_mut(rows * hidden);
        let inverse = self.norm_inverse.first_mut(rows);
        model.final_norm(device, self.x.first(rows * hidden), y, inverse);
    }

    fn product(&mut self, model: &Model<D>, first: usize, rows: usize) {
        let (hidden, vocabulary) = (model.config.hidden, model.config.vocab_size);
        let x = self.norm.at(first * hidden, rows * hidden);
        let y = self.logits.first_mut(rows * vocabulary);
        model.head.forward(Input { device: &model.device, x, low: None }, y);
    }

    fn parts(&self, batch: &Prepared<D>) -> Vec<HeadPart> {
        let starts = &batch.target_starts;
        let part = |first_row: usize| {
            let rows = self.chunk.min(batch.head_row_count - first_row);
            let first_target = starts[first_row];
            let targets = starts[first_row + rows] - first_target;
            HeadPart { first_row, rows, first_target, targets }
        };
        (0..batch.head_row_count).step_by(self.chunk).map(part).collect()
    }
}
