//! Generation: prompts read once, sequences that share them, one token of each per step.
//!
//! Purpose: the keys and values of a prompt are stored once for all its rollouts; sequences come and
//! go, and the caller batches whatever is alive (continuous batching).
//!
//! Price: a sequence reserves room for all the tokens it may grow to. The cache never exceeds the
//! capacity it was made with: `capacity · layers · kv_heads · head_dim · 8` bytes; a request that does
//! not fit is refused by [`ComputeError::CacheFull`].
//!
//! Bits: a decoded row equals that row of [`Model::forward`] over the same tokens.

use hapo_kernels::{Accumulate, Buffer, CacheRow, CacheSpan, Device, SegmentRow};

use crate::batch::check_tokens;
use crate::compute_error::ComputeError;
use crate::config::Config;
use crate::memory::{kv_bytes_per_token, layer_width};
use crate::model::{LayerKept, Model};

/// Tokens of an allocation unit.
const UNIT: usize = 16;
/// Tokens of prompts that go through the layers together.
const PREFILL_TOKENS: usize = 1024;

/// A prompt in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PromptSlot {
    index: usize,
    generation: u64,
}

/// A sequence in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SeqSlot {
    index: usize,
    generation: u64,
}

/// What reading prompts gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Prefill {
    /// One slot per prompt.
    pub slots: Vec<PromptSlot>,
    /// Logits `[prompts, vocabulary]` after the last token of each.
    pub logits: Vec<f32>,
}

/// Keys and values of prompts and of the sequences that continue them.
#[derive(Debug)]
pub struct KvCache<D: Device> {
    buf: D::Buf,
    per_token: usize,
    capacity: usize,
    free: FreeList,
    prompts: Vec<Option<Prompt>>,
    sequences: Vec<Option<Sequence>>,
    generation: u64,
    prefill: Option<Workspace<D>>,
    blocks: Vec<Workspace<D>>,
}

#[derive(Debug)]
struct Prompt {
    generation: u64,
    span: CacheSpan,
    sequences: usize,
    released: bool,
}

#[derive(Debug)]
struct Sequence {
    generation: u64,
    prompt: usize,
    span: CacheSpan,
    reserved: usize,
}

/// A prompt that is read in pieces, so that others decode in between. Its keys and values lie beside
/// the cache as well until it is whole: `length · (layers · 2 · kv_heads + 2 · heads) · head_dim · 4`
/// bytes and a little.
#[derive(Debug)]
pub struct PartialPrompt<D: Device> {
    tokens: Vec<u32>,
    read: usize,
    span: CacheSpan,
    /// `[layers, length, kv_dim]`.
    keys: D::Buf,
    values: D::Buf,
    q: D::Buf,
    out: D::Buf,
    log_sums: D::Buf,
}

impl<D: Device> PartialPrompt<D> {
    /// Tokens not read yet.
    pub fn left(&self) -> usize {
        self.tokens.len() - self.read
    }
}

/// Buffers of one block of rows on its way through the layers.
#[derive(Debug)]
struct Workspace<D: Device> {
    rows: usize,
    head_rows: usize,
    x: [D::Buf; 2],
    kept: LayerKept<D>,
    h: D::Buf,
    last: D::Buf,
    normed: D::Buf,
    inverse: D::Buf,
    logits: D::Buf,
    new_keys: D::Buf,
    new_values: D::Buf,
}

impl<D: Device> Workspace<D> {
    /// `head_rows` rows reach the head; `decode` keeps the new keys and values of all layers.
    fn new(
        model: &Model<D>,
        rows: usize,
        head_rows: usize,
        decode: bool,
    ) -> Result<Self, ComputeError> {
        let (device, config) = (&model.device, &model.config);
        let hidden = config.hidden;
        let news = if decode {
            config.layers * rows * config.kv_heads * config.head_dim
        } else {
            0
        };
        Ok(Self {
            rows,
            head_rows,
            x: [device.alloc(rows * hidden)?, device.alloc(rows * hidden)?],
            kept: LayerKept::new(device, config, rows)?,
            h: device.alloc(rows * config.ffn)?,
            last: device.alloc(head_rows * hidden)?,
            normed: device.alloc(head_rows * hidden)?,
            inverse: device.alloc(head_rows)?,
            logits: device.alloc(head_rows * config.vocab_size)?,
            new_keys: device.alloc(news)?,
            new_values: device.alloc(news)?,
        })
    }
}

impl<D: Device> KvCache<D> {
    /// Room for `tokens` tokens of prompts and sequences together (each rounded up to 16).
    ///
    /// # Errors
    /// No memory.
    pub fn new(model: &Model<D>, tokens: usize) -> Result<Self, ComputeError> {
        let shape = model.attention_shape();
        let per_token = model.config.layers * shape.kv_dim() * 2;
        let capacity = tokens.next_multiple_of(UNIT);
        Ok(Self {
            buf: model.device.alloc(capacity * per_token)?,
            per_token,
            capacity,
            free: FreeList::new(capacity),
            prompts: Vec::new(),
            sequences: Vec::new(),
            generation: 0,
            prefill: None,
            blocks: Vec::new(),
        })
    }

    /// Bytes of a cache of `tokens` tokens: `tokens · layers · 2 · kv_heads · head_dim · 4`.
    pub fn bytes(config: &Config, tokens: usize) -> usize {
        tokens.next_multiple_of(UNIT) * kv_bytes_per_token(config) as usize
    }

    /// Gives back the room of a prompt that is not wanted any more.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the prompt is of no more use"
    )]
    pub fn abandon(&mut self, prompt: PartialPrompt<D>) {
        self.free_span(prompt.span);
    }

    /// Tokens the cache has room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Tokens not reserved; they may lie apart.
    pub fn free_tokens(&self) -> usize {
        self.free.total()
    }

    /// Tokens that a prompt or a sequence of `tokens` tokens takes.
    pub fn cost(tokens: usize) -> usize {
        tokens.max(1).next_multiple_of(UNIT)
    }

    /// A sequence that continues a prompt and may be fed up to `max_new` tokens.
    ///
    /// # Errors
    /// No room, or the prompt is gone.
    pub fn fork(&mut self, prompt: PromptSlot, max_new: usize) -> Result<SeqSlot, ComputeError> {
        self.prompt(prompt)?;
        let span = self.region(max_new, End::Low)?;
        self.generation += 1;
        let sequence = Sequence {
            generation: self.generation,
            prompt: prompt.index,
            span,
            reserved: max_new,
        };
        self.prompts[prompt.index]
            .as_mut()
            .expect("the prompt was just found")
            .sequences += 1;
        let index = place(&mut self.sequences, sequence);
        Ok(SeqSlot {
            index,
            generation: self.generation,
        })
    }

    /// Gives a sequence's room back.
    ///
    /// # Errors
    /// The sequence is gone already.
    pub fn release(&mut self, sequence: SeqSlot) -> Result<(), ComputeError> {
        self.sequence(sequence)?;
        let gone = self.sequences[sequence.index]
            .take()
            .expect("the sequence was just found");
        self.free_span(gone.span);
        if let Some(prompt) = &mut self.prompts[gone.prompt] {
            prompt.sequences -= 1;
        }
        self.drop_prompt_if_unused(gone.prompt);
        Ok(())
    }

    /// Gives a prompt's room back, as soon as its last sequence is released.
    ///
    /// # Errors
    /// The prompt is gone already.
    pub fn release_prompt(&mut self, prompt: PromptSlot) -> Result<(), ComputeError> {
        self.prompt(prompt)?;
        if let Some(prompt) = &mut self.prompts[prompt.index] {
            prompt.released = true;
        }
        self.drop_prompt_if_unused(prompt.index);
        Ok(())
    }

    /// Forgets everything; all slots are gone.
    pub fn clear(&mut self) {
        self.prompts.clear();
        self.sequences.clear();
        self.free = FreeList::new(self.capacity);
    }

    fn drop_prompt_if_unused(&mut self, index: usize) {
        if let Some(prompt) = &self.prompts[index]
            && prompt.released
            && prompt.sequences == 0
        {
            let span = prompt.span;
            self.prompts[index] = None;
            self.free_span(span);
        }
    }

    fn prompt(&self, slot: PromptSlot) -> Result<&Prompt, ComputeError> {
        self.prompts
            .get(slot.index)
            .and_then(Option::as_ref)
            .filter(|p| p.generation == slot.generation && !p.released)
            .ok_or(ComputeError::Slot {
                what: "prompt",
                index: slot.index,
            })
    }

    fn sequence(&self, slot: SeqSlot) -> Result<&Sequence, ComputeError> {
        self.sequences
            .get(slot.index)
            .and_then(Option::as_ref)
            .filter(|s| s.generation == slot.generation)
            .ok_or(ComputeError::Slot {
                what: "sequence",
                index: slot.index,
            })
    }

    fn region(&mut self, tokens: usize, end: End) -> Result<CacheSpan, ComputeError> {
        let needed = Self::cost(tokens);
        let start = self.free.take(needed, end).ok_or(ComputeError::CacheFull {
            needed,
            largest: self.free.largest(),
            capacity: self.capacity,
        })?;
        Ok(CacheSpan {
            base: (start * self.per_token) as u64,
            capacity: needed as u32,
            len: 0,
        })
    }

    /// A slot for a prompt of `len` tokens that was read into `span`.
    fn keep_prompt(&mut self, mut span: CacheSpan, len: usize) -> PromptSlot {
        span.len = len as u32;
        self.generation += 1;
        let generation = self.generation;
        let prompt = Prompt {
            generation,
            span,
            sequences: 0,
            released: false,
        };
        let index = place(&mut self.prompts, prompt);
        PromptSlot { index, generation }
    }

    fn free_span(&mut self, span: CacheSpan) {
        self.free
            .give(span.base as usize / self.per_token, span.capacity as usize);
    }

    fn cache_row(&self, slot: SeqSlot) -> Result<CacheRow, ComputeError> {
        let sequence = self.sequence(slot)?;
        if sequence.span.len as usize >= sequence.reserved {
            return Err(ComputeError::SequenceFull {
                index: slot.index,
                reserved: sequence.reserved,
            });
        }
        let prompt = self.prompts[sequence.prompt]
            .as_ref()
            .expect("a prompt outlives its sequences");
        Ok(CacheRow {
            prompt: prompt.span,
            own: sequence.span,
        })
    }
}

impl<D: Device> Model<D> {
    /// Bytes beside the cache that decoding up to `rows` rows and reading up to `prefill` prompt tokens
    /// of up to `prompts` prompts at once may take, the longest prompt in pieces included.
    pub fn workspace_bytes(&self, rows: usize, prefill: usize, prompts: usize) -> usize {
        let c = &self.config;
        let (wide, narrow) = (c.heads * c.head_dim, c.kv_heads * c.head_dim);
        let row = 2 * c.hidden + layer_width(c) as usize + c.ffn;
        let head_row = 2 * c.hidden + 1 + c.vocab_size;
        let weight_bytes = self.layout.len() * size_of::<f32>();
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
        let decode = decoded * (row + head_row + 2 * c.layers * narrow) + rows * c.vocab_size;
        let read = prefill * row + prompts * (head_row + 2 * c.vocab_size);
        let piecewise = self.positions * (2 * c.layers * narrow + 2 * wide + c.heads);
        (decode + read + piecewise) * size_of::<f32>()
    }

    /// Reserves room for a prompt that [`Model::read_prompt`] reads in pieces.
    ///
    /// # Errors
    /// An empty or too long prompt, an unknown token, no room.
    pub fn begin_prompt(
        &self,
        cache: &mut KvCache<D>,
        tokens: &[u32],
    ) -> Result<PartialPrompt<D>, ComputeError> {
        self.check_prompt(tokens)?;
        let (shape, len) = (self.attention_shape(), tokens.len());
        let all = self.config.layers * len * shape.kv_dim();
        let (keys, values) = (self.device.alloc(all)?, self.device.alloc(all)?);
        let q = self.device.alloc(len * shape.q_dim())?;
        let out = self.device.alloc(len * shape.q_dim())?;
        let log_sums = self.device.alloc(len * shape.heads)?;
        Ok(PartialPrompt {
            tokens: tokens.to_vec(),
            read: 0,
            span: cache.region(len, End::High)?,
            keys,
            values,
            q,
            out,
            log_sums,
        })
    }

    /// Reads at most `most` more tokens of a prompt; its slot and the logits after it once it is whole.
    /// The pieces change no bits.
    ///
    /// # Errors
    /// No memory.
    pub fn read_prompt(
        &self,
        cache: &mut KvCache<D>,
        prompt: &mut PartialPrompt<D>,
        most: usize,
    ) -> Result<Option<(PromptSlot, Vec<f32>)>, ComputeError> {
        let (done, len) = (prompt.read, prompt.tokens.len());
        let rows = most.min(len - done);
        if rows == 0 {
            return Ok(None);
        }
        let mut work = self.prefill_workspace(cache, rows, 1)?;
        let device = &self.device;
        let tokens = device.table(&prompt.tokens[done..done + rows]);
        let positions: Vec<u32> = (done as u32..(done + rows) as u32).collect();
        let positions = device.table(&positions);
        let segment = device.table(&[SegmentRow {
            start: done as u32,
            len: rows as u32,
            prefix_start: 0,
            prefix_len: done as u32,
            prefix_group: 0,
        }]);
        let shape = self.attention_shape();
        let (wide, narrow) = (shape.q_dim(), shape.kv_dim());
        let end = done + rows;
        let last = end == len;
        let mut logits = vec![0.0; if last { self.config.vocab_size } else { 0 }];
        let span = CacheSpan {
            len: done as u32,
            ..prompt.span
        };
        let (to, buf) = (&mut *prompt, &mut cache.buf);
        let host = &mut logits;
        device.enter(|| {
            let packed = self.packed_for(rows);
            self.embed_rows(device, rows, &tokens, &mut work);
            for layer in 0..self.config.layers {
                let [x, next] = &mut work.x;
                let at = layer * len * narrow;
                self.layer_forward(
                    device,
                    packed,
                    layer,
                    rows,
                    &positions,
                    x,
                    next,
                    &mut work.kept,
                    &mut work.h,
                    |device, a| {
                        let here = rows * narrow;
                        device.copy(a.k, to.keys.at_mut(at + done * narrow, here));
                        device.copy(a.v, to.values.at_mut(at + done * narrow, here));
                        device.copy(a.q, to.q.at_mut(done * wide, rows * wide));
                        device.attention(
                            shape,
                            &segment,
                            to.q.first(end * wide),
                            to.keys.at(at, end * narrow),
                            to.values.at(at, end * narrow),
                            to.out.first_mut(end * wide),
                            to.log_sums.first_mut(end * shape.heads),
                        );
                        device.copy(
                            to.out.at(done * wide, rows * wide),
                            a.out.first_mut(rows * wide),
                        );
                    },
                );
                work.x.swap(0, 1);
                let (k, v) = (
                    work.kept.k.first(rows * narrow),
                    work.kept.v.first(rows * narrow),
                );
                device.cache_append(shape, layer, span, k, v, buf);
            }
            if last {
                let hidden = self.config.hidden;
                device.copy(
                    work.x[0].at((rows - 1) * hidden, hidden),
                    work.last.first_mut(hidden),
                );
                self.head_rows(device, 1, &mut work, host);
            }
        });
        cache.prefill = Some(work);
        device.check()?;
        prompt.read = end;
        if !last {
            return Ok(None);
        }
        let slot = cache.keep_prompt(prompt.span, len);
        Ok(Some((slot, logits)))
    }

    fn check_prompt(&self, prompt: &[u32]) -> Result<(), ComputeError> {
        if prompt.is_empty() {
            return Err(ComputeError::Empty { what: "prompt" });
        }
        if prompt.len() > self.positions {
            return Err(ComputeError::TooLong {
                length: prompt.len(),
                positions: self.positions,
            });
        }
        check_tokens(prompt, self.config.vocab_size)
    }

    /// The workspace of the last prompts if it is large enough, else a larger one.
    fn prefill_workspace(
        &self,
        cache: &mut KvCache<D>,
        rows: usize,
        head_rows: usize,
    ) -> Result<Workspace<D>, ComputeError> {
        match cache.prefill.take() {
            Some(work) if work.rows >= rows && work.head_rows >= head_rows => Ok(work),
            old => {
                let (r, h) = old.map_or((0, 0), |w| (w.rows, w.head_rows));
                Workspace::new(self, rows.max(r), head_rows.max(h), false)
            }
        }
    }

    /// Reads prompts into the cache.
    ///
    /// # Errors
    /// An empty or too long prompt, an unknown token, no room. Nothing is kept then.
    pub fn prefill(
        &self,
        cache: &mut KvCache<D>,
        prompts: &[&[u32]],
    ) -> Result<Prefill, ComputeError> {
        for prompt in prompts {
            self.check_prompt(prompt)?;
        }
        let mut spans: Vec<CacheSpan> = Vec::with_capacity(prompts.len());
        for prompt in prompts {
            match cache.region(prompt.len(), End::High) {
                Ok(span) => spans.push(span),
                Err(error) => {
                    for span in spans {
                        cache.free_span(span);
                    }
                    return Err(error);
                }
            }
        }
        let mut logits = vec![0.0; prompts.len() * self.config.vocab_size];
        let mut first = 0;
        while first < prompts.len() {
            let mut tokens = prompts[first].len();
            let mut end = first + 1;
            while end < prompts.len() && tokens + prompts[end].len() <= PREFILL_TOKENS {
                tokens += prompts[end].len();
                end += 1;
            }
            let vocabulary = self.config.vocab_size;
            let result = self.prefill_chunk(
                cache,
                &prompts[first..end],
                &spans[first..end],
                &mut logits[first * vocabulary..end * vocabulary],
            );
            if let Err(error) = result {
                for span in spans {
                    cache.free_span(span);
                }
                return Err(error);
            }
            first = end;
        }
        let slots = prompts
            .iter()
            .zip(spans)
            .map(|(prompt, span)| cache.keep_prompt(span, prompt.len()))
            .collect();
        Ok(Prefill { slots, logits })
    }

    fn prefill_chunk(
        &self,
        cache: &mut KvCache<D>,
        prompts: &[&[u32]],
        spans: &[CacheSpan],
        logits: &mut [f32],
    ) -> Result<(), ComputeError> {
        let tokens = prompts.concat();
        let rows = tokens.len();
        let (mut segments, mut positions, mut last_rows) = (Vec::new(), Vec::new(), Vec::new());
        for (i, prompt) in prompts.iter().enumerate() {
            segments.push(SegmentRow {
                start: positions.len() as u32,
                len: prompt.len() as u32,
                prefix_start: 0,
                prefix_len: 0,
                prefix_group: i as u32,
            });
            positions.extend(0..prompt.len() as u32);
            last_rows.push(positions.len() as u32 - 1);
        }
        let mut work = self.prefill_workspace(cache, rows, prompts.len())?;
        let device = &self.device;
        let tokens = device.table(&tokens);
        let positions = device.table(&positions);
        let segments = device.table(&segments);
        let last_rows = device.table(&last_rows);
        let shape = self.attention_shape();
        let narrow = shape.kv_dim();
        let buf = &mut cache.buf;
        device.enter(|| {
            let packed = self.packed_for(rows);
            self.embed_rows(device, rows, &tokens, &mut work);
            for layer in 0..self.config.layers {
                let [x, next] = &mut work.x;
                self.layer_forward(
                    device,
                    packed,
                    layer,
                    rows,
                    &positions,
                    x,
                    next,
                    &mut work.kept,
                    &mut work.h,
                    |device, a| {
                        device.attention(
                            shape,
                            &segments,
                            a.q,
                            a.k,
                            a.v,
                            a.out.first_mut(rows * shape.q_dim()),
                            a.log_sums.first_mut(rows * shape.heads),
                        );
                    },
                );
                work.x.swap(0, 1);
                let mut start = 0;
                for (prompt, &span) in prompts.iter().zip(spans) {
                    let (at, len) = (start * narrow, prompt.len() * narrow);
                    let (k, v) = (work.kept.k.at(at, len), work.kept.v.at(at, len));
                    device.cache_append(shape, layer, span, k, v, buf);
                    start += prompt.len();
                }
            }
            let all = rows * self.config.hidden;
            device.gather_rows(
                self.config.hidden,
                &last_rows,
                work.x[0].first(all),
                work.last.first_mut(prompts.len() * self.config.hidden),
            );
            self.head_rows(device, prompts.len(), &mut work, logits);
        });
        cache.prefill = Some(work);
        Ok(device.check()?)
    }

    /// Feeds one token to each sequence and writes the logits that follow, `[rows, vocabulary]`.
    ///
    /// # Errors
    /// A slot that is gone, twice in the step, or full; a token outside the vocabulary; a sequence
    /// longer than the model was opened for. Nothing is fed then.
    pub fn decode(
        &self,
        cache: &mut KvCache<D>,
        rows: &[(SeqSlot, u32)],
        logits: &mut Vec<f32>,
    ) -> Result<(), ComputeError> {
        let vocabulary = self.config.vocab_size;
        logits.resize(rows.len() * vocabulary, 0.0);
        if rows.is_empty() {
            return Ok(());
        }
        let tokens: Vec<u32> = rows.iter().map(|&(_, token)| token).collect();
        check_tokens(&tokens, vocabulary)?;
        let mut seen = vec![false; cache.sequences.len()];
        let mut cache_rows = Vec::with_capacity(rows.len());
        for &(slot, _) in rows {
            let row = cache.cache_row(slot)?;
            if std::mem::replace(&mut seen[slot.index], true) {
                return Err(ComputeError::SlotTwice { index: slot.index });
            }
            let length = (row.prompt.len + row.own.len) as usize + 1;
            if length > self.positions {
                return Err(ComputeError::TooLong {
                    length,
                    positions: self.positions,
                });
            }
            cache_rows.push(row);
        }
        let weight_bytes = self.layout.len() * size_of::<f32>();
        let count = self.device.blocks(rows.len(), weight_bytes).max(1);
        let size = rows.len().div_ceil(count);
        let mut blocks = std::mem::take(&mut cache.blocks);
        for (i, rows) in cache_rows.chunks(size).enumerate() {
            if blocks.get(i).is_none_or(|b| b.rows < rows.len()) {
                let rows = rows.len().next_multiple_of(4);
                let block = Workspace::new(self, rows, rows, true)?;
                if i < blocks.len() {
                    blocks[i] = block;
                } else {
                    blocks.push(block);
                }
            }
        }
        {
            let mut tasks: Vec<Task<'_, D>> = blocks
                .iter_mut()
                .zip(cache_rows.chunks(size))
                .zip(tokens.chunks(size))
                .zip(logits.chunks_mut(size * vocabulary))
                .map(|(((work, rows), tokens), logits)| Task {
                    work,
                    rows,
                    tokens,
                    logits,
                })
                .collect();
            let buf = &cache.buf;
            self.device.each(&mut tasks, |device, task| {
                self.decode_block(device, buf, task);
            });
        }
        self.append_new(cache, &blocks, &cache_rows, size);
        cache.blocks = blocks;
        self.device.check()?;
        for &(slot, _) in rows {
            if let Some(sequence) = &mut cache.sequences[slot.index] {
                sequence.span.len += 1;
            }
        }
        Ok(())
    }

    fn decode_block(&self, device: &D, cache: &D::Buf, task: &mut Task<'_, D>) {
        let Task {
            work,
            rows,
            tokens,
            logits,
        } = task;
        let n = rows.len();
        let shape = self.attention_shape();
        let news = n * shape.kv_dim();
        let positions: Vec<u32> = rows.iter().map(|r| r.prompt.len + r.own.len).collect();
        let (tokens, positions) = (device.table(tokens), device.table(&positions));
        let rows = device.table(rows);
        device.enter(|| {
            let packed = self.packed_for(n);
            self.embed_rows(device, n, &tokens, work);
            for layer in 0..self.config.layers {
                let Workspace {
                    x,
                    kept,
                    h,
                    new_keys,
                    new_values,
                    ..
                } = &mut **work;
                let [x, next] = x;
                self.layer_forward(
                    device,
                    packed,
                    layer,
                    n,
                    &positions,
                    x,
                    next,
                    kept,
                    h,
                    |device, a| {
                        device.attention_decode(
                            shape,
                            layer,
                            &rows,
                            cache,
                            a.q,
                            a.k,
                            a.v,
                            a.out.first_mut(n * shape.q_dim()),
                        );
                        device.copy(a.k, new_keys.at_mut(layer * news, news));
                        device.copy(a.v, new_values.at_mut(layer * news, news));
                    },
                );
                work.x.swap(0, 1);
            }
            let all = n * self.config.hidden;
            device.copy(work.x[0].first(all), work.last.first_mut(all));
            self.head_rows(device, n, work, logits);
        });
    }

    /// Writes the keys and values of a step into the cache.
    fn append_new(
        &self,
        cache: &mut KvCache<D>,
        blocks: &[Workspace<D>],
        rows: &[CacheRow],
        size: usize,
    ) {
        let shape = self.attention_shape();
        for (work, rows) in blocks.iter().zip(rows.chunks(size)) {
            let all = self.config.layers * rows.len() * shape.kv_dim();
            self.device.cache_append_rows(
                shape,
                self.config.layers,
                rows,
                work.new_keys.first(all),
                work.new_values.first(all),
                &mut cache.buf,
            );
        }
    }

    fn embed_rows(&self, device: &D, rows: usize, tokens: &D::Table<u32>, work: &mut Workspace<D>) {
        device.embed(
            self.embedding_layout(),
            tokens,
            self.param(self.roles.embedding),
            work.x[0].first_mut(rows * self.config.hidden),
        );
    }

    /// Final norm and logits of the rows in `work.last`.
    fn head_rows(&self, device: &D, rows: usize, work: &mut Workspace<D>, logits: &mut [f32]) {
        let (hidden, vocabulary) = (self.config.hidden, self.config.vocab_size);
        device.rms_norm(
            self.config.rms_eps,
            work.last.first(rows * hidden),
            self.param(self.roles.norm),
            work.normed.first_mut(rows * hidden),
            work.inverse.first_mut(rows),
            None,
        );
        let shape = Self::mat(rows, hidden, vocabulary);
        let x = work.normed.first(rows * hidden);
        let y = work.logits.first_mut(rows * vocabulary);
        match self.packed_for(rows) {
            Some(it) => device.matmul_packed(shape, x, it.at(it.head), Accumulate::Nothing, y),
            None => device.matmul(
                shape,
                x,
                self.param(self.roles.head),
                Accumulate::Nothing,
                y,
            ),
        }
        device.download(work.logits.first(rows * vocabulary), logits);
    }
}

/// One block of a decode step.
struct Task<'a, D: Device> {
    work: &'a mut Workspace<D>,
    rows: &'a [CacheRow],
    tokens: &'a [u32],
    logits: &'a mut [f32],
}

/// Puts an item in the first empty place.
fn place<T>(items: &mut Vec<Option<T>>, item: T) -> usize {
    if let Some(index) = items.iter().position(Option::is_none) {
        items[index] = Some(item);
        index
    } else {
        items.push(Some(item));
        items.len() - 1
    }
}

/// Which end of a free run is taken.
#[derive(Clone, Copy, Debug)]
enum End {
    Low,
    High,
}

/// Free runs of tokens, by start, never adjacent.
#[derive(Debug)]
struct FreeList {
    runs: Vec<(usize, usize)>,
}

impl FreeList {
    fn new(capacity: usize) -> Self {
        Self {
            runs: if capacity == 0 {
                Vec::new()
            } else {
                vec![(0, capacity)]
            },
        }
    }

    fn total(&self) -> usize {
        self.runs.iter().map(|&(_, len)| len).sum()
    }

    fn largest(&self) -> usize {
        self.runs.iter().map(|&(_, len)| len).max().unwrap_or(0)
    }

    /// The smallest run that fits, from its low or its high end. Prompts lie at the high end and
    /// sequences at the low one, so that short prompts do not cut up the room of long sequences.
    fn take(&mut self, len: usize, end: End) -> Option<usize> {
        let fits = self.runs.iter().enumerate().filter(|it| it.1.1 >= len);
        let (index, &(start, free)) = fits.min_by_key(|it| it.1.1)?;
        let rest = free - len;
        let (taken, left) = match end {
            End::Low => (start, (start + len, rest)),
            End::High => (start + rest, (start, rest)),
        };
        if rest == 0 {
            self.runs.remove(index);
        } else {
            self.runs[index] = left;
        }
        Some(taken)
    }

    fn give(&mut self, start: usize, len: usize) {
        let index = self.runs.partition_point(|&(s, _)| s < start);
        self.runs.insert(index, (start, len));
        if index + 1 < self.runs.len() && start + len == self.runs[index + 1].0 {
            self.runs[index].1 += self.runs.remove(index + 1).1;
        }
        if index > 0 && self.runs[index - 1].0 + self.runs[index - 1].1 == start {
            self.runs[index - 1].1 += self.runs.remove(index).1;
        }
    }
}
