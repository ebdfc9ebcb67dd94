//! Continuous batching, a step at a time.
//!
//! Purpose: requests come at any time and in any number; every step gives each running sequence one
//! token, and a waiting request is admitted as soon as a slot is free. A request's prompt is read once
//! for all its completions. What a request gets depends on itself alone: not on who came before, on the
//! batch it shares, or on the number of threads.
//!
//! Memory: fixed when the engine is made, [`Engine::memory_bytes`]; a sequence is admitted only if its
//! maximum length fits, so nothing is ever preempted.
//!
//! Price: capacity is reserved for tokens that a short completion never uses, and requests are admitted
//! strictly in the order they came: small ones wait behind a large one.

use std::collections::{BTreeMap, VecDeque};

use hapo_core::{RngCounter, uniform};
use hapo_kernels::{Device, log_prob, row_stats};
use hapo_model::{ComputeError, KvCache, Model, PartialPrompt, PromptSlot, SeqSlot, Tokenizer};
use rayon::prelude::*;

use crate::request::{
    Capacity, EngineLimits, Event, EventKind, FinishReason, NewToken, Request, RequestId,
};
use crate::text::TextStream;
use crate::{Drawn, Error, draw};

/// The scheduler: requests to completions.
#[derive(Debug)]
pub struct Engine<'a, D: Device> {
    model: &'a Model<D>,
    tokenizer: Option<&'a Tokenizer>,
    limits: EngineLimits,
    cache: KvCache<D>,
    jobs: BTreeMap<RequestId, Job>,
    /// Requests with completions to admit, in the order they came.
    waiting: VecDeque<RequestId>,
    /// The first of them, while its prompt is read in pieces.
    partial: Option<PartialPrompt<D>>,
    running: Vec<Sequence>,
    logits: Vec<f32>,
    submitted: u64,
}

#[derive(Debug)]
struct Job {
    request: Request,
    admitted: usize,
    finished: usize,
    prompt: Option<CachedPrompt>,
}

/// A prompt in the cache, with the logits after it.
#[derive(Debug)]
struct CachedPrompt {
    slot: PromptSlot,
    logits: Vec<f32>,
}

/// A running completion.
#[derive(Debug)]
struct Sequence {
    id: RequestId,
    completion: usize,
    slot: SeqSlot,
    last: u32,
    length: usize,
    text: Option<TextStream>,
}

/// Prompts in one prefill.
pub const MAX_PREFILL_PROMPTS: usize = 64;

impl<'a, D: Device> Engine<'a, D> {
    /// An engine on a model. Requests with text or stop strings need the tokenizer.
    ///
    /// # Errors
    /// A limit of zero, or no memory for the cache.
    pub fn new(
        model: &'a Model<D>,
        tokenizer: Option<&'a Tokenizer>,
        limits: EngineLimits,
    ) -> Result<Self, Error> {
        for (name, value) in [
            ("max_sequences", limits.max_sequences),
            ("cache_tokens", limits.cache_tokens),
            ("prefill_tokens", limits.prefill_tokens),
            ("usable_vocab", limits.usable_vocab),
        ] {
            if value == 0 {
                return Err(Error::Limit { name });
            }
        }
        Ok(Self {
            model,
            tokenizer,
            limits,
            cache: KvCache::new(model, limits.cache_tokens)?,
            jobs: BTreeMap::new(),
            waiting: VecDeque::new(),
            partial: None,
            running: Vec::new(),
            logits: Vec::new(),
            submitted: 0,
        })
    }

    /// Most bytes an engine takes in addition to the weights: the cache ([`KvCache::bytes`]) and the
    /// activations of its largest step ([`Model::workspace_bytes`]). Waiting prompts take 4 bytes
    /// per token on top.
    pub fn memory_bytes(model: &Model<D>, limits: EngineLimits) -> usize {
        let prompts = MAX_PREFILL_PROMPTS.min(limits.prefill_tokens).min(limits.max_sequences);
        KvCache::<D>::bytes(model.config(), limits.cache_tokens)
            + model.workspace_bytes(limits.max_sequences, limits.prefill_tokens, prompts)
    }

    /// What the engine was made with.
    pub fn limits(&self) -> EngineLimits {
        self.limits
    }

    /// Running sequences.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Completions that wait for a slot.
    pub fn waiting(&self) -> usize {
        let remaining = |id: &RequestId| {
            let job = &self.jobs[id];
            job.request.completions - job.admitted
        };
        self.waiting.iter().map(remaining).sum()
    }

    /// Tokens of the cache that are not reserved.
    pub fn free_tokens(&self) -> usize {
        self.cache.free_tokens()
    }

    /// Whether nothing is running or waiting.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// Queues a request; it is admitted in one of the next steps.
    ///
    /// # Errors
    /// A request that could never be served, with the field that forbids it. The engine stays usable.
    pub fn submit(&mut self, request: Request) -> Result<RequestId, Error> {
        request.check(&Capacity {
            vocabulary: self.model.config().vocab_size,
            positions: self.model.positions(),
            cache_tokens: self.cache.capacity(),
            cost: KvCache::<D>::cost,
            has_tokenizer: self.tokenizer.is_some(),
        })?;
        self.submitted += 1;
        let id = RequestId(self.submitted);
        let job = Job { request, admitted: 0, finished: 0, prompt: None };
        if job.request.completions > 0 {
            self.jobs.insert(id, job);
            self.waiting.push_back(id);
        }
        Ok(id)
    }

    /// Cancels a request; no event of it follows. Is `false` when it had finished or is unknown.
    ///
    /// # Errors
    /// None that a caller can cause.
    pub fn cancel(&mut self, id: RequestId) -> Result<bool, Error> {
        let Some(job) = self.jobs.remove(&id) else {
            return Ok(false);
        };
        if self.waiting.front() == Some(&id)
            && let Some(it) = self.partial.take()
        {
            self.cache.cancel_prefill(it);
        }
        self.waiting.retain(|it| *it != id);
        for it in self.running.extract_if(.., |it| it.id == id) {
            self.cache.release(it.slot)?;
        }
        if let Some(prompt) = job.prompt {
            self.cache.release_prompt(prompt.slot)?;
        }
        Ok(true)
    }

    /// Admits waiting requests while there are free slots and cache capacity, then gives every running
    /// sequence one more token. Events of one completion are in order; completions appear in the order
    /// they were admitted.
    ///
    /// # Errors
    /// No memory, or a tokenizer that cannot decode. The engine cannot be used afterwards.
    pub fn step(&mut self) -> Result<Vec<Event>, Error> {
        let mut events = Vec::new();
        self.admit(&mut events)?;
        self.advance(&mut events)?;
        Ok(events)
    }

    /// Admits completions and draws the first token of each, again while that frees slots.
    fn admit(&mut self, events: &mut Vec<Event>) -> Result<(), Error> {
        let mut budget = self.limits.prefill_tokens;
        loop {
            let admitted = self.take_waiting(&mut budget)?;
            if admitted.is_empty() {
                return Ok(());
            }
            let drawn = self.draw_all(&admitted, |i| {
                let prompt = self.jobs[&admitted[i].id].prompt.as_ref();
                &prompt.expect("its prompt was just read").logits
            });
            let mut complete = Vec::new();
            for it in &admitted {
                let job = &self.jobs[&it.id];
                if job.admitted == job.request.completions && complete.last() != Some(&it.id) {
                    complete.push(it.id);
                }
            }
            for id in complete {
                let job = self.jobs.get_mut(&id).expect("it was just admitted");
                if let Some(prompt) = job.prompt.take() {
                    self.cache.release_prompt(prompt.slot)?;
                }
            }
            for (it, drawn) in admitted.into_iter().zip(drawn) {
                self.push(it, drawn, events)?;
            }
        }
    }

    /// Moves waiting completions from the front into free slots, reading prompts as needed, as far as
    /// slots, cache capacity and `budget` allow.
    fn take_waiting(&mut self, budget: &mut usize) -> Result<Vec<Sequence>, Error> {
        let mut admitted: Vec<Sequence> = Vec::new();
        let mut evicted = false;
        while self.running.len() + admitted.len() < self.limits.max_sequences {
            let Some(&id) = self.waiting.front() else {
                break;
            };
            let slots = self.limits.max_sequences - self.running.len() - admitted.len();
            let step = match self.jobs[&id].prompt.as_ref().map(|it| it.slot) {
                Some(prompt) => self.fork(id, prompt).map(|it| {
                    admitted.push(it);
                    true
                }),
                None => self.read_prompts(slots, budget),
            };
            match step {
                Ok(true) => {}
                Ok(false) => break,
                // A running sequence will finish. If there is none, the free capacity is fragmented.
                Err(ComputeError::CacheFull { .. })
                    if !self.running.is_empty() || !admitted.is_empty() =>
                {
                    break;
                }
                Err(ComputeError::CacheFull { .. }) if !evicted => {
                    self.evict_prompts();
                    evicted = true;
                }
                Err(it) => return Err(it.into()),
            }
        }
        Ok(admitted)
    }

    /// A sequence for the next completion of a request whose prompt is in the cache.
    fn fork(&mut self, id: RequestId, prompt: PromptSlot) -> Result<Sequence, ComputeError> {
        let job = self.jobs.get_mut(&id).expect("a waiting request is known");
        let slot = self.cache.fork(prompt, job.request.max_tokens)?;
        let completion = job.admitted;
        job.admitted += 1;
        if job.admitted == job.request.completions {
            self.waiting.pop_front();
        }
        Ok(Sequence {
            id,
            completion,
            slot,
            last: 0,
            length: 0,
            text: job.request.wants_text().then(TextStream::new),
        })
    }

    /// Reads the prompt of the first waiting request, with those of the next that may be admitted at
    /// once. Is `false` when the step's budget is spent.
    fn read_prompts(&mut self, slots: usize, budget: &mut usize) -> Result<bool, ComputeError> {
        let first = self.waiting[0];
        if *budget == 0 {
            return Ok(false);
        }
        if self.partial.is_some() || self.jobs[&first].request.prompt.len() > *budget {
            return self.read_piece(first, budget);
        }
        let mut ids = self.prefill_batch(slots, *budget);
        let prompt_of = |id: &RequestId| self.jobs[id].request.prompt.as_slice();
        let prompts: Vec<&[u32]> = ids.iter().map(prompt_of).collect();
        let mut tokens = prompts.iter().map(|it| it.len()).sum::<usize>();
        let read = match self.model.prefill(&mut self.cache, &prompts) {
            // Capacity for the first alone is enough to make progress.
            Err(ComputeError::CacheFull { .. }) => {
                tokens = prompts[0].len();
                let read = self.model.prefill(&mut self.cache, &prompts[..1])?;
                ids.truncate(1);
                read
            }
            read => read?,
        };
        *budget -= tokens;
        let vocabulary = self.model.config().vocab_size;
        for ((id, slot), logits) in
            ids.iter().zip(read.slots).zip(read.logits.chunks_exact(vocabulary))
        {
            let logits = logits.to_vec();
            let job = self.jobs.get_mut(id).expect("a waiting request is known");
            job.prompt = Some(CachedPrompt { slot, logits });
        }
        Ok(true)
    }

    /// The first waiting request and those after it that fit into the budget, the slots and the cache.
    fn prefill_batch(&self, slots: usize, budget: usize) -> Vec<RequestId> {
        let cost = KvCache::<D>::cost;
        let (mut ids, mut tokens, mut free_slots) = (Vec::new(), 0, slots);
        let mut free_tokens = self.cache.free_tokens();
        for id in &self.waiting {
            let job = &self.jobs[id];
            let length = job.request.prompt.len();
            let needed = cost(length) + cost(job.request.max_tokens);
            if !ids.is_empty()
                && (tokens + length > budget
                    || free_slots == 0
                    || free_tokens < needed
                    || ids.len() == MAX_PREFILL_PROMPTS
                    || job.prompt.is_some())
            {
                break;
            }
            ids.push(*id);
            tokens += length;
            let others = (job.request.completions - 1) * cost(job.request.max_tokens);
            free_tokens = free_tokens.saturating_sub(needed + others);
            free_slots = free_slots.saturating_sub(job.request.completions);
        }
        ids
    }

    /// Reads a piece of a prompt that is longer than a step's budget.
    fn read_piece(&mut self, id: RequestId, budget: &mut usize) -> Result<bool, ComputeError> {
        let job = self.jobs.get_mut(&id).expect("a waiting request is known");
        let mut prompt = match self.partial.take() {
            Some(it) => it,
            None => (self.model).begin_prefill(&mut self.cache, &job.request.prompt)?,
        };
        let before = prompt.remaining();
        let read = (self.model).continue_prefill(&mut self.cache, &mut prompt, *budget)?;
        *budget -= before - prompt.remaining();
        if let Some((slot, logits)) = read {
            job.prompt = Some(CachedPrompt { slot, logits });
            return Ok(true);
        }
        self.partial = Some(prompt);
        Ok(false)
    }

    /// Empties a cache that holds only prompts; they will be read again.
    fn evict_prompts(&mut self) {
        self.cache.clear();
        self.partial = None;
        for job in self.jobs.values_mut() {
            job.prompt = None;
        }
    }

    /// One more token of every running sequence.
    fn advance(&mut self, events: &mut Vec<Event>) -> Result<(), Error> {
        if self.running.is_empty() {
            return Ok(());
        }
        let step: Vec<(SeqSlot, u32)> = self.running.iter().map(|it| (it.slot, it.last)).collect();
        let mut logits = std::mem::take(&mut self.logits);
        self.model.decode(&mut self.cache, &step, &mut logits)?;
        let running = std::mem::take(&mut self.running);
        let vocabulary = self.model.config().vocab_size;
        let drawn = self.draw_all(&running, |i| &logits[i * vocabulary..][..vocabulary]);
        self.logits = logits;
        for (it, drawn) in running.into_iter().zip(drawn) {
            self.push(it, drawn, events)?;
        }
        Ok(())
    }

    /// The next token of each sequence, from its row of logits.
    fn draw_all<'l>(
        &self,
        sequences: &[Sequence],
        row: impl Fn(usize) -> &'l [f32] + Sync,
    ) -> Vec<(Drawn, Vec<(u32, f32)>)> {
        let one = |(i, it): (usize, &Sequence)| {
            let request = &self.jobs[&it.id].request;
            let key = request.rng;
            let counter = RngCounter {
                step: key.step,
                prompt: key.prompt.0,
                rollout: it.completion as u64,
                position: it.length as u64,
            };
            let number = uniform(key.seed, key.rng_stream, counter);
            let logits = row(i);
            (
                draw(logits, request.decoding, number, self.limits.usable_vocab),
                top(logits, request.top_log_probs),
            )
        };
        (self.model.device()).enter(|| sequences.par_iter().enumerate().map(one).collect())
    }

    /// Appends a token; the sequence keeps running or finishes.
    fn push(
        &mut self,
        mut it: Sequence,
        (drawn, top): (Drawn, Vec<(u32, f32)>),
        events: &mut Vec<Event>,
    ) -> Result<(), Error> {
        let request = &self.jobs[&it.id].request;
        let stops = &request.stop_strings;
        it.last = drawn.token;
        it.length += 1;
        let mut text = String::new();
        let mut reason = if request.stop_tokens.contains(&drawn.token) {
            Some(FinishReason::EndToken)
        } else {
            if let (Some(stream), Some(tokenizer)) = (&mut it.text, self.tokenizer) {
                let grown = stream.push(tokenizer, drawn.token, stops)?;
                text = grown.text;
                grown.stopped.map(FinishReason::StopString)
            } else {
                None
            }
            .or((it.length >= request.max_tokens).then_some(FinishReason::Length))
        };
        let event = |kind| Event { request: it.id, completion: it.completion, kind };
        events.push(event(EventKind::Token(NewToken { drawn, text, top })));
        let Some(why) = &mut reason else {
            self.running.push(it);
            return Ok(());
        };
        let mut rest = String::new();
        if !matches!(why, FinishReason::StopString(_))
            && let (Some(stream), Some(tokenizer)) = (it.text, self.tokenizer)
        {
            let grown = stream.finish(tokenizer, stops)?;
            rest = grown.text;
            if let Some(index) = grown.stopped {
                *why = FinishReason::StopString(index);
            }
        }
        events.push(Event {
            request: it.id,
            completion: it.completion,
            kind: EventKind::Finished { reason: *why, text: rest },
        });
        self.cache.release(it.slot)?;
        let job = self.jobs.get_mut(&it.id).expect("it was running");
        job.finished += 1;
        if job.finished == job.request.completions {
            self.jobs.remove(&it.id);
        }
        Ok(())
    }
}

/// The `n` most likely tokens with their log-probabilities at temperature 1.
pub(crate) fn top(logits: &[f32], n: usize) -> Vec<(u32, f32)> {
    if n == 0 {
        return Vec::new();
    }
    let n = n.min(logits.len());
    let mut order: Vec<u32> = (0..logits.len() as u32).collect();
    let likelier = |a: &u32, b: &u32| {
        let (x, y) = (logits[*a as usize], logits[*b as usize]);
        y.total_cmp(&x).then(a.cmp(b))
    };
    if n < order.len() {
        order.select_nth_unstable_by(n - 1, likelier);
        order.truncate(n);
    }
    order.sort_unstable_by(likelier);
    let stats = row_stats(logits, 1.0);
    order.into_iter().map(|id| (id, log_prob(stats, 1.0, logits[id as usize]))).collect()
}
