//! Continuous batching, a step at a time.
//!
//! Purpose: requests come at any time and in any number; every step gives each running sequence one token, and a
//! waiting request is admitted as soon as there are a slot and free pages. A request's prompt is read once for all its
//! completions. A request's results depend on itself alone: not on earlier requests, on the batch it shares, on the
//! memory, or on the number of threads. Memory: a sequence takes pages of the cache as it grows. When they run out, the
//! newest sequence is preempted: its pages are freed, its tokens are kept, and it is read again ([`KvCache::reread`])
//! when there are pages, before anything new is admitted. A sequence is admitted if every other one could still take a
//! page. Price: a preempted sequence is computed twice, and requests are admitted strictly in the order they came:
//! small ones wait behind a large one.

mod schedule;

use std::collections::{BTreeMap, VecDeque};

use hapo_core::{Refusal, RngCounter, uniform};
use hapo_kernels::{Device, DrawnToken, draw, log_prob, row_stats};
use hapo_model::{
    KvCache, Model, NextToken, PartialPrompt, PromptSlot, SeqSlot, Tokenizer, workspace_bytes,
};
use rayon::prelude::*;

use crate::request::{EngineLimits, Event, EventKind, FinishReason, NewToken, Request, RequestId};
use crate::text::TextStream;

#[derive(Debug)]
pub struct Engine<'a, D: Device> {
    model: &'a Model<D>,
    tokenizer: Option<&'a Tokenizer>,
    limits: EngineLimits,
    cache: KvCache<D>,
    jobs: BTreeMap<RequestId, Job>,
    /// Requests with completions to admit, in the order they came.
    waiting: VecDeque<RequestId>,
    partial: Option<(RequestId, PartialPrompt<D>)>,
    running: Vec<Running>,
    /// Sequences waiting for pages, in the order of their requests.
    preempted: Vec<Preempted>,
    submitted: u64,
    preemptions: u64,
}

#[derive(Debug)]
struct Job {
    request: Request,
    admitted: usize,
    finished: usize,
    prompt: Option<CachedPrompt>,
}

/// A prompt in the cache, with the logits after it while completions are to be admitted.
#[derive(Debug)]
struct CachedPrompt {
    slot: PromptSlot,
    logits: Vec<f32>,
}

#[derive(Debug)]
struct Sequence {
    id: RequestId,
    completion: usize,
    tokens: Vec<u32>,
    text: Option<TextStream>,
}

impl Sequence {
    fn place(&self) -> (RequestId, usize) {
        (self.id, self.completion)
    }
}

/// A completion in the cache; its last token is not fed yet.
#[derive(Debug)]
struct Running {
    sequence: Sequence,
    slot: SeqSlot,
}

#[derive(Debug)]
struct Preempted {
    sequence: Sequence,
    reading: Option<SeqSlot>,
}

pub const MAX_PREFILL_PROMPTS: usize = 64;

/// A token, and the most likely ones with their log-probabilities if the request wants them.
type WithMostLikely = (DrawnToken, Vec<(u32, f32)>);

impl<'a, D: Device> Engine<'a, D> {
    /// An engine on a model. Requests with text or stop strings need the tokenizer.
    pub fn new(
        model: &'a Model<D>,
        tokenizer: Option<&'a Tokenizer>,
        limits: EngineLimits,
    ) -> Result<Self, Refusal> {
        for (name, value) in [
            ("max_sequences", limits.max_sequences),
            ("cache_tokens", limits.cache_tokens),
            ("prefill_tokens", limits.prefill_tokens),
            ("usable_vocab", limits.usable_vocab),
        ] {
            if value == 0 {
                return Err(Refusal::bug(format!("{name}: expected at least 1, got 0")));
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
            preempted: Vec::new(),
            submitted: 0,
            preemptions: 0,
        })
    }

    /// Most bytes an engine takes in addition to the weights: the cache ([`KvCache::bytes`]) and the activations of its
    /// largest step ([`workspace_bytes`]). Waiting prompts and running sequences take 4 bytes per token on top, and a
    /// sequence that reports its most likely tokens takes 4 per token of the vocabulary.
    pub fn memory_bytes(model: &Model<D>, limits: EngineLimits) -> usize {
        let prompts = MAX_PREFILL_PROMPTS.min(limits.prefill_tokens).min(limits.max_sequences);
        KvCache::<D>::bytes(model.config(), model.kv_format(), limits.cache_tokens)
            + workspace_bytes(model, limits.max_sequences, limits.prefill_tokens, prompts)
    }

    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Completions that wait for a slot or for pages.
    pub fn waiting(&self) -> usize {
        let jobs = self.waiting.iter().map(|id| &self.jobs[id]);
        let remaining = jobs.map(|it| it.request.completions - it.admitted);
        self.preempted.len() + remaining.sum::<usize>()
    }

    pub fn preemptions(&self) -> u64 {
        self.preemptions
    }

    pub fn free_tokens(&self) -> usize {
        self.cache.free_tokens()
    }

    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.preempted.is_empty() && self.waiting.is_empty()
    }

    /// Queues a request; it is admitted in one of the next steps.
    pub fn submit(&mut self, request: Request) -> Result<RequestId, Refusal> {
        request.check(self.model, &self.cache, self.tokenizer.is_some())?;
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
    pub fn cancel(&mut self, id: RequestId) -> Result<bool, Refusal> {
        let Some(job) = self.jobs.remove(&id) else { return Ok(false) };
        if let Some((_, it)) = self.partial.take_if(|it| it.0 == id) {
            self.cache.cancel_prefill(it);
        }
        self.waiting.retain(|it| *it != id);
        let running = self.running.extract_if(.., |it| it.sequence.id == id).map(|it| it.slot);
        let preempted = self.preempted.extract_if(.., |it| it.sequence.id == id);
        for slot in running.chain(preempted.filter_map(|it| it.reading)) {
            self.cache.release(slot)?;
        }
        if let Some(prompt) = job.prompt {
            self.cache.release_prompt(prompt.slot)?;
        }
        Ok(true)
    }

    /// Admits waiting requests while there are free slots and pages, then gives every running sequence one more token.
    /// Events of one completion are in order; completions appear in the order they were admitted.
    pub fn step(&mut self) -> Result<Vec<Event>, Refusal> {
        // Once for the whole step: to enter the device's threads is to wake one and to wait for it.
        self.model.device().enter(|| {
            let mut events = Vec::new();
            self.admit(&mut events)?;
            self.advance(&mut events)?;
            Ok(events)
        })
    }

    /// Reads preempted sequences again, then admits completions and draws the first token of each, again while that
    /// frees slots.
    fn admit(&mut self, events: &mut Vec<Event>) -> Result<(), Refusal> {
        let mut budget = self.limits.prefill_tokens;
        if !self.resume(&mut budget)? {
            return Ok(());
        }
        loop {
            let admitted = self.take_waiting(&mut budget)?;
            if admitted.is_empty() {
                return Ok(());
            }
            let mut drawn = Vec::new();
            for alike in admitted.chunk_by(|a, b| a.sequence.id == b.sequence.id) {
                let job = &self.jobs[&alike[0].sequence.id];
                let logits = &job.prompt.as_ref().expect("its prompt was just read").logits;
                let row = |it: &Running| job.request.decoding.row(self.uniform_of(&it.sequence));
                let how: Vec<_> = alike.iter().map(row).collect();
                let tokens = self.cache.draw(self.model, logits, &how, self.limits.usable_vocab)?;
                let top = top(logits, job.request.top_log_probs);
                drawn.extend(tokens.into_iter().map(|it| (it, top.clone())));
            }
            for it in &admitted {
                let job = self.jobs.get_mut(&it.sequence.id).expect("it was just admitted");
                if let Some(prompt) = &mut job.prompt
                    && job.admitted == job.request.completions
                {
                    prompt.logits = Vec::new();
                }
            }
            for (it, drawn) in admitted.into_iter().zip(drawn) {
                self.push(it, drawn, events)?;
            }
        }
    }

    fn advance(&mut self, events: &mut Vec<Event>) -> Result<(), Refusal> {
        self.make_room()?;
        if self.running.is_empty() {
            return Ok(());
        }
        let last = |it: &Running| *it.sequence.tokens.last().expect("it has a first token");
        let step: Vec<(SeqSlot, u32)> = self.running.iter().map(|it| (it.slot, last(it))).collect();
        let drawn = self.decode_and_draw(&step)?;
        for (it, drawn) in std::mem::take(&mut self.running).into_iter().zip(drawn) {
            self.push(it, drawn, events)?;
        }
        Ok(())
    }

    /// The next token of each running sequence, drawn on the device; downloads only the logits of sequences that report
    /// their most likely tokens.
    fn decode_and_draw(&mut self, step: &[(SeqSlot, u32)]) -> Result<Vec<WithMostLikely>, Refusal> {
        let row = |it: &Running| {
            let request = &self.jobs[&it.sequence.id].request;
            let uniform = self.uniform_of(&it.sequence);
            (request.top_log_probs == 0).then(|| request.decoding.row(uniform))
        };
        let wanted: Vec<_> = self.running.iter().map(row).collect();
        let usable = self.limits.usable_vocab;
        let next = self.cache.decode_next(self.model, step, &wanted, usable)?;
        let one = |(it, next): (&Running, NextToken)| match next {
            NextToken::Drawn(it) => (it, Vec::new()),
            NextToken::Logits(logits) => {
                let request = &self.jobs[&it.sequence.id].request;
                let row = request.decoding.row(self.uniform_of(&it.sequence));
                (draw(&logits, row, usable), top(&logits, request.top_log_probs))
            }
        };
        // Tokens drawn on the device are only passed on: no work to share out.
        if wanted.iter().all(Option::is_some) {
            return Ok(self.running.iter().zip(next).map(one).collect());
        }
        Ok(self.running.par_iter().zip(next).map(one).collect())
    }

    fn uniform_of(&self, it: &Sequence) -> f64 {
        let key = self.jobs[&it.id].request.rng;
        let counter = RngCounter {
            step: key.step,
            prompt: key.prompt.0,
            rollout: it.completion as u64,
            position: it.tokens.len() as u64,
        };
        uniform(key.seed, key.rng_stream, counter)
    }

    /// Appends a token; the sequence keeps running or finishes.
    fn push(
        &mut self,
        Running { sequence: mut it, slot }: Running,
        (drawn, top): WithMostLikely,
        events: &mut Vec<Event>,
    ) -> Result<(), Refusal> {
        let request = &self.jobs[&it.id].request;
        let stops = &request.stop_strings;
        it.tokens.push(drawn.token);
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
            .or((it.tokens.len() >= request.max_tokens).then_some(FinishReason::Length))
        };
        let event = |kind| Event { request: it.id, completion: it.completion, kind };
        events.push(event(EventKind::Token(NewToken { drawn, text, top })));
        let Some(why) = &mut reason else {
            self.running.push(Running { sequence: it, slot });
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
        events.push(event(EventKind::Finished { reason: *why, text: rest }));
        self.cache.release(slot)?;
        let job = self.jobs.get_mut(&it.id).expect("it was running");
        job.finished += 1;
        if job.finished == job.request.completions
            && let Some(prompt) = self.jobs.remove(&it.id).and_then(|it| it.prompt)
        {
            self.cache.release_prompt(prompt.slot)?;
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
