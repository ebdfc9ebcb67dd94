//! Keys and values of prompts and of the sequences that continue them.
//!
//! Purpose: the keys and values of a prompt are stored once for all its rollouts; sequences come and
//! go, and the caller batches those that are running (continuous batching).
//!
//! Price: a sequence reserves capacity for all the tokens it may grow to. The cache never exceeds the
//! capacity it was made with: `capacity · layers · kv_heads · head_dim · 8` bytes; a request that does
//! not fit is refused by [`ComputeError::CacheFull`].

use hapo_kernels::{CacheRow, CacheSpan, Device};

use crate::compute_error::ComputeError;
use crate::config::Config;
use crate::free_list::{End, FreeList};
use crate::memory::kv_bytes_per_token;
use crate::model::Model;
use crate::workspace::Workspace;

/// Tokens of an allocation unit.
const UNIT: usize = 16;

/// A prompt in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PromptSlot {
    index: usize,
    generation: u64,
}

/// A sequence in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SeqSlot {
    pub(crate) index: usize,
    generation: u64,
}

/// Keys and values of prompts and of the sequences that continue them.
#[derive(Debug)]
pub struct KvCache<D: Device> {
    pub(crate) buf: D::Buf,
    per_token: usize,
    capacity: usize,
    free: FreeList,
    prompts: Vec<Option<Prompt>>,
    pub(crate) sequences: Vec<Option<Sequence>>,
    generation: u64,
    /// Buffers of the last prefill, and of the blocks of a decode step.
    pub(crate) prefill: Option<Workspace<D>>,
    pub(crate) blocks: Vec<Workspace<D>>,
}

#[derive(Debug)]
struct Prompt {
    generation: u64,
    span: CacheSpan,
    sequences: usize,
    released: bool,
}

#[derive(Debug)]
pub(crate) struct Sequence {
    generation: u64,
    prompt: usize,
    pub(crate) span: CacheSpan,
    reserved: usize,
}

impl<D: Device> KvCache<D> {
    /// A cache for `tokens` tokens of prompts and sequences together (each rounded up to 16).
    ///
    /// # Errors
    /// No memory.
    pub fn new(model: &Model<D>, tokens: usize) -> Result<Self, ComputeError> {
        let shape = model.config.attention_shape();
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

    /// Tokens the cache can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Tokens not reserved; they may not be adjacent.
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
    /// No free run that is long enough, or the prompt is gone.
    pub fn fork(&mut self, prompt: PromptSlot, max_new: usize) -> Result<SeqSlot, ComputeError> {
        self.prompt(prompt)?;
        let span = self.region(max_new, End::Low)?;
        self.generation += 1;
        let sequence =
            Sequence { generation: self.generation, prompt: prompt.index, span, reserved: max_new };
        self.prompts[prompt.index].as_mut().expect("the prompt was just found").sequences += 1;
        let index = first_free(&mut self.sequences, sequence);
        Ok(SeqSlot { index, generation: self.generation })
    }

    /// Frees a sequence's tokens.
    ///
    /// # Errors
    /// The sequence is gone already.
    pub fn release(&mut self, sequence: SeqSlot) -> Result<(), ComputeError> {
        self.sequence(sequence)?;
        let gone = self.sequences[sequence.index].take().expect("the sequence was just found");
        self.free_span(gone.span);
        if let Some(prompt) = &mut self.prompts[gone.prompt] {
            prompt.sequences -= 1;
        }
        self.drop_prompt_if_unused(gone.prompt);
        Ok(())
    }

    /// Frees a prompt's tokens, as soon as its last sequence is released.
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

    /// Frees everything; all slots are gone.
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
            .ok_or(ComputeError::Slot { what: "prompt", index: slot.index })
    }

    fn sequence(&self, slot: SeqSlot) -> Result<&Sequence, ComputeError> {
        self.sequences
            .get(slot.index)
            .and_then(Option::as_ref)
            .filter(|s| s.generation == slot.generation)
            .ok_or(ComputeError::Slot { what: "sequence", index: slot.index })
    }

    pub(crate) fn region(&mut self, tokens: usize, end: End) -> Result<CacheSpan, ComputeError> {
        let needed = Self::cost(tokens);
        let start = self.free.take(needed, end).ok_or(ComputeError::CacheFull {
            needed,
            largest: self.free.largest(),
            capacity: self.capacity,
        })?;
        Ok(CacheSpan { base: (start * self.per_token) as u64, capacity: needed as u32, len: 0 })
    }

    /// A slot for a prompt of `len` tokens that was read into `span`.
    pub(crate) fn keep_prompt(&mut self, mut span: CacheSpan, len: usize) -> PromptSlot {
        span.len = len as u32;
        self.generation += 1;
        let generation = self.generation;
        let prompt = Prompt { generation, span, sequences: 0, released: false };
        let index = first_free(&mut self.prompts, prompt);
        PromptSlot { index, generation }
    }

    pub(crate) fn free_span(&mut self, span: CacheSpan) {
        self.free.give(span.base as usize / self.per_token, span.capacity as usize);
    }

    pub(crate) fn cache_row(&self, slot: SeqSlot) -> Result<CacheRow, ComputeError> {
        let sequence = self.sequence(slot)?;
        if sequence.span.len as usize >= sequence.reserved {
            return Err(ComputeError::SequenceFull {
                index: slot.index,
                reserved: sequence.reserved,
            });
        }
        let prompt =
            self.prompts[sequence.prompt].as_ref().expect("a prompt outlives its sequences");
        Ok(CacheRow { prompt: prompt.span, own: sequence.span })
    }
}

/// Puts an item into the first free slot.
fn first_free<T>(items: &mut Vec<Option<T>>, item: T) -> usize {
    if let Some(index) = items.iter().position(Option::is_none) {
        items[index] = Some(item);
        index
    } else {
        items.push(Some(item));
        items.len() - 1
    }
}
