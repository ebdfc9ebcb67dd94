//! Training: log-probabilities and entropies of a packed batch, and the gradient of any function of
//! them.
//!
//! Purpose: `forward`, then `backward` with the derivatives of the caller's objective. The tape owns
//! every buffer and is used again by the next batch, since fresh pages cost more than the arithmetic on
//! them.
//!
//! Price: activations of all layers stay in memory between the two, or of one layer with
//! [`ActivationCheckpointing::Layers`], for one more forward pass.

use hapo_kernels::{Buffer, Device};

use crate::batch::{BatchLimits, PackedBatch, Prepared, prepare};
use crate::compute_error::ComputeError;
use crate::gradients::Gradients;
use crate::head::{Head, Outputs};
use crate::layer::{Layer, LayerActivations, LayerGradients};
use crate::memory::{ActivationCheckpointing, TapeBytes, chunk_rows};
use crate::model::Model;
use crate::product::Scratch;

/// Buffers of a forward and a backward pass.
#[derive(Debug)]
pub struct Tape<D: Device> {
    checkpointing: ActivationCheckpointing,
    /// Is `None` for what is best on the device.
    keep_logits: Option<usize>,
    body: Option<Body<D>>,
    head: Option<Head<D>>,
    prepared: Option<Prepared<D>>,
}

#[derive(Debug)]
struct Body<D: Device> {
    rows: usize,
    /// Input of every layer, and the output of the last.
    x: Vec<D::Buf>,
    saved: Vec<LayerActivations<D>>,
    scratch: Scratch<D>,
    gradient: Option<LayerGradients<D>>,
}

impl<D: Device> Default for Tape<D> {
    fn default() -> Self {
        Self::new(ActivationCheckpointing::None)
    }
}

impl<D: Device> Tape<D> {
    /// An empty tape; buffers come with the first batch and grow with the largest.
    pub fn new(checkpointing: ActivationCheckpointing) -> Self {
        Self { checkpointing, keep_logits: None, body: None, head: None, prepared: None }
    }

    /// Bytes of logits held at once, where not those of [`Device::logit_bytes`]. A batch within it keeps its logits for the
    /// backward pass; a larger one goes through in chunks that are computed twice.
    #[must_use]
    pub fn with_logit_bytes(mut self, bytes: usize) -> Self {
        self.keep_logits = Some(bytes);
        self
    }

    /// Gives all buffers back; the next batch takes them again.
    pub fn release(&mut self) {
        (self.body, self.head, self.prepared) = (None, None, None);
    }

    /// Bytes of the buffers held now.
    pub fn bytes(&self) -> TapeBytes {
        let len = |it: &D::Buf| it.bytes() as u64;
        let mut bytes = TapeBytes::default();
        if let Some(body) = &self.body {
            bytes.activations = body.x.iter().map(len).sum::<u64>()
                + body.saved.iter().map(LayerActivations::bytes).sum::<u64>()
                + body.scratch.bytes();
            bytes.gradients = body.gradient.as_ref().map_or(0, LayerGradients::bytes);
        }
        (bytes.head, bytes.logits) = self.head.as_ref().map_or((0, 0), Head::bytes);
        bytes
    }

    fn reserve_body(&mut self, model: &Model<D>, rows: usize) -> Result<(), ComputeError> {
        if self.body.as_ref().is_some_and(|it| rows <= it.rows) {
            return Ok(());
        }
        self.body = None;
        let (device, config) = (&model.device, &model.config);
        let rows = rows.next_multiple_of(16);
        let saved = match self.checkpointing {
            ActivationCheckpointing::None => config.layers,
            ActivationCheckpointing::Layers => 1,
        };
        self.body = Some(Body {
            rows,
            x: (0..=config.layers)
                .map(|_| device.alloc(rows * config.hidden))
                .collect::<Result<_, _>>()?,
            saved: (0..saved)
                .map(|_| LayerActivations::new(device, config, rows, 1))
                .collect::<Result<_, _>>()?,
            scratch: Scratch::new(device, config, rows, model.rank())?,
            gradient: None,
        });
        Ok(())
    }

    fn reserve_gradient(&mut self, model: &Model<D>) -> Result<(), ComputeError> {
        let body = self.body.as_mut().ok_or(ComputeError::NoForward)?;
        if body.gradient.is_none() {
            let gradient =
                LayerGradients::new(&model.device, &model.config, body.rows, model.rank())?;
            body.gradient = Some(gradient);
        }
        Ok(())
    }

    fn reserve_head(
        &mut self,
        model: &Model<D>,
        rows: usize,
        targets: usize,
    ) -> Result<(), ComputeError> {
        let chunk = self.chunk_rows(model);
        self.head = Some(Head::reserve(self.head.take(), model, rows, targets, chunk)?);
        Ok(())
    }

    fn chunk_rows(&self, model: &Model<D>) -> usize {
        let bytes = self.keep_logits.unwrap_or_else(|| model.device.logit_bytes());
        chunk_rows(model.config.vocab_size, bytes)
    }
}

impl<D: Device> Model<D> {
    /// Log-probabilities and entropies of the targets of a batch.
    ///
    /// # Errors
    /// A batch that does not fit the model ([`PackedBatch`] says how it must be), or no memory.
    pub fn forward(
        &self,
        batch: &PackedBatch,
        tape: &mut Tape<D>,
    ) -> Result<Outputs, ComputeError> {
        tape.prepared = None;
        let prepared = prepare(&self.device, batch, self.limits())?;
        tape.reserve_body(self, prepared.rows)?;
        tape.reserve_head(self, prepared.head_row_count, prepared.order.len())?;
        let chunk = tape.chunk_rows(self);
        let outputs = self.device.enter(|| {
            let body = tape.body.as_mut().expect("the body was reserved");
            let head = tape.head.as_mut().expect("the head was reserved");
            self.body_forward(&prepared, body);
            self.head_forward(&prepared, &body.x[self.config.layers], head, chunk);
            self.outputs(&prepared, head)
        });
        self.device.check()?;
        tape.prepared = Some(prepared);
        Ok(outputs)
    }

    /// Adds the gradient of Σ `d_log_probs`·log-probability + Σ `d_entropies`·entropy over the targets of
    /// the last forward pass; the log-probabilities are those at the targets' temperatures. The tape is
    /// spent by it.
    ///
    /// # Errors
    /// No forward pass, another number of targets, or no memory.
    pub fn backward(
        &self,
        tape: &mut Tape<D>,
        d_log_probs: &[f32],
        d_entropies: &[f32],
        gradients: &mut Gradients<D>,
    ) -> Result<(), ComputeError> {
        let expected = match &tape.prepared {
            Some(prepared) => prepared.order.len(),
            None => return Err(ComputeError::NoForward),
        };
        for (what, got) in
            [("log-probabilities", d_log_probs.len()), ("entropies", d_entropies.len())]
        {
            if got != expected {
                return Err(ComputeError::Gradients { what, expected, got });
            }
        }
        tape.reserve_gradient(self)?;
        gradients.reserve(self)?;
        let prepared = tape.prepared.take().ok_or(ComputeError::NoForward)?;
        let chunk = tape.chunk_rows(self);
        let pairs: Vec<f32> =
            prepared.order.iter().flat_map(|&i| [d_log_probs[i], d_entropies[i]]).collect();
        self.device.enter(|| {
            let body = tape.body.as_mut().expect("the body was reserved");
            let head = tape.head.as_mut().expect("the head was reserved");
            self.device.upload(&pairs, head.gradients.first_mut(pairs.len()));
            let d = body.gradient.as_mut().expect("the gradient was reserved");
            self.head_backward(&prepared, head, chunk, &mut d.resid, gradients);
            self.body_backward(&prepared, body, gradients);
        });
        self.device.check()?;
        gradients.mark_added();
        Ok(())
    }

    /// Logits `[tokens, vocabulary]` of one sequence, all at once: for checks, not for long sequences.
    ///
    /// # Errors
    /// Tokens that do not fit the model, or no memory.
    pub fn logits(&self, tokens: &[u32], tape: &mut Tape<D>) -> Result<Vec<f32>, ComputeError> {
        let mut logits = Vec::with_capacity(tokens.len() * self.config.vocab_size);
        self.each_logits(tokens, tape, |chunk| logits.extend_from_slice(chunk))?;
        Ok(logits)
    }

    /// Logits of one sequence, handed over in chunks `[some tokens, vocabulary]` from the first token to the last.
    ///
    /// # Errors
    /// Tokens that do not fit the model, or no memory.
    pub fn each_logits(
        &self,
        tokens: &[u32],
        tape: &mut Tape<D>,
        visit: impl FnMut(&[f32]) + Send,
    ) -> Result<(), ComputeError> {
        let mut batch = PackedBatch::default();
        batch.push(tokens, None);
        let rows: Vec<u32> = (0..tokens.len() as u32).collect();
        tape.prepared = None;
        let prepared = prepare(&self.device, &batch, self.limits())?;
        tape.reserve_body(self, prepared.rows)?;
        tape.reserve_head(self, rows.len(), 1)?;
        let chunk = tape.chunk_rows(self);
        let table = self.device.table(&rows);
        self.device.enter(|| {
            let body = tape.body.as_mut().expect("the body was reserved");
            let head = tape.head.as_mut().expect("the head was reserved");
            self.body_forward(&prepared, body);
            let hidden_states = &body.x[self.config.layers];
            self.head_logits((rows.len(), &table), hidden_states, head, chunk, visit);
        });
        self.device.check()?;
        Ok(())
    }

    fn limits(&self) -> BatchLimits {
        BatchLimits { vocabulary: self.config.vocab_size, positions: self.positions }
    }

    fn body_forward(&self, batch: &Prepared<D>, body: &mut Body<D>) {
        let x = body.x[0].first_mut(batch.rows * self.config.hidden);
        self.embed(&self.device, &batch.tokens, x);
        for index in 0..self.config.layers {
            self.body_layer(batch, index, body);
        }
    }

    /// Runs one layer from its input on the tape.
    fn body_layer(&self, batch: &Prepared<D>, index: usize, body: &mut Body<D>) {
        let (shape, rows) = (self.config.attention_shape(), batch.rows);
        let slot = index % body.saved.len();
        let [x, x_next] = body
            .x
            .get_disjoint_mut([index, index + 1])
            .expect("a layer has an input and an output");
        self.tape_layer(batch, index).forward(
            x,
            x_next,
            &mut body.saved[slot],
            &mut body.scratch,
            |device, a| {
                let out = a.out.first_mut(rows * shape.q_dim());
                let log_sums = a.log_sums.first_mut(rows * shape.heads);
                device.attention(shape, &batch.segments, a.q, a.k, a.v, out, log_sums);
            },
        );
    }

    fn body_backward(&self, batch: &Prepared<D>, body: &mut Body<D>, gradients: &mut Gradients<D>) {
        let all_saved = body.saved.len() == self.config.layers;
        for index in (0..self.config.layers).rev() {
            if !all_saved {
                self.body_layer(batch, index, body);
            }
            let slot = index % body.saved.len();
            self.tape_layer(batch, index).backward(
                &body.x[index],
                &batch.segments,
                &mut body.saved[slot],
                &mut body.scratch,
                body.gradient.as_mut().expect("the gradient was reserved"),
                gradients,
            );
        }
        if self.base_is_frozen() {
            return;
        }
        let d = body.gradient.as_ref().expect("the gradient was reserved");
        let embedding = self.roles.embedding;
        let d_embedding = if self.config.tied {
            gradients.at_mut(embedding)
        } else {
            gradients.cleared(&self.device, embedding)
        };
        self.device.embed_grad(
            self.embedding_layout(),
            &batch.tokens,
            d.resid.first(batch.rows * self.config.hidden),
            d_embedding,
        );
    }

    /// A layer as training runs it, on the f32 weights where there are any.
    fn tape_layer<'a>(&'a self, batch: &'a Prepared<D>, index: usize) -> Layer<'a, D> {
        Layer {
            model: self,
            device: &self.device,
            packed: self.packed_alone(),
            index,
            rows: batch.rows,
            positions: &batch.positions,
            kv_format: self.device.attention_format(self.config.attention_shape()),
            kv_at: 0,
        }
    }
}
