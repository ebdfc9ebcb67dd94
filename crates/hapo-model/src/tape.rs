//! Training: log-probabilities and entropies of a packed batch, and the gradient of any function of
//! them.
//!
//! Purpose: `forward`, then `backward` with the derivatives of the caller's objective. The tape owns
//! every buffer and is used again by the next batch, since fresh pages cost more than the arithmetic on
//! them.
//!
//! Price: activations of all layers stay in memory between the two, or of one layer with
//! [`ActivationCheckpointing::Layers`], for one more forward pass.

use hapo_kernels::{Accumulate, Buffer, Device, HeadPart};

use crate::batch::{BatchLimits, PackedBatch, Prepared, prepare};
use crate::compute_error::ComputeError;
use crate::memory::TapeBytes;
use crate::model::{LayerKept, Model};
use crate::params::Range;

/// What the backward pass finds on the tape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActivationCheckpointing {
    /// All activations are kept.
    #[default]
    None,
    /// Only the input of every layer is kept; the rest is computed again.
    Layers,
}

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

/// The sum of gradients of the batches since [`Gradients::clear`], laid out as the parameters.
#[derive(Debug)]
pub struct Gradients<D: Device> {
    buf: D::Buf,
    fresh: bool,
}

impl<D: Device> Gradients<D> {
    /// Zero gradients.
    ///
    /// # Errors
    /// No memory.
    pub fn new(model: &Model<D>) -> Result<Self, ComputeError> {
        Ok(Self {
            buf: model.device.alloc(model.layout.len())?,
            fresh: true,
        })
    }

    /// Forgets the sum: the next backward pass overwrites it, which saves a pass over memory.
    pub fn clear(&mut self) {
        self.fresh = true;
    }

    /// Makes a forgotten sum the zeros it stands for: a batch in which no group has a signal still
    /// makes an optimiser step.
    pub fn materialize(&mut self, model: &Model<D>) {
        if self.fresh {
            let len = self.buf.len();
            model.device.fill(self.buf.first_mut(len), 0.0);
            self.fresh = false;
        }
    }

    /// Whether no backward pass was added since [`Gradients::clear`]; the buffer is meaningless then.
    pub fn is_cleared(&self) -> bool {
        self.fresh
    }

    /// The flat buffer.
    pub fn buf(&self) -> &D::Buf {
        &self.buf
    }

    /// Squared norm of every tensor, in the order of the layout; zeros when cleared.
    pub fn squared_norms(&self, model: &Model<D>) -> Vec<f64> {
        let device = &model.device;
        let params = model.layout.params();
        if self.fresh {
            return vec![0.0; params.len()];
        }
        device.enter(|| {
            params
                .iter()
                .map(|p| device.squared_norm(self.buf.at(p.offset, p.len)))
                .collect()
        })
    }
}

/// Buffers of a forward and a backward pass.
#[derive(Debug)]
pub struct Tape<D: Device> {
    recompute: ActivationCheckpointing,
    keep_logits: usize,
    rows: usize,
    head_rows: usize,
    logit_rows: usize,
    targets: usize,
    body: Option<Body<D>>,
    head: Option<Head<D>>,
    prepared: Option<Prepared<D>>,
}

#[derive(Debug)]
struct Body<D: Device> {
    /// Input of every layer, and the output of the last.
    x: Vec<D::Buf>,
    kept: Vec<LayerKept<D>>,
    h: D::Buf,
    gradient: Option<BodyGradient<D>>,
}

#[derive(Debug)]
struct BodyGradient<D: Device> {
    x: D::Buf,
    n: D::Buf,
    wide: D::Buf,
    q: D::Buf,
    k: D::Buf,
    v: D::Buf,
}

#[derive(Debug)]
struct Head<D: Device> {
    x: D::Buf,
    n: D::Buf,
    inverse: D::Buf,
    dn: D::Buf,
    dx: D::Buf,
    logits: D::Buf,
    stats: D::Buf,
    gradients: D::Buf,
}

/// Numbers per target in the statistics of the head.
pub(crate) const STATS: usize = 6;

/// Default bytes of logits held at once.
pub(crate) const KEEP_LOGITS: usize = 128 << 20;

/// Rows of logits that `bytes` have room for.
pub(crate) fn chunk_rows(vocabulary: usize, bytes: usize) -> usize {
    (bytes / (vocabulary * size_of::<f32>())).max(6) / 6 * 6
}

impl<D: Device> Default for Tape<D> {
    fn default() -> Self {
        Self::new(ActivationCheckpointing::None)
    }
}

impl<D: Device> Tape<D> {
    /// An empty tape; buffers come with the first batch and grow with the largest.
    pub fn new(recompute: ActivationCheckpointing) -> Self {
        Self {
            recompute,
            keep_logits: KEEP_LOGITS,
            rows: 0,
            head_rows: 0,
            logit_rows: 0,
            targets: 0,
            body: None,
            head: None,
            prepared: None,
        }
    }

    /// Bytes of logits held at once (default 128 MiB). A batch within it keeps its logits for the
    /// backward pass; a larger one goes through in chunks that are computed twice.
    #[must_use]
    pub fn with_logit_bytes(mut self, bytes: usize) -> Self {
        self.keep_logits = bytes;
        self
    }

    /// Bytes of the buffers held now.
    pub fn bytes(&self) -> TapeBytes {
        let len = |it: &D::Buf| (it.len() * size_of::<f32>()) as u64;
        let mut bytes = TapeBytes::default();
        if let Some(body) = &self.body {
            bytes.activations = body.x.iter().map(len).sum::<u64>()
                + body.kept.iter().map(LayerKept::bytes).sum::<u64>()
                + len(&body.h);
            if let Some(it) = &body.gradient {
                let all = [&it.x, &it.n, &it.wide, &it.q, &it.k, &it.v];
                bytes.gradients = all.into_iter().map(len).sum();
            }
        }
        if let Some(it) = &self.head {
            let all = [
                &it.x,
                &it.n,
                &it.inverse,
                &it.dn,
                &it.dx,
                &it.stats,
                &it.gradients,
            ];
            bytes.head = all.into_iter().map(len).sum();
            bytes.logits = len(&it.logits);
        }
        bytes
    }

    fn reserve_body(&mut self, model: &Model<D>, rows: usize) -> Result<(), ComputeError> {
        if self.body.is_some() && rows <= self.rows {
            return Ok(());
        }
        self.body = None;
        let (device, config) = (&model.device, &model.config);
        let rows = rows.next_multiple_of(16);
        let kept = match self.recompute {
            ActivationCheckpointing::None => config.layers,
            ActivationCheckpointing::Layers => 1,
        };
        self.body = Some(Body {
            x: (0..=config.layers)
                .map(|_| device.alloc(rows * config.hidden))
                .collect::<Result<_, _>>()?,
            kept: (0..kept)
                .map(|_| LayerKept::new(device, config, rows))
                .collect::<Result<_, _>>()?,
            h: device.alloc(rows * config.ffn)?,
            gradient: None,
        });
        self.rows = rows;
        Ok(())
    }

    fn reserve_gradient(&mut self, model: &Model<D>) -> Result<(), ComputeError> {
        let rows = self.rows;
        let body = self.body.as_mut().ok_or(ComputeError::NoForward)?;
        if body.gradient.is_none() {
            let shape = model.attention_shape();
            let buf = |width: usize| model.device.alloc(rows * width);
            body.gradient = Some(BodyGradient {
                x: buf(model.config.hidden)?,
                n: buf(model.config.hidden)?,
                wide: buf(shape.q_dim())?,
                q: buf(shape.q_dim())?,
                k: buf(shape.kv_dim())?,
                v: buf(shape.kv_dim())?,
            });
        }
        Ok(())
    }

    fn reserve_head(
        &mut self,
        model: &Model<D>,
        rows: usize,
        targets: usize,
    ) -> Result<(), ComputeError> {
        let logit_rows = self.chunk_rows(model).min(rows.max(1));
        if self.head.is_some()
            && rows <= self.head_rows
            && targets <= self.targets
            && logit_rows <= self.logit_rows
        {
            return Ok(());
        }
        self.head = None;
        let rows = rows.max(self.head_rows).next_multiple_of(16);
        let targets = targets.max(self.targets).next_multiple_of(16);
        let logit_rows = logit_rows.max(self.logit_rows);
        let device = &model.device;
        let hidden = model.config.hidden;
        self.head = Some(Head {
            x: device.alloc(rows * hidden)?,
            n: device.alloc(rows * hidden)?,
            inverse: device.alloc(rows)?,
            dn: device.alloc(rows * hidden)?,
            dx: device.alloc(rows * hidden)?,
            logits: device.alloc(logit_rows * model.config.vocab_size)?,
            stats: device.alloc(targets * STATS)?,
            gradients: device.alloc(targets * 2)?,
        });
        (self.head_rows, self.targets, self.logit_rows) = (rows, targets, logit_rows);
        Ok(())
    }

    fn chunk_rows(&self, model: &Model<D>) -> usize {
        chunk_rows(model.config.vocab_size, self.keep_logits)
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
            self.head_forward(&prepared, body, head, chunk);
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
        for (what, got) in [
            ("log-probabilities", d_log_probs.len()),
            ("entropies", d_entropies.len()),
        ] {
            if got != expected {
                return Err(ComputeError::Gradients {
                    what,
                    expected,
                    got,
                });
            }
        }
        tape.reserve_gradient(self)?;
        let prepared = tape.prepared.take().ok_or(ComputeError::NoForward)?;
        let chunk = tape.chunk_rows(self);
        let pairs: Vec<f32> = prepared
            .order
            .iter()
            .flat_map(|&i| [d_log_probs[i], d_entropies[i]])
            .collect();
        self.device.enter(|| {
            let body = tape.body.as_mut().expect("the body was reserved");
            let head = tape.head.as_mut().expect("the head was reserved");
            self.device
                .upload(&pairs, head.gradients.first_mut(pairs.len()));
            let sum = Sum {
                add: !gradients.fresh,
            };
            self.head_backward(&prepared, body, head, chunk, sum, &mut gradients.buf);
            self.body_backward(&prepared, body, sum, &mut gradients.buf);
        });
        self.device.check()?;
        gradients.fresh = false;
        Ok(())
    }

    /// Logits `[tokens, vocabulary]` of one sequence, all at once: for checks, not for long sequences.
    ///
    /// # Errors
    /// Tokens that do not fit the model, or no memory.
    pub fn logits(&self, tokens: &[u32], tape: &mut Tape<D>) -> Result<Vec<f32>, ComputeError> {
        let mut batch = PackedBatch::default();
        batch.push(tokens, None);
        let rows: Vec<u32> = (0..tokens.len() as u32).collect();
        self.last_logits(&batch, &rows, tape)
    }

    /// Logits of chosen rows of a packed batch.
    pub(crate) fn last_logits(
        &self,
        batch: &PackedBatch,
        rows: &[u32],
        tape: &mut Tape<D>,
    ) -> Result<Vec<f32>, ComputeError> {
        tape.prepared = None;
        let prepared = prepare(&self.device, batch, self.limits())?;
        tape.reserve_body(self, prepared.rows)?;
        tape.reserve_head(self, rows.len(), 1)?;
        let vocabulary = self.config.vocab_size;
        let chunk = tape.chunk_rows(self);
        let mut logits = vec![0.0; rows.len() * vocabulary];
        let table = self.device.table(rows);
        self.device.enter(|| {
            let body = tape.body.as_mut().expect("the body was reserved");
            let head = tape.head.as_mut().expect("the head was reserved");
            self.body_forward(&prepared, body);
            self.head_norm(rows.len(), &table, body, head);
            for first in (0..rows.len()).step_by(chunk) {
                let n = chunk.min(rows.len() - first);
                self.head_product(first, n, head);
                self.device.download(
                    head.logits.first(n * vocabulary),
                    &mut logits[first * vocabulary..(first + n) * vocabulary],
                );
            }
        });
        self.device.check()?;
        Ok(logits)
    }

    pub(crate) fn limits(&self) -> BatchLimits {
        BatchLimits {
            vocabulary: self.config.vocab_size,
            positions: self.positions,
        }
    }

    fn body_forward(&self, batch: &Prepared<D>, body: &mut Body<D>) {
        self.device.embed(
            self.embedding_layout(),
            &batch.tokens,
            self.param(self.roles.embedding),
            body.x[0].first_mut(batch.rows * self.config.hidden),
        );
        for layer in 0..self.config.layers {
            self.tape_layer(batch, layer, body);
        }
    }

    /// Runs one layer from its input on the tape.
    fn tape_layer(&self, batch: &Prepared<D>, layer: usize, body: &mut Body<D>) {
        let shape = self.attention_shape();
        let rows = batch.rows;
        let kept = layer % body.kept.len();
        let [x, next] = body
            .x
            .get_disjoint_mut([layer, layer + 1])
            .expect("a layer has an input and an output");
        self.layer_forward(
            &self.device,
            None,
            layer,
            rows,
            &batch.positions,
            x,
            next,
            &mut body.kept[kept],
            &mut body.h,
            |device, a| {
                device.attention(
                    shape,
                    &batch.segments,
                    a.q,
                    a.k,
                    a.v,
                    a.out.first_mut(rows * shape.q_dim()),
                    a.log_sums.first_mut(rows * shape.heads),
                );
            },
        );
    }

    fn head_norm(&self, rows: usize, table: &D::Table<u32>, body: &Body<D>, head: &mut Head<D>) {
        let hidden = self.config.hidden;
        let last = &body.x[self.config.layers];
        self.device.gather_rows(
            hidden,
            table,
            last.first(last.len()),
            head.x.first_mut(rows * hidden),
        );
        self.device.rms_norm(
            self.config.rms_eps,
            head.x.first(rows * hidden),
            self.param(self.roles.norm),
            head.n.first_mut(rows * hidden),
            head.inverse.first_mut(rows),
            None,
        );
    }

    fn head_product(&self, first: usize, rows: usize, head: &mut Head<D>) {
        let (hidden, vocabulary) = (self.config.hidden, self.config.vocab_size);
        self.device.matmul(
            Self::mat(rows, hidden, vocabulary),
            head.n.at(first * hidden, rows * hidden),
            self.param(self.roles.head),
            Accumulate::Nothing,
            head.logits.first_mut(rows * vocabulary),
        );
    }

    fn head_forward(&self, batch: &Prepared<D>, body: &Body<D>, head: &mut Head<D>, chunk: usize) {
        let vocabulary = self.config.vocab_size;
        self.head_norm(batch.head_row_count, &batch.head_rows, body, head);
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

    fn outputs(&self, batch: &Prepared<D>, head: &Head<D>) -> Outputs {
        let n = batch.order.len();
        let mut stats = vec![0.0; n * STATS];
        self.device
            .download(head.stats.first(n * STATS), &mut stats);
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

    /// From gradients of the targets to that of the last layer's output.
    fn head_backward(
        &self,
        batch: &Prepared<D>,
        body: &mut Body<D>,
        head: &mut Head<D>,
        chunk: usize,
        sum: Sum,
        gradients: &mut D::Buf,
    ) {
        let device = &self.device;
        let (hidden, vocabulary) = (self.config.hidden, self.config.vocab_size);
        let parts = parts(batch, chunk);
        let kept = parts.len() <= 1;
        if parts.is_empty() {
            // No target: only the shared sums must start from zero.
            sum.prepare(device, self.roles.head, gradients);
        }
        for (i, part) in parts.into_iter().enumerate() {
            if !kept {
                self.head_product(part.first_row, part.rows, head);
            }
            let shape = Self::mat(part.rows, hidden, vocabulary);
            let (at, len) = (part.first_row * hidden, part.rows * hidden);
            device.head_grad(
                vocabulary,
                &batch.targets,
                part,
                head.stats.first(batch.order.len() * STATS),
                head.gradients.first(batch.order.len() * 2),
                head.logits.first_mut(part.rows * vocabulary),
            );
            let dlogits = head.logits.first(part.rows * vocabulary);
            device.matmul_input_grad(
                shape,
                dlogits,
                self.param(self.roles.head),
                Accumulate::Nothing,
                head.dn.at_mut(at, len),
            );
            let onto = if i == 0 {
                sum.onto()
            } else {
                Accumulate::Existing
            };
            let (offset, len) = self.roles.head;
            device.matmul_weight_grad(
                shape,
                head.n.at(at, part.rows * hidden),
                dlogits,
                onto,
                gradients.at_mut(offset, len),
            );
        }
        let rows = batch.head_row_count;
        sum.prepare(device, self.roles.norm, gradients);
        device.rms_norm_grad(
            head.x.first(rows * hidden),
            self.param(self.roles.norm),
            head.inverse.first(rows),
            head.dn.first(rows * hidden),
            Accumulate::Nothing,
            head.dx.first_mut(rows * hidden),
            gradients.at_mut(self.roles.norm.0, self.roles.norm.1),
        );
        let gradient = body.gradient.as_mut().expect("the gradient was reserved");
        device.scatter_rows(
            hidden,
            &batch.head_rows,
            head.dx.first(rows * hidden),
            gradient.x.first_mut(batch.rows * hidden),
        );
    }

    fn body_backward(
        &self,
        batch: &Prepared<D>,
        body: &mut Body<D>,
        sum: Sum,
        gradients: &mut D::Buf,
    ) {
        let all_kept = body.kept.len() == self.config.layers;
        for layer in (0..self.config.layers).rev() {
            if !all_kept {
                self.tape_layer(batch, layer, body);
            }
            self.layer_backward(batch, layer, body, sum, gradients);
        }
        if !self.config.tied {
            sum.prepare(&self.device, self.roles.embedding, gradients);
        }
        let gradient = body.gradient.as_ref().expect("the gradient was reserved");
        let (offset, len) = self.roles.embedding;
        self.device.embed_grad(
            self.embedding_layout(),
            &batch.tokens,
            gradient.x.first(batch.rows * self.config.hidden),
            gradients.at_mut(offset, len),
        );
    }

    fn layer_backward(
        &self,
        batch: &Prepared<D>,
        layer: usize,
        body: &mut Body<D>,
        sum: Sum,
        gradients: &mut D::Buf,
    ) {
        let device = &self.device;
        let c = &self.config;
        let p = &self.roles.layers[layer];
        let shape = self.attention_shape();
        let rows = batch.rows;
        let (wide, narrow) = (shape.q_dim(), shape.kv_dim());
        let (all, ffn) = (rows * c.hidden, rows * c.ffn);
        let Body {
            x,
            kept,
            h,
            gradient,
        } = body;
        let index = layer % kept.len();
        let kept = &mut kept[index];
        let d = gradient.as_mut().expect("the gradient was reserved");

        let down = Self::mat(rows, c.ffn, c.hidden);
        device.matmul_input_grad(
            down,
            d.x.first(all),
            self.param(p.down),
            Accumulate::Nothing,
            h.first_mut(ffn),
        );
        device.swiglu_grad(
            kept.gate.first_mut(ffn),
            kept.up.first_mut(ffn),
            h.first_mut(ffn),
        );
        device.matmul_weight_grad(
            down,
            h.first(ffn),
            d.x.first(all),
            sum.onto(),
            gradients.at_mut(p.down.0, p.down.1),
        );
        let inner = Self::mat(rows, c.hidden, c.ffn);
        for (i, (w, dy)) in [(p.gate, &kept.gate), (p.up, &kept.up)]
            .into_iter()
            .enumerate()
        {
            let onto = if i == 0 {
                Accumulate::Nothing
            } else {
                Accumulate::Existing
            };
            device.matmul_input_grad(
                inner,
                dy.first(ffn),
                self.param(w),
                onto,
                d.n.first_mut(all),
            );
            device.matmul_weight_grad(
                inner,
                kept.n2.first(all),
                dy.first(ffn),
                sum.onto(),
                gradients.at_mut(w.0, w.1),
            );
        }
        sum.prepare(device, p.norm2, gradients);
        device.rms_norm_grad(
            kept.middle.first(all),
            self.param(p.norm2),
            kept.inverse2.first(rows),
            d.n.first(all),
            Accumulate::Existing,
            d.x.first_mut(all),
            gradients.at_mut(p.norm2.0, p.norm2.1),
        );
        let out = Self::mat(rows, wide, c.hidden);
        device.matmul_input_grad(
            out,
            d.x.first(all),
            self.param(p.o),
            Accumulate::Nothing,
            d.wide.first_mut(rows * wide),
        );
        device.matmul_weight_grad(
            out,
            kept.o.first(rows * wide),
            d.x.first(all),
            sum.onto(),
            gradients.at_mut(p.o.0, p.o.1),
        );
        device.attention_grad(
            shape,
            &batch.segments,
            kept.q.first(rows * wide),
            kept.k.first(rows * narrow),
            kept.v.first(rows * narrow),
            kept.o.first(rows * wide),
            kept.log_sums.first(rows * shape.heads),
            d.wide.first(rows * wide),
            d.q.first_mut(rows * wide),
            d.k.first_mut(rows * narrow),
            d.v.first_mut(rows * narrow),
        );
        for (x, width) in [(&mut d.q, wide), (&mut d.k, narrow)] {
            device.rope(
                c.head_dim,
                -1.0,
                self.angles(),
                &batch.positions,
                x.first_mut(rows * width),
            );
        }
        if let (Some(raw), Some(norms)) = (&kept.raw, &p.head_norm) {
            for (norm, heads, x, inverse, dy, to) in [
                (norms[0], c.heads, &raw.q, &raw.inverse_q, &d.q, &mut kept.q),
                (
                    norms[1],
                    c.kv_heads,
                    &raw.k,
                    &raw.inverse_k,
                    &d.k,
                    &mut kept.k,
                ),
            ] {
                let len = rows * heads * c.head_dim;
                sum.prepare(device, norm, gradients);
                device.rms_norm_grad(
                    x.first(len),
                    self.param(norm),
                    inverse.first(rows * heads),
                    dy.first(len),
                    Accumulate::Nothing,
                    to.first_mut(len),
                    gradients.at_mut(norm.0, norm.1),
                );
            }
            std::mem::swap(&mut kept.q, &mut d.q);
            std::mem::swap(&mut kept.k, &mut d.k);
        }
        let n1 = kept.n1.first(all);
        for (i, (w, width, dy)) in [(p.q, wide, &d.q), (p.k, narrow, &d.k), (p.v, narrow, &d.v)]
            .into_iter()
            .enumerate()
        {
            let shape = Self::mat(rows, c.hidden, width);
            let dy = dy.first(rows * width);
            device.matmul_weight_grad(shape, n1, dy, sum.onto(), gradients.at_mut(w.0, w.1));
            if let Some(bias) = &p.bias {
                sum.prepare(device, bias[i], gradients);
                device.add_column_sums(width, dy, gradients.at_mut(bias[i].0, bias[i].1));
            }
            let onto = if i == 0 {
                Accumulate::Nothing
            } else {
                Accumulate::Existing
            };
            device.matmul_input_grad(shape, dy, self.param(w), onto, d.n.first_mut(all));
        }
        sum.prepare(device, p.norm1, gradients);
        device.rms_norm_grad(
            x[layer].first(all),
            self.param(p.norm1),
            kept.inverse1.first(rows),
            d.n.first(all),
            Accumulate::Existing,
            d.x.first_mut(all),
            gradients.at_mut(p.norm1.0, p.norm1.1),
        );
    }
}

/// Whether gradients are added to what the buffer holds.
#[derive(Clone, Copy)]
struct Sum {
    add: bool,
}

impl Sum {
    fn onto<'a, B: 'a>(self) -> Accumulate<'a, B> {
        if self.add {
            Accumulate::Existing
        } else {
            Accumulate::Nothing
        }
    }

    /// Zeroes a range that an operation can only add to.
    fn prepare<D: Device>(self, device: &D, range: Range, gradients: &mut D::Buf) {
        if !self.add {
            device.fill(gradients.at_mut(range.0, range.1), 0.0);
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
