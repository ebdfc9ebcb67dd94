//! Keys and values of prompts and of the sequences that continue them, in pages.
//!
//! Purpose: a sequence takes a page of [`PAGE`] tokens when it grows into it, so memory follows actual use. All
//! sequences of a prompt share its pages, and prompts with a common beginning share full pages. Sequences come and go,
//! and the caller batches the running ones (continuous batching). Price: the last page of a prompt and that of a
//! sequence are half empty on average. Prompts with a common beginning share memory, but are still read whole. When no
//! page is free, a step fails with [`CacheFull`]; the caller decides which sequence waits.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};

use hapo_core::{Fault, Refusal};
use hapo_kernels::{CacheLayer, CacheRow, Device, NumberFormat, PAGE};

use crate::{config::Config, model::Model};

use super::pages::{Pages, PromptPages};
use super::workspace::Workspace;

/// Bytes of the keys and values of one token, all layers.
pub fn kv_bytes_per_token(config: &Config, format: NumberFormat) -> u64 {
    (2 * format.bytes() * config.layers * config.attention_shape().kv_dim()) as u64
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PromptSlot(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeqSlot(u64);

#[derive(Debug)]
pub struct KvCache<D: Device> {
    pub(crate) buf: D::Buf,
    layers: usize,
    format: NumberFormat,
    pub(super) pages: Pages,
    prompts: BTreeMap<PromptSlot, Prompt>,
    sequences: BTreeMap<SeqSlot, Sequence>,
    /// Never given before.
    next: (PromptSlot, SeqSlot),
    /// Buffers of the last prefill, and of the blocks of a decode step.
    pub(crate) prefill: Option<Workspace<D>>,
    pub(crate) blocks: Vec<Workspace<D>>,
}

#[derive(Debug)]
struct Prompt {
    pages: Vec<u32>,
    len: usize,
    sequences: usize,
    released: bool,
}

#[derive(Debug)]
struct Sequence {
    prompt: PromptSlot,
    pages: Vec<u32>,
    len: usize,
    longest: usize,
}

/// Where the tokens of a step are, and which tokens they attend to.
#[derive(Debug, Default)]
pub(crate) struct StepRows {
    pub(crate) rows: Vec<CacheRow>,
    pub(crate) pages: Vec<u32>,
    /// Where the key and the value of each row go.
    pub(crate) cells: Vec<u32>,
}

impl<D: Device> KvCache<D> {
    /// A cache for `tokens` tokens of prompts and sequences, rounded up to full pages, in [`Model::kv_format`].
    pub fn new(model: &Model<D>, tokens: usize) -> Result<Self, Refusal> {
        let (shape, format) = (model.config.attention_shape(), model.kv_format());
        let pages = tokens.div_ceil(PAGE);
        let numbers = pages * PAGE * model.config.layers * shape.kv_dim() * 2;
        Ok(Self {
            buf: model.device.alloc(format.words(numbers), NumberFormat::F32)?,
            layers: model.config.layers,
            format,
            pages: Pages::new(pages),
            prompts: BTreeMap::new(),
            sequences: BTreeMap::new(),
            next: (PromptSlot(0), SeqSlot(0)),
            prefill: None,
            blocks: Vec::new(),
        })
    }

    /// Bytes of a cache of `tokens` tokens, in full pages: `tokens · layers · 2 · kv_heads · head_dim` numbers.
    pub fn bytes(config: &Config, format: NumberFormat, tokens: usize) -> usize {
        tokens.next_multiple_of(PAGE) * kv_bytes_per_token(config, format) as usize
    }

    /// The model's format has not changed since the cache was made.
    pub(crate) fn expect_format(&self, format: NumberFormat) {
        assert_eq!(self.format, format, "a cache is of the format that its model has");
    }

    /// Tokens the cache can hold.
    pub fn capacity(&self) -> usize {
        self.pages.count() * PAGE
    }

    pub fn free_tokens(&self) -> usize {
        self.pages.free() * PAGE
    }

    /// Tokens of the pages that a prompt or a sequence of `tokens` tokens takes.
    pub fn cost(tokens: usize) -> usize {
        tokens.next_multiple_of(PAGE)
    }

    /// A sequence that continues a prompt and may be fed up to `longest` tokens. It takes no page yet.
    pub fn fork(&mut self, prompt: PromptSlot, longest: usize) -> Result<SeqSlot, Refusal> {
        self.prompt(prompt)?.sequences += 1;
        let slot = self.next.1;
        self.next.1.0 += 1;
        self.sequences.insert(slot, Sequence { prompt, pages: Vec::new(), len: 0, longest });
        Ok(slot)
    }

    pub fn release(&mut self, sequence: SeqSlot) -> Result<(), Refusal> {
        let gone =
            self.sequences.remove(&sequence).ok_or_else(|| not_in_use("sequence", sequence.0))?;
        self.pages.give(&gone.pages);
        self.prompts.get_mut(&gone.prompt).expect("a prompt outlives its sequences").sequences -= 1;
        self.drop_prompt_if_unused(gone.prompt);
        Ok(())
    }

    /// Frees a prompt's pages, as soon as its last sequence is released.
    pub fn release_prompt(&mut self, prompt: PromptSlot) -> Result<(), Refusal> {
        self.prompt(prompt)?.released = true;
        self.drop_prompt_if_unused(prompt);
        Ok(())
    }

    /// Tokens that a sequence was fed.
    pub fn fed(&self, slot: SeqSlot) -> Result<usize, Refusal> {
        Ok(self.sequence(slot)?.len)
    }

    /// Tokens of the pages that the next token of each of these sequences takes.
    pub fn growth(&self, slots: impl IntoIterator<Item = SeqSlot>) -> Result<usize, Refusal> {
        let mut pages = 0;
        for slot in slots {
            let it = self.sequence(slot)?;
            pages += usize::from(it.len == it.pages.len() * PAGE);
        }
        Ok(pages * PAGE)
    }

    /// Tokens of one more page for every sequence that can grow into one.
    pub fn reserve(&self) -> usize {
        self.sequences.values().filter(|it| it.pages.len() * PAGE < it.longest).count() * PAGE
    }

    fn drop_prompt_if_unused(&mut self, slot: PromptSlot) {
        if let Entry::Occupied(it) = self.prompts.entry(slot)
            && it.get().released
            && it.get().sequences == 0
        {
            self.pages.give(&it.remove().pages);
        }
    }

    fn prompt(&mut self, slot: PromptSlot) -> Result<&mut Prompt, Refusal> {
        let found = self.prompts.get_mut(&slot).filter(|it| !it.released);
        found.ok_or_else(|| not_in_use("prompt", slot.0))
    }

    fn sequence(&self, slot: SeqSlot) -> Result<&Sequence, Refusal> {
        self.sequences.get(&slot).ok_or_else(|| not_in_use("sequence", slot.0))
    }

    /// Pages for a prompt, shared ones included. With `at_once` the caller writes the others before anything reads
    /// them, so that the next prompt may share them.
    pub(crate) fn pages_for(
        &mut self,
        tokens: &[u32],
        at_once: bool,
    ) -> Result<PromptPages, Refusal> {
        let capacity = self.capacity();
        let (free, needed) = (self.free_tokens(), tokens.len());
        let found = self.pages.take_for(tokens, at_once);
        found.ok_or_else(|| CacheFull { needed, free, capacity }.into())
    }

    pub(crate) fn keep_prompt(&mut self, tokens: &[u32], pages: Vec<u32>) -> PromptSlot {
        self.pages.share(tokens, &pages);
        let slot = self.next.0;
        self.next.0.0 += 1;
        let prompt = Prompt { pages, len: tokens.len(), sequences: 0, released: false };
        self.prompts.insert(slot, prompt);
        slot
    }

    /// The rows of `n` more tokens of each sequence; pages are taken where theirs are full, and none on an error.
    pub(crate) fn step_rows(
        &mut self,
        slots: impl Iterator<Item = SeqSlot> + Clone,
        n: usize,
    ) -> Result<StepRows, Refusal> {
        let mut seen = BTreeSet::new();
        let mut needed = 0;
        for slot in slots.clone() {
            let it = self.sequence(slot)?;
            let wrong =
                |problem: String| Err(Refusal::bug(format!("sequence slot {} {problem}", slot.0)));
            if !seen.insert(slot) {
                return wrong("appears twice in one step".to_owned());
            }
            if it.len + n > it.longest {
                return wrong(format!("has all of its {} tokens", it.longest));
            }
            needed += (it.len + n).div_ceil(PAGE).saturating_sub(it.pages.len());
        }
        if needed > self.pages.free() {
            let (free, capacity) = (self.free_tokens(), self.capacity());
            return Err(CacheFull { needed: needed * PAGE, free, capacity }.into());
        }
        let mut step = StepRows::default();
        for slot in slots {
            let it = self.sequences.get_mut(&slot).expect("the sequence was just found");
            while it.pages.len() * PAGE < it.len + n {
                it.pages.push(self.pages.take().expect("free pages were counted"));
            }
            let prompt = &self.prompts[&it.prompt];
            let first_page = step.pages.len() as u32;
            step.pages.extend(prompt.pages.iter().chain(&it.pages));
            for len in it.len..it.len + n {
                let (prompt_len, own_len) = (prompt.len as u32, len as u32);
                step.rows.push(CacheRow { first_page, prompt_len, own_len });
                step.cells.push(it.pages[len / PAGE] * PAGE as u32 + (len % PAGE) as u32);
            }
        }
        Ok(step)
    }

    pub(crate) fn advance(&mut self, slots: impl Iterator<Item = SeqSlot>, n: usize) {
        for slot in slots {
            if let Some(it) = self.sequences.get_mut(&slot) {
                it.len += n;
            }
        }
    }

    pub(crate) fn layer(&self, index: usize) -> CacheLayer {
        CacheLayer { index, count: self.layers, format: self.format }
    }
}

pub(crate) fn cells(pages: &[u32], tokens: std::ops::Range<usize>) -> Vec<u32> {
    tokens.map(|it| pages[it / PAGE] * PAGE as u32 + (it % PAGE) as u32).collect()
}

/// Why a step cannot be made: it needs more pages than are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("key/value cache full: {needed} tokens asked for, {free} of {capacity} are free")]
pub struct CacheFull {
    pub needed: usize,
    pub free: usize,
    pub capacity: usize,
}

impl From<CacheFull> for Refusal {
    fn from(full: CacheFull) -> Self {
        Self::because(full).with_fault(Fault::Machine)
    }
}

/// A slot that was released, or belongs to another cache.
fn not_in_use(what: &str, index: u64) -> Refusal {
    Refusal::bug(format!("{what} slot {index} is not in use"))
}
