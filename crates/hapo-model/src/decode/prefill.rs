//! Prompts into the key/value cache: several at once, or one in pieces.
//!
//! Bits: the logits after a prompt equal those of [`Tape::forward`](crate::Tape::forward) over the same tokens, whatever
//! the pieces.

use hapo_core::Refusal;
use hapo_kernels::{Attention, Buffer, CacheAppend, Device, EmbeddingLayout, Numbers, SegmentRow};

use crate::batch::{check_tokens, too_long};
use crate::{layer::AttentionArgs, model::Model};

use super::kv_cache::{KvCache, PromptSlot, cells};
use super::pages::PromptPages;
use super::workspace::{BlockRows, Pieces, TokenRows, Workspace};

/// Tokens of prompts that go through the layers together; more only of one that is longer.
pub const PREFILL_TOKENS: usize = 1024;

#[derive(Clone, Debug, PartialEq)]
pub struct Prefill {
    pub slots: Vec<PromptSlot>,
    /// Logits `[prompts, vocabulary]` after the last token of each.
    pub logits: Vec<f32>,
}

/// A prompt that is read in pieces, so that others decode in between. Until it is complete its keys and
/// values are stored a second time, outside the cache:
/// `length · (layers · 2 · kv_heads + 2 · heads) · head_dim` numbers in attention's format and a little.
#[derive(Debug)]
pub struct PartialPrompt<D: Device> {
    tokens: Vec<u32>,
    read: usize,
    pages: PromptPages,
    held: Pieces<D>,
}

impl<D: Device> PartialPrompt<D> {
    pub fn remaining(&self) -> usize {
        self.tokens.len() - self.read
    }
}

impl<D: Device> KvCache<D> {
    #[expect(clippy::needless_pass_by_value, reason = "the prompt is of no more use")]
    pub fn cancel_prefill(&mut self, prompt: PartialPrompt<D>) {
        self.pages.give(&prompt.pages.pages);
    }

    /// Takes pages for a prompt that [`KvCache::continue_prefill`] reads in pieces.
    ///
    /// # Errors
    /// An empty or too long prompt, an unknown token, too few free pages.
    pub fn begin_prefill(
        &mut self,
        model: &Model<D>,
        tokens: &[u32],
    ) -> Result<PartialPrompt<D>, Refusal> {
        check_prompt(model, tokens)?;
        let held = Pieces::new(&model.device, &model.config, model.rank(), tokens.len())?;
        let pages = self.pages_for(tokens, false)?;
        Ok(PartialPrompt { tokens: tokens.to_vec(), read: 0, pages, held })
    }

    /// Reads at most `most` more tokens; the slot and the last logits once all are read. The pieces change no bits.
    pub fn continue_prefill(
        &mut self,
        model: &Model<D>,
        prompt: &mut PartialPrompt<D>,
        most: usize,
    ) -> Result<Option<(PromptSlot, Vec<f32>)>, Refusal> {
        let (done, len) = (prompt.read, prompt.tokens.len());
        let rows = most.min(len - done);
        if rows == 0 {
            return Ok(None);
        }
        let mut work = self.prefill_workspace(model, rows, 1)?;
        let last = done + rows == len;
        let mut logits = vec![0.0; if last { model.config.vocab_size } else { 0 }];
        model.device.enter(|| {
            self.prefill_piece(model, prompt, rows, &mut work);
            if last {
                let hidden = model.config.hidden;
                model
                    .device
                    .copy(work.x[0].at((rows - 1) * hidden, hidden), work.last.first_mut(hidden));
                work.head_rows(model, &model.device, 1);
                model.device.download(work.logits.first(logits.len()), &mut logits);
            }
        });
        self.prefill = Some(work);
        model.device.check()?;
        prompt.read = done + rows;
        if !last {
            return Ok(None);
        }
        let pages = std::mem::take(&mut prompt.pages.pages);
        let slot = self.keep_prompt(&prompt.tokens, pages);
        Ok(Some((slot, logits)))
    }

    /// The next `rows` tokens of a prompt through all layers, their keys and values into the cache.
    fn prefill_piece(
        &mut self,
        model: &Model<D>,
        prompt: &mut PartialPrompt<D>,
        rows: usize,
        work: &mut Workspace<D>,
    ) {
        let device = &model.device;
        let shape = model.config.attention_shape();
        let (q_dim, kv_dim) = (shape.q_dim(), shape.kv_dim());
        let (done, len) = (prompt.read, prompt.tokens.len());
        let end = done + rows;
        let held = &mut prompt.held;
        let positions: Vec<u32> = (done as u32..end as u32).collect();
        let tokens = TokenRows::new(device, &prompt.tokens[done..end], &positions);
        let (start, n) = (done as u32, rows as u32);
        let segment = SegmentRow { start, len: n, prefix_len: start, ..SegmentRow::default() };
        let segment = device.table(&[segment]);
        // Another prompt wrote the pages before this.
        let from = done.max(prompt.pages.written).min(end);
        let to = device.table(&cells(&prompt.pages.pages, from..end));
        work.run(model, device, &tokens, |index, device, a| {
            let (first, here) = (index * len * kv_dim, rows * kv_dim);
            let [q, k, v] = a.qkv;
            device.copy(k, held.keys.at_mut(first + done * kv_dim, here));
            device.copy(v, held.values.at_mut(first + done * kv_dim, here));
            device.copy(q, held.q.at_mut(done * q_dim, rows * q_dim));
            device.attention(Attention {
                shape: a.shape,
                segments: &segment,
                qkv: [
                    held.q.first(end * q_dim),
                    held.keys.at(first, end * kv_dim),
                    held.values.at(first, end * kv_dim),
                ],
                out: held.out.first_mut(end * q_dim),
                log_sums: held.log_sums.first_mut(end * shape.heads),
            });
            let out = held.out.at(done * q_dim, rows * q_dim);
            device.copy(out, a.out);
            let (at, len) = ((from - done) * kv_dim, (end - from) * kv_dim);
            let kv = [k, v].map(|it| it.part(at, len));
            let (first, cache) = (self.layer(index), &mut self.buf);
            device.cache_append(CacheAppend { shape, first, cells: &to, kv, cache });
        });
    }

    pub(crate) fn prefill_workspace(
        &mut self,
        model: &Model<D>,
        rows: usize,
        head_rows: usize,
    ) -> Result<Workspace<D>, Refusal> {
        self.expect_format(model.kv_format());
        let rank = model.rank();
        match self.prefill.take() {
            Some(it) if it.rank == rank && it.rows >= rows && it.head_rows >= head_rows => Ok(it),
            old => {
                let (r, h) = old.map_or((0, 0), |w| (w.rows, w.head_rows));
                let (rows, head_rows) = (rows.max(r), head_rows.max(h));
                let of = BlockRows { rows, head_rows, kv_layers: 1 };
                Workspace::new(&model.device, &model.config, rank, of)
            }
        }
    }

    /// Reads prompts into the cache.
    ///
    /// # Errors
    /// An empty or too long prompt, an unknown token, too few free pages. The cache is unchanged then.
    pub fn prefill(&mut self, model: &Model<D>, prompts: &[&[u32]]) -> Result<Prefill, Refusal> {
        for prompt in prompts {
            check_prompt(model, prompt)?;
        }
        let mut taken: Vec<PromptPages> = Vec::with_capacity(prompts.len());
        let mut logits = vec![0.0; prompts.len() * model.config.vocab_size];
        let result = self.prefill_into(model, prompts, &mut taken, &mut logits);
        if let Err(error) = result {
            for it in taken {
                self.pages.give(&it.pages);
            }
            return Err(error);
        }
        let slots = prompts
            .iter()
            .zip(taken)
            .map(|(prompt, it)| self.keep_prompt(prompt, it.pages))
            .collect();
        Ok(Prefill { slots, logits })
    }

    fn prefill_into(
        &mut self,
        model: &Model<D>,
        prompts: &[&[u32]],
        taken: &mut Vec<PromptPages>,
        logits: &mut [f32],
    ) -> Result<(), Refusal> {
        for prompt in prompts {
            taken.push(self.pages_for(prompt, true)?);
        }
        let vocabulary = model.config.vocab_size;
        let mut first = 0;
        while first < prompts.len() {
            let mut tokens = prompts[first].len();
            let mut end = first + 1;
            while end < prompts.len() && tokens + prompts[end].len() <= PREFILL_TOKENS {
                tokens += prompts[end].len();
                end += 1;
            }
            let logits = &mut logits[first * vocabulary..end * vocabulary];
            self.prefill_chunk(model, &prompts[first..end], &taken[first..end], logits)?;
            first = end;
        }
        Ok(())
    }

    fn prefill_chunk(
        &mut self,
        model: &Model<D>,
        prompts: &[&[u32]],
        taken: &[PromptPages],
        logits: &mut [f32],
    ) -> Result<(), Refusal> {
        let tokens = prompts.concat();
        let rows = tokens.len();
        let (mut segments, mut positions, mut last_rows) = (Vec::new(), Vec::new(), Vec::new());
        for (i, prompt) in prompts.iter().enumerate() {
            let (start, len) = (positions.len() as u32, prompt.len() as u32);
            let prefix_group = i as u32;
            segments.push(SegmentRow { start, len, prefix_group, ..SegmentRow::default() });
            positions.extend(0..len);
            last_rows.push(positions.len() as u32 - 1);
        }
        let mut work = self.prefill_workspace(model, rows, prompts.len())?;
        let device = &model.device;
        // Another prompt wrote the pages before this. Adjacent rows are written together.
        let (mut runs, mut end): (Vec<(usize, Vec<u32>)>, usize) = (Vec::new(), 0);
        for (it, prompt) in taken.iter().zip(prompts) {
            let cells = cells(&it.pages, it.written..prompt.len());
            end += prompt.len();
            let first = end - cells.len();
            match runs.last_mut() {
                Some((at, all)) if *at + all.len() == first => all.extend(cells),
                _ => runs.push((first, cells)),
            }
        }
        let to: Vec<(usize, usize, D::Table<u32>)> =
            runs.iter().map(|(first, it)| (*first, it.len(), device.table(it))).collect();
        let tokens = TokenRows::new(device, &tokens, &positions);
        let segments = device.table(&segments);
        let last_rows = device.table(&last_rows);
        let (hidden, kv_dim) = (model.config.hidden, model.config.attention_shape().kv_dim());
        device.enter(|| {
            work.run(model, device, &tokens, |index, device, a| {
                let AttentionArgs { shape, qkv, out, log_sums } = a;
                device.attention(Attention { shape, segments: &segments, qkv, out, log_sums });
                for (row, n, cells) in &to {
                    let kv = [qkv[1], qkv[2]].map(|it| it.part(row * kv_dim, n * kv_dim));
                    let (first, cache) = (self.layer(index), &mut self.buf);
                    device.cache_append(CacheAppend { shape, first, cells, kv, cache });
                }
            });
            let x = work.x[0].first(rows * hidden);
            let last = work.last.first_mut(prompts.len() * hidden);
            let rows = EmbeddingLayout::Rows { width: hidden };
            device.gather_rows(rows, &last_rows, Numbers::Span(x), last);
            work.head_rows(model, device, prompts.len());
            device.download(work.logits.first(logits.len()), logits);
        });
        self.prefill = Some(work);
        Ok(device.check()?)
    }
}

fn check_prompt<D: Device>(model: &Model<D>, prompt: &[u32]) -> Result<(), Refusal> {
    if prompt.is_empty() {
        return Err(Refusal::bug("prompt is empty".to_owned()));
    }
    if prompt.len() > model.positions() {
        return Err(too_long(prompt.len(), model.positions()));
    }
    check_tokens(prompt, model.config.vocab_size)
}
