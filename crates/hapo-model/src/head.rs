//! The language-model head: final norm, logits, statistics of the targets, and their gradient.
//!
//! Price: logits beyond a chunk are computed twice, once for each pass.

use hapo_kernels::{Accumulate, Buffer, Device, HeadPart};

use crate::batch::Prepared;
use crate::compute_error::ComputeError;
use crate::gradients::Gradients;
use crate::memory::STATS;
use crate::model::{Model, mat};

/// One number per target, in the caller's order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outputs {
    /// Log-probability at the target's temperature.
    pub log_probs: Vec<f32>,
    /// Log-probability at temperature 1.
    pub log_probs_t1: Vec<f32>,
    /// Entropy in nats, at temperature 1, of the distribution that predicts the target.
    pub entropies: Vec<f32>,
}

/// Buffers of the head.
#[derive(Debug)]
pub(crate) struct Head<D: Device> {
    rows: usize,
    targets: usize,
    logit_rows: usize,
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
    /// Buffers for `rows` rows with `targets` targets and at most `chunk` rows of logits at once: those
    /// of `old` if they are large enough, else larger ones.
    pub(crate) fn reserve(
        old: Option<Self>,
        model: &Model<D>,
        rows: usize,
        targets: usize,
        chunk: usize,
    ) -> Result<Self, ComputeError> {
        let logit_rows = chunk.min(rows.max(1));
        let held = match old {
            Some(it) if rows <= it.rows && targets <= it.targets && logit_rows <= it.logit_rows => {
                return Ok(it);
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
            x: device.alloc(rows * hidden)?,
            norm: device.alloc_as(rows * hidden, device.factor_format())?,
            norm_inverse: device.alloc(rows)?,
            d_norm: device.alloc(rows * hidden)?,
            dx: device.alloc(rows * hidden)?,
            logits: device.alloc(logit_rows * model.config.vocab_size)?,
            stats: device.alloc(targets * STATS)?,
            gradients: device.alloc(targets * 2)?,
        })
    }

    /// Bytes of its buffers but the logits, and of the logits.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let all = [
            &self.x,
            &self.norm,
            &self.norm_inverse,
            &self.d_norm,
            &self.dx,
            &self.stats,
            &self.gradients,
        ];
        (all.into_iter().map(Buffer::bytes).sum::<usize>() as u64, self.logits.bytes() as u64)
    }
}

impl<D: Device> Model<D> {
    /// Statistics of the targets of `hidden_states`, the output of the last layer.
    pub(crate) fn head_forward(
        &self,
        batch: &Prepared<D>,
        hidden_states: &D::Buf,
        head: &mut Head<D>,
        chunk: usize,
    ) {
        let vocabulary = self.config.vocab_size;
        self.head_norm(batch.head_row_count, &batch.head_rows, hidden_states, head);
        for part in parts(batch, chunk) {
            self.head_product(part.first_row, part.rows, head);
            self.device.head(
                vocabulary,
                &batch.targets,
                part,
                head.logits.first(part.rows * vocabulary),
                head.stats.first_mut(batch.order.len() * STATS),
            );
        }
    }

    /// From gradients of the targets to that of the last layer's output.
    pub(crate) fn head_backward(
        &self,
        batch: &Prepared<D>,
        head: &mut Head<D>,
        chunk: usize,
        d_hidden_states: &mut D::Buf,
        gradients: &mut Gradients<D>,
    ) {
        let device = &self.device;
        let hidden = self.config.hidden;
        self.logits_backward(batch, head, chunk, gradients);
        let rows = batch.head_row_count;
        device.rms_norm_grad(
            head.x.first(rows * hidden),
            self.param(self.roles.norm),
            head.norm_inverse.first(rows),
            head.d_norm.first(rows * hidden),
            Accumulate::Nothing,
            head.dx.first_mut(rows * hidden),
            gradients.cleared(device, self.roles.norm),
        );
        device.scatter_rows(
            hidden,
            &batch.head_rows,
            head.dx.first(rows * hidden),
            d_hidden_states.first_mut(batch.rows * hidden),
        );
    }

    /// Gradients of the normalised rows and of the head's matrix, chunk by chunk.
    fn logits_backward(
        &self,
        batch: &Prepared<D>,
        head: &mut Head<D>,
        chunk: usize,
        gradients: &mut Gradients<D>,
    ) {
        let device = &self.device;
        let (hidden, vocabulary) = (self.config.hidden, self.config.vocab_size);
        let matrix = self.roles.head;
        let parts = parts(batch, chunk);
        let logits_are_held = parts.len() <= 1;
        if parts.is_empty() {
            // No target: only the shared sum must start from zero.
            if !self.base_is_frozen() {
                gradients.cleared(device, matrix);
            }
        }
        for (i, part) in parts.into_iter().enumerate() {
            if !logits_are_held {
                self.head_product(part.first_row, part.rows, head);
            }
            let shape = mat(part.rows, hidden, vocabulary);
            let (at, len) = (part.first_row * hidden, part.rows * hidden);
            device.head_grad(
                vocabulary,
                &batch.targets,
                part,
                head.stats.first(batch.order.len() * STATS),
                head.gradients.first(batch.order.len() * 2),
                head.logits.first_mut(part.rows * vocabulary),
            );
            let d_logits = head.logits.first(part.rows * vocabulary);
            let d_norm = head.d_norm.at_mut(at, len);
            if let Some(it) = self.packed_alone() {
                let (copy, onto) = (it.at(it.head), Accumulate::Nothing);
                device.matmul_packed_input_grad(shape, d_logits, copy, onto, d_norm);
            } else {
                let head = self.param(matrix);
                device.matmul_input_grad(shape, d_logits, head, Accumulate::Nothing, d_norm);
            }
            if self.base_is_frozen() {
                continue;
            }
            let onto = if i == 0 { gradients.accumulate() } else { Accumulate::Existing };
            let dw = gradients.at_mut(matrix);
            device.matmul_weight_grad(shape, head.norm.at(at, len), d_logits, onto, dw);
        }
    }

    /// Logits `[rows, vocabulary]` of the rows in `table` of the last layer's output, a chunk after the other.
    pub(crate) fn head_logits(
        &self,
        (rows, table): (usize, &D::Table<u32>),
        hidden_states: &D::Buf,
        head: &mut Head<D>,
        chunk: usize,
        mut visit: impl FnMut(&[f32]),
    ) {
        let vocabulary = self.config.vocab_size;
        self.head_norm(rows, table, hidden_states, head);
        let mut logits = vec![0.0; chunk.min(rows) * vocabulary];
        for first in (0..rows).step_by(chunk) {
            let n = chunk.min(rows - first);
            self.head_product(first, n, head);
            let logits = &mut logits[..n * vocabulary];
            self.device.download(head.logits.first(n * vocabulary), logits);
            visit(logits);
        }
    }

    /// What the statistics say of the targets.
    pub(crate) fn outputs(&self, batch: &Prepared<D>, head: &Head<D>) -> Outputs {
        let n = batch.order.len();
        let mut stats = vec![0.0; n * STATS];
        self.device.download(head.stats.first(n * STATS), &mut stats);
        let mut outputs = Outputs {
            log_probs: vec![0.0; n],
            log_probs_t1: vec![0.0; n],
            entropies: vec![0.0; n],
        };
        for (&i, stats) in batch.order.iter().zip(stats.chunks_exact(STATS)) {
            outputs.log_probs[i] = stats[0];
            outputs.log_probs_t1[i] = stats[1];
            outputs.entropies[i] = stats[2];
        }
        outputs
    }

    fn head_norm(
        &self,
        rows: usize,
        table: &D::Table<u32>,
        hidden_states: &D::Buf,
        head: &mut Head<D>,
    ) {
        let hidden = self.config.hidden;
        self.device.gather_rows(
            hidden,
            table,
            hidden_states.first(hidden_states.len()),
            head.x.first_mut(rows * hidden),
        );
        self.device.rms_norm(
            self.config.rms_eps,
            head.x.first(rows * hidden),
            self.param(self.roles.norm),
            head.norm.first_mut(rows * hidden),
            head.norm_inverse.first_mut(rows),
            None,
        );
    }

    fn head_product(&self, first: usize, rows: usize, head: &mut Head<D>) {
        let (hidden, vocabulary) = (self.config.hidden, self.config.vocab_size);
        let shape = mat(rows, hidden, vocabulary);
        let x = head.norm.at(first * hidden, rows * hidden);
        let y = head.logits.first_mut(rows * vocabulary);
        if let Some(it) = self.packed_alone() {
            self.device.matmul_packed(shape, x, it.at(it.head), Accumulate::Nothing, y);
        } else {
            self.device.matmul(shape, x, self.param(self.roles.head), Accumulate::Nothing, y);
        }
    }
}

/// Chunks of head rows with their targets.
fn parts<D: Device>(batch: &Prepared<D>, chunk: usize) -> Vec<HeadPart> {
    (0..batch.head_row_count)
        .step_by(chunk)
        .map(|first_row| {
            let rows = chunk.min(batch.head_row_count - first_row);
            let first_target = batch.target_starts[first_row];
            HeadPart {
                first_row,
                rows,
                first_target,
                targets: batch.target_starts[first_row + rows] - first_target,
            }
        })
        .collect()
}
