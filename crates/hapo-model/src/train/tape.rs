//! Training: log-probabilities and entropies of a packed batch, and the gradient of any function of them.
//!
//! Purpose: `forward`, then `backward` with the derivatives of the caller's objective. The tape owns every buffer and
//! is used again by the next batch, since fresh pages cost more than the arithmetic on them. Price: activations of all
//! layers stay in memory between the two, or of one layer with [`ActivationCheckpointing::Layers`], for one more
//! forward pass. [`ActivationCheckpointing::Auto`] asks the device.

use hapo_core::Refusal;
use hapo_kernels::{Attention, Buffer, Counting, Device, NumberFormat};

use crate::batch::{PackedBatch, Prepared, prepare};
use crate::head::{Head, Outputs, chunk_rows};
use crate::layer::{
    AttentionArgs, BackwardPass, LayerActivations, LayerGradients, LayerPass, Scratch,
};
use crate::{config::Config, gradients::Gradients, linear::Backward, model::Model};

/// Which activations a forward pass saves for the backward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActivationCheckpointing {
    #[default]
    None,
    /// Only the input of every layer is saved; the rest is computed again.
    Layers,
    /// All where the device says that they fit beside the gradients, else the inputs. The bits are the same.
    Auto,
}

#[derive(Debug)]
pub struct Tape<D: Device> {
    checkpointing: ActivationCheckpointing,
    /// `None`: the device's best.
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
    /// With the gradient of an adapter's x·A.
    gradient: Option<(LayerGradients<D>, D::Buf)>,
}

impl<D: Device> Tape<D> {
    /// An empty tape; buffers come with the first batch and grow with the largest.
    pub fn new(checkpointing: ActivationCheckpointing) -> Self {
        Self { checkpointing, keep_logits: None, body: None, head: None, prepared: None }
    }

    /// Bytes of logits held at once, instead of the device's [`DeviceCaps`](hapo_kernels::DeviceCaps). A batch within the limit
    /// keeps its logits for the backward pass; a larger one goes through in chunks that are computed twice.
    #[must_use]
    pub fn with_logit_bytes(mut self, bytes: usize) -> Self {
        self.keep_logits = Some(bytes);
        self
    }

    /// Gives all buffers back; the next batch takes them again.
    pub fn release(&mut self) {
        (self.body, self.head, self.prepared) = (None, None, None);
    }

    pub fn logit_bytes(&self) -> usize {
        self.head.as_ref().map_or(0, Head::logit_bytes)
    }

    fn reserve_body(&mut self, model: &Model<D>, rows: usize) -> Result<(), Refusal> {
        if self.body.as_ref().is_some_and(|it| rows <= it.rows) {
            return Ok(());
        }
        self.body = None;
        let (config, rank) = (&model.config, model.rank());
        let rows = rows.next_multiple_of(16);
        let is_one = match self.checkpointing {
            ActivationCheckpointing::None => false,
            ActivationCheckpointing::Layers => true,
            ActivationCheckpointing::Auto => !self.keeps_all(model, rows)?,
        };
        let saved = if is_one { 1 } else { config.layers };
        self.body = Some(Body::new(&model.device, config, rows, rank, saved)?);
        Ok(())
    }

    /// True unless the device says that all activations of so many rows, their gradients, the head's buffers and the sum
    /// of gradients do not fit into its free memory.
    fn keeps_all(&self, model: &Model<D>, rows: usize) -> Result<bool, Refusal> {
        let Some(free) = model.device.free_bytes() else { return Ok(true) };
        let (config, rank) = (&model.config, model.rank());
        let counting = Counting::new(model.device.caps());
        let _body = Body::new(&counting, config, rows, rank, config.layers)?;
        let _gradients = LayerGradients::new(&counting, config, rows)?;
        let head = 4 * rows * (3 * config.hidden + rank)
            + 4 * config.vocab_size * rows.min(self.chunk_rows(model))
            + 4 * model.trained_len();
        let needed = (counting.tally().now() + head) as u64;
        // Factors that are rounded for products, tables, and what the device cannot join.
        let margin = free / 32 + (2 * rows * (config.ffn + config.hidden)) as u64;
        Ok(needed + margin <= free)
    }

    fn chunk_rows(&self, model: &Model<D>) -> usize {
        let bytes = self.keep_logits.unwrap_or_else(|| model.device.caps().logit_bytes);
        chunk_rows(model.config.vocab_size, bytes)
    }

    /// Log-probabilities and entropies of the targets of a batch.
    ///
    /// # Errors
    /// A batch that does not fit the model ([`PackedBatch`] says how it must be), or no memory.
    pub fn forward(&mut self, model: &Model<D>, batch: &PackedBatch) -> Result<Outputs, Refusal> {
        self.prepared = None;
        let prepared = prepare(model, batch)?;
        self.reserve_body(model, prepared.rows)?;
        let (chunk, rows, targets) =
            (self.chunk_rows(model), prepared.head_row_count, prepared.order.len());
        self.head = Some(Head::reserve(self.head.take(), model, rows, targets, chunk)?);
        let outputs = model.device.enter(|| {
            let body = self.body.as_mut().expect("the body was reserved");
            let head = self.head.as_mut().expect("the head was reserved");
            body.embed(model, &prepared);
            (0..model.config.layers).for_each(|index| body.layer(model, &prepared, index));
            head.forward(model, &prepared, &body.x[model.config.layers]);
            head.outputs(&model.device, &prepared)
        });
        model.device.check()?;
        self.prepared = Some(prepared);
        Ok(outputs)
    }

    /// Adds the gradient of Σ `d_log_probs`·log-probability + Σ `d_entropies`·entropy over the targets of the last
    /// forward pass; the log-probabilities are those at the targets' temperatures. The tape is spent by it.
    ///
    /// # Errors
    /// No forward pass, another number of targets, or no memory.
    pub fn backward(
        &mut self,
        model: &Model<D>,
        d_log_probs: &[f32],
        d_entropies: &[f32],
        gradients: &mut Gradients<D>,
    ) -> Result<(), Refusal> {
        let expected = match &self.prepared {
            Some(prepared) => prepared.order.len(),
            None => return Err(no_forward()),
        };
        for (what, got) in
            [("log-probabilities", d_log_probs.len()), ("entropies", d_entropies.len())]
        {
            if got != expected {
                let problem = format!("{what}: expected {expected} gradients, got {got}");
                return Err(Refusal::bug(problem));
            }
        }
        let body = self.body.as_mut().ok_or_else(no_forward)?;
        if body.gradient.is_none() {
            let gradient = LayerGradients::new(&model.device, &model.config, body.rows)?;
            let d_low = model.device.alloc(body.rows * model.rank(), NumberFormat::F32)?;
            body.gradient = Some((gradient, d_low));
        }
        gradients.reserve(&model.device)?;
        let prepared = self.prepared.take().ok_or_else(no_forward)?;
        let pairs: Vec<f32> =
            prepared.order.iter().flat_map(|&i| [d_log_probs[i], d_entropies[i]]).collect();
        model.device.enter(|| {
            let head = self.head.as_mut().expect("the head was reserved");
            model.device.upload(&pairs, head.gradients.first_mut(pairs.len()));
            body.backward(model, &prepared, head, gradients);
        });
        model.device.check()?;
        gradients.cleared = false;
        Ok(())
    }

    /// Logits `[tokens, vocabulary]` of one sequence, all at once: for checks, not for long sequences.
    pub fn logits(&mut self, model: &Model<D>, tokens: &[u32]) -> Result<Vec<f32>, Refusal> {
        let mut logits = Vec::with_capacity(tokens.len() * model.config.vocab_size);
        let mut reading = self.begin(model, tokens)?;
        while self.advance(model, &mut reading, |chunk| logits.extend_from_slice(chunk))? {}
        Ok(logits)
    }

    /// Begins to read one sequence, a piece at a time: the embedding, then the layers, then its logits.
    pub fn begin(&mut self, model: &Model<D>, tokens: &[u32]) -> Result<Reading<D>, Refusal> {
        let mut batch = PackedBatch::default();
        batch.push(tokens, None);
        let rows = (0..tokens.len() as u32).collect();
        self.prepared = None;
        let prepared = prepare(model, &batch)?;
        self.reserve_body(model, prepared.rows)?;
        let chunk = self.chunk_rows(model);
        self.head = Some(Head::reserve(self.head.take(), model, tokens.len(), 1, chunk)?);
        let body = self.body.as_mut().expect("the body was reserved");
        model.device.enter(|| body.embed(model, &prepared));
        Ok(Reading { prepared, rows, layers: 0, done: 0 })
    }

    /// Reads the next piece, a layer or a chunk of logits `[some tokens, vocabulary]`, and says whether there are more.
    /// No other sequence may have been begun since.
    pub fn advance(
        &mut self,
        model: &Model<D>,
        reading: &mut Reading<D>,
        mut visit: impl FnMut(&[f32]) + Send,
    ) -> Result<bool, Refusal> {
        let (chunk, layers) = (self.chunk_rows(model), model.config.layers);
        let body = self.body.as_mut().expect("the body was reserved");
        let head = self.head.as_mut().expect("the head was reserved");
        model.device.enter(|| {
            if reading.layers < layers {
                body.layer(model, &reading.prepared, reading.layers);
                reading.layers += 1;
                return;
            }
            let rows = &reading.rows[reading.done..];
            let rows = &rows[..rows.len().min(chunk)];
            visit(&head.logits(model, rows, &body.x[layers]));
            reading.done += rows.len();
        });
        model.device.check()?;
        Ok(reading.done < reading.rows.len())
    }
}

#[derive(Debug)]
pub struct Reading<D: Device> {
    prepared: Prepared<D>,
    rows: Vec<u32>,
    layers: usize,
    done: usize,
}

/// A layer as training runs it: keys and values are read as attention has them.
fn pass<'a, D: Device>(
    model: &'a Model<D>,
    batch: &'a Prepared<D>,
    index: usize,
) -> LayerPass<'a, D> {
    let mut pass = LayerPass::new(model, index, batch.rows, &batch.positions);
    pass.kv_format = model.device.caps().attention(model.config.attention_shape());
    pass
}

impl<D: Device> Body<D> {
    /// Buffers for so many rows, of all that so many layers save.
    fn new(
        device: &D,
        config: &Config,
        rows: usize,
        rank: usize,
        saved: usize,
    ) -> Result<Self, Refusal> {
        let x = (0..=config.layers).map(|_| device.alloc(rows * config.hidden, NumberFormat::F32));
        let saved = (0..saved).map(|_| LayerActivations::new(device, config, rows, rank, 1));
        Ok(Self {
            rows,
            x: x.collect::<Result<_, _>>()?,
            saved: saved.collect::<Result<_, _>>()?,
            scratch: Scratch::new(device, config, rows, rank)?,
            gradient: None,
        })
    }

    fn embed(&mut self, model: &Model<D>, batch: &Prepared<D>) {
        let x = self.x[0].first_mut(batch.rows * model.config.hidden);
        model.embed(&model.device, &batch.tokens, x);
    }

    fn layer(&mut self, model: &Model<D>, batch: &Prepared<D>, index: usize) {
        let slot = index % self.saved.len();
        let ends = self.x.get_disjoint_mut([index, index + 1]);
        let [x, x_next] = ends.expect("a layer has an input and an output");
        let (saved, scratch) = (&mut self.saved[slot], &mut self.scratch);
        pass(model, batch, index).forward(x, x_next, saved, scratch, |device, a| {
            let (AttentionArgs { shape, qkv, out, log_sums }, segments) = (a, &batch.segments);
            device.attention(Attention { shape, segments, qkv, out, log_sums });
        });
    }

    fn backward(
        &mut self,
        model: &Model<D>,
        batch: &Prepared<D>,
        head: &mut Head<D>,
        gradients: &mut Gradients<D>,
    ) {
        let (mut d, mut d_low) = self.gradient.take().expect("the gradient was reserved");
        let device = &model.device;
        let (low, d_low_too) = (&mut self.scratch.low, &mut d_low);
        let mut products = Backward { device, gradients: &mut *gradients, low, d_low: d_low_too };
        head.backward(model, batch, &mut d.resid, &mut products);
        let is_all_saved = self.saved.len() == model.config.layers;
        for index in (0..model.config.layers).rev() {
            if !is_all_saved {
                self.layer(model, batch, index);
            }
            let Scratch { mlp_hidden, low, .. } = &mut self.scratch;
            let d_low = &mut d_low;
            let products = Backward { device, gradients: &mut *gradients, low, d_low };
            let slot = index % self.saved.len();
            let (x, saved) = (&self.x[index], &mut self.saved[slot]);
            let mut carried = BackwardPass { products, mlp_hidden };
            pass(model, batch, index).backward(x, &batch.segments, saved, &mut d, &mut carried);
        }
        let dx = d.resid.first_mut(batch.rows * model.config.hidden);
        model.embed_grad(&batch.tokens, dx, gradients);
        self.gradient = Some((d, d_low));
    }
}

fn no_forward() -> Refusal {
    Refusal::bug("the tape holds no forward pass")
}
