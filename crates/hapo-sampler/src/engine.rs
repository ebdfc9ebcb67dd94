//! Continuous batching, a step at a time.
//!
//! Purpose: requests come at any time and in any number; every step gives each sequence under way one
//! token, and whoever waits takes a place as soon as one is free. A request's prompt is read once for
//! all its completions. What a request gets depends on itself alone: not on who came before, on the
//! batch it shares, or on the number of threads.
//!
//! Memory: fixed when the engine is made, [`Engine::memory_bytes`]; a sequence begins only when its
//! longest possible completion has room, so none is ever put aside again.
//!
//! Price: room is reserved for tokens that a short completion never uses, and requests begin strictly
//! in the order they came: a large one at the front lets small ones behind it wait.

use std::collections::{BTreeMap, VecDeque};

use hapo_core::{PromptId, RngCounter, RngStream, uniform};
use hapo_kernels::{Device, log_prob, row_stats};
use hapo_model::{ComputeError, KvCache, Model, PartialPrompt, PromptSlot, SeqSlot, Tokenizer};
use rayon::prelude::*;

use crate::text::TextStream;
use crate::{Decoding, Drawn, Error, draw};

/// What an engine may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineLimits {
    /// Sequences that get a token per step.
    pub max_sequences: usize,
    /// Tokens of the key/value cache, prompts and completions together; a prompt is stored once for
    /// all its completions, each rounded up by [`KvCache::cost`].
    pub cache_tokens: usize,
    /// Prompt tokens read per step at most: what a new prompt can add to the time that the others
    /// wait for their next token. Longer prompts are read in pieces.
    pub prefill_tokens: usize,
    /// Ids below this may be drawn; the model's vocabulary may be padded beyond it.
    pub usable_vocab: usize,
}

/// Where the random numbers of a request come from: the same key, the same completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RngKey {
    /// Seed.
    pub seed: u64,
    /// What the draws are for.
    pub rng_stream: RngStream,
    /// Training step, or 0.
    pub step: u64,
    /// Identity of the prompt.
    pub prompt: PromptId,
}

/// A prompt and what is wanted of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The rendered prompt.
    pub prompt: Vec<u32>,
    /// Completions wanted.
    pub completions: usize,
    /// How a token is chosen.
    pub decoding: Decoding,
    /// Longest completion in tokens, the end token included.
    pub max_tokens: usize,
    /// Tokens that end a completion; the one that did is its last token.
    pub stop_tokens: Vec<u32>,
    /// Strings that end a completion, looked for in its text across tokens. The token that completed
    /// one is kept whole; the text ends before the string.
    pub stop_strings: Vec<String>,
    /// Whether events carry text. Where there are stop strings they always do.
    pub text: bool,
    /// So many of the most likely tokens are told beside each token.
    pub top_log_probs: usize,
    /// Key of the draws.
    pub rng: RngKey,
}

/// A request in an engine, never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(u64);

/// What a step did to one completion.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The request.
    pub request: RequestId,
    /// Which of its completions.
    pub completion: usize,
    /// What happened.
    pub kind: EventKind,
}

/// See [`Event`].
#[derive(Clone, Debug, PartialEq)]
pub enum EventKind {
    /// A new token.
    Token(NewToken),
    /// The completion is over; its last token came just before.
    Finished {
        /// Why.
        reason: FinishReason,
        /// Text that was held back and is certain now.
        text: String,
    },
}

/// One token of a completion.
#[derive(Clone, Debug, PartialEq)]
pub struct NewToken {
    /// The token with its log-probabilities under the whole distribution, at the sampling temperature
    /// ([`Drawn::log_prob`]) and at temperature 1 ([`Drawn::log_prob_t1`]).
    pub drawn: Drawn,
    /// Text that is certain now: whole characters, no end token, nothing that a stop string may take
    /// back. Often empty, or longer than the token.
    pub text: String,
    /// The most likely tokens and their log-probabilities at temperature 1, the likeliest first (the
    /// lower id on ties); as many as asked for.
    pub top: Vec<(u32, f32)>,
}

/// Why a completion is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FinishReason {
    /// Its last token is one of the stop tokens.
    EndToken,
    /// Its text contains this stop string of the request.
    StopString(usize),
    /// It has `max_tokens` tokens.
    #[default]
    Length,
}

impl FinishReason {
    /// `end_token`, `stop_string` or `length`.
    pub fn name(self) -> &'static str {
        match self {
            Self::EndToken => "end_token",
            Self::StopString(_) => "stop_string",
            Self::Length => "length",
        }
    }
}

/// Requests on their way to completions.
#[derive(Debug)]
pub struct Engine<'a, D: Device> {
    model: &'a Model<D>,
    tokenizer: Option<&'a Tokenizer>,
    limits: EngineLimits,
    cache: KvCache<D>,
    jobs: BTreeMap<RequestId, Job>,
    /// Requests with completions to begin, in the order they came.
    waiting: VecDeque<RequestId>,
    /// The first of them, while its prompt is read in pieces.
    reading: Option<PartialPrompt<D>>,
    active: Vec<Active>,
    logits: Vec<f32>,
    submitted: u64,
}

#[derive(Debug)]
struct Job {
    request: Request,
    begun: usize,
    finished: usize,
    prompt: Option<ReadPrompt>,
}

/// A prompt that was read, with the logits after it.
#[derive(Debug)]
struct ReadPrompt {
    slot: PromptSlot,
    logits: Vec<f32>,
}

/// A completion under way.
#[derive(Debug)]
struct Active {
    id: RequestId,
    completion: usize,
    slot: SeqSlot,
    last: u32,
    length: usize,
    text: Option<TextStream>,
}

/// Prompts read together.
pub(crate) const PROMPTS_AT_ONCE: usize = 64;

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
            reading: None,
            active: Vec::new(),
            logits: Vec::new(),
            submitted: 0,
        })
    }

    /// Most bytes an engine takes beside the weights: the cache ([`KvCache::bytes`]) and the
    /// activations of its largest step ([`Model::workspace_bytes`]). Prompts that wait take 4 bytes
    /// per token on top.
    pub fn memory_bytes(model: &Model<D>, limits: EngineLimits) -> usize {
        let prompts = PROMPTS_AT_ONCE
            .min(limits.prefill_tokens)
            .min(limits.max_sequences);
        KvCache::<D>::bytes(model.config(), limits.cache_tokens)
            + model.workspace_bytes(limits.max_sequences, limits.prefill_tokens, prompts)
    }

    /// What the engine was made with.
    pub fn limits(&self) -> EngineLimits {
        self.limits
    }

    /// Sequences under way.
    pub fn running(&self) -> usize {
        self.active.len()
    }

    /// Completions that wait for a place.
    pub fn waiting(&self) -> usize {
        let left = |id: &RequestId| self.jobs[id].request.completions - self.jobs[id].begun;
        self.waiting.iter().map(left).sum()
    }

    /// Tokens of the cache that are not reserved.
    pub fn free_tokens(&self) -> usize {
        self.cache.free_tokens()
    }

    /// Whether nothing is under way and nobody waits.
    pub fn is_idle(&self) -> bool {
        self.active.is_empty() && self.waiting.is_empty()
    }

    /// Takes a request; it begins in one of the next steps.
    ///
    /// # Errors
    /// A request that could never be served, with the field that forbids it. The engine goes on.
    pub fn submit(&mut self, request: Request) -> Result<RequestId, Error> {
        self.check(&request)?;
        self.submitted += 1;
        let id = RequestId(self.submitted);
        let job = Job {
            request,
            begun: 0,
            finished: 0,
            prompt: None,
        };
        if job.request.completions > 0 {
            self.jobs.insert(id, job);
            self.waiting.push_back(id);
        }
        Ok(id)
    }

    /// Gives up all that is left of a request; no event of it follows. `false` when it was over or
    /// unknown.
    ///
    /// # Errors
    /// None that a caller can cause.
    pub fn cancel(&mut self, id: RequestId) -> Result<bool, Error> {
        let Some(job) = self.jobs.remove(&id) else {
            return Ok(false);
        };
        if self.waiting.front() == Some(&id)
            && let Some(it) = self.reading.take()
        {
            self.cache.cancel_prefill(it);
        }
        self.waiting.retain(|it| *it != id);
        for it in self.active.extract_if(.., |it| it.id == id) {
            self.cache.release(it.slot)?;
        }
        if let Some(prompt) = job.prompt {
            self.cache.release_prompt(prompt.slot)?;
        }
        Ok(true)
    }

    /// Begins what waits while there are places and room, then gives every sequence under way one more
    /// token. Events of one completion are in order; completions appear in the order they began.
    ///
    /// # Errors
    /// No memory, or a tokenizer that cannot decode. The engine is then of no more use.
    pub fn step(&mut self) -> Result<Vec<Event>, Error> {
        let mut events = Vec::new();
        self.admit(&mut events)?;
        self.advance(&mut events)?;
        Ok(events)
    }

    fn check(&self, it: &Request) -> Result<(), Error> {
        let bad = |field, expected: String, got: String| {
            Err(Error::Request {
                field,
                expected,
                got,
            })
        };
        let (length, vocabulary) = (it.prompt.len(), self.model.config().vocab_size);
        if it.prompt.is_empty() {
            return bad("prompt", "at least one token".to_owned(), "none".to_owned());
        }
        if let Some(row) = it.prompt.iter().position(|t| *t as usize >= vocabulary) {
            return Err(ComputeError::Token {
                row,
                token: it.prompt[row],
                vocabulary,
            }
            .into());
        }
        if it.max_tokens == 0 {
            return bad("max_tokens", "at least 1".to_owned(), "0".to_owned());
        }
        // The last token is never fed.
        let positions = self.model.positions();
        if length > positions || it.max_tokens - 1 > positions - length {
            return bad(
                "max_tokens",
                format!("prompt and completion within {positions} tokens"),
                format!("a prompt of {length} and {} more", it.max_tokens),
            );
        }
        let room = KvCache::<D>::cost(length) + KvCache::<D>::cost(it.max_tokens);
        if room > self.cache.capacity() {
            return bad(
                "max_tokens",
                format!("a cache with room for {room} tokens"),
                format!("one of {}", self.cache.capacity()),
            );
        }
        it.decoding.check()?;
        if it.stop_strings.iter().any(String::is_empty) {
            return bad(
                "stop",
                "strings of at least one character".to_owned(),
                "an empty one".to_owned(),
            );
        }
        if it.wants_text() && self.tokenizer.is_none() {
            return bad(
                "stop",
                "an engine with a tokenizer".to_owned(),
                "one without".to_owned(),
            );
        }
        Ok(())
    }

    fn admit(&mut self, events: &mut Vec<Event>) -> Result<(), Error> {
        let mut budget = self.limits.prefill_tokens;
        loop {
            let begun = self.begin(&mut budget)?;
            if begun.is_empty() {
                return Ok(());
            }
            let drawn = self.draw_all(&begun, |i| {
                let prompt = self.jobs[&begun[i].id].prompt.as_ref();
                &prompt.expect("its prompt was just read").logits
            });
            let mut over = Vec::new();
            for it in &begun {
                let job = &self.jobs[&it.id];
                if job.begun == job.request.completions && over.last() != Some(&it.id) {
                    over.push(it.id);
                }
            }
            for id in over {
                let job = self.jobs.get_mut(&id).expect("it has just begun");
                if let Some(prompt) = job.prompt.take() {
                    self.cache.release_prompt(prompt.slot)?;
                }
            }
            for (it, drawn) in begun.into_iter().zip(drawn) {
                self.push(it, drawn, events)?;
            }
        }
    }

    /// Takes waiting completions from the front into free places, reading prompts as needed, as far as
    /// places, room and `budget` go.
    fn begin(&mut self, budget: &mut usize) -> Result<Vec<Active>, Error> {
        let mut begun: Vec<Active> = Vec::new();
        let mut cleared = false;
        while self.active.len() + begun.len() < self.limits.max_sequences {
            let Some(&id) = self.waiting.front() else {
                break;
            };
            let places = self.limits.max_sequences - self.active.len() - begun.len();
            let step = match self.jobs[&id].prompt.as_ref().map(|it| it.slot) {
                Some(prompt) => self.fork(id, prompt).map(|it| {
                    begun.push(it);
                    true
                }),
                None => self.read_prompts(places, budget),
            };
            match step {
                Ok(true) => {}
                Ok(false) => break,
                // Somebody will leave. If nobody is there, what is free lies in pieces.
                Err(ComputeError::CacheFull { .. }) if !self.active.is_empty() => break,
                Err(ComputeError::CacheFull { .. }) if !begun.is_empty() => break,
                Err(ComputeError::CacheFull { .. }) if !cleared => {
                    self.evict_prompts();
                    cleared = true;
                }
                Err(it) => return Err(it.into()),
            }
        }
        Ok(begun)
    }

    fn fork(&mut self, id: RequestId, prompt: PromptSlot) -> Result<Active, ComputeError> {
        let job = self.jobs.get_mut(&id).expect("who waits is known");
        let slot = self.cache.fork(prompt, job.request.max_tokens)?;
        let completion = job.begun;
        job.begun += 1;
        if job.begun == job.request.completions {
            self.waiting.pop_front();
        }
        Ok(Active {
            id,
            completion,
            slot,
            last: 0,
            length: 0,
            text: job.request.wants_text().then(TextStream::new),
        })
    }

    /// Reads the prompt of the first request that waits, with those of the next that may begin at once.
    /// `false` when the step has read its share.
    fn read_prompts(&mut self, places: usize, budget: &mut usize) -> Result<bool, ComputeError> {
        let first = self.waiting[0];
        let prompt = |id: &RequestId| self.jobs[id].request.prompt.as_slice();
        if *budget == 0 {
            return Ok(false);
        }
        if self.reading.is_some() || prompt(&first).len() > *budget {
            return self.read_piece(first, budget);
        }
        let (mut ids, mut tokens, mut places_left) = (Vec::new(), 0, places);
        let mut room = self.cache.free_tokens();
        for id in &self.waiting {
            let job = &self.jobs[id];
            let length = prompt(id).len();
            let least = KvCache::<D>::cost(length) + KvCache::<D>::cost(job.request.max_tokens);
            let first = ids.is_empty();
            if !first
                && (tokens + length > *budget
                    || places_left == 0
                    || room < least
                    || ids.len() == PROMPTS_AT_ONCE
                    || job.prompt.is_some())
            {
                break;
            }
            ids.push(*id);
            tokens += length;
            room = room.saturating_sub(
                least + (job.request.completions - 1) * KvCache::<D>::cost(job.request.max_tokens),
            );
            places_left = places_left.saturating_sub(job.request.completions);
        }
        let prompts: Vec<&[u32]> = ids.iter().map(prompt).collect();
        let read = match self.model.prefill(&mut self.cache, &prompts) {
            // Room for the first alone is enough to go on.
            Err(ComputeError::CacheFull { .. }) => {
                ids.truncate(1);
                tokens = prompts[0].len();
                self.model.prefill(&mut self.cache, &prompts[..1])?
            }
            read => read?,
        };
        *budget -= tokens;
        let vocabulary = self.model.config().vocab_size;
        for ((id, slot), logits) in ids
            .iter()
            .zip(read.slots)
            .zip(read.logits.chunks_exact(vocabulary))
        {
            let logits = logits.to_vec();
            let job = self.jobs.get_mut(id).expect("who waits is known");
            job.prompt = Some(ReadPrompt { slot, logits });
        }
        Ok(true)
    }

    fn read_piece(&mut self, id: RequestId, budget: &mut usize) -> Result<bool, ComputeError> {
        let job = self.jobs.get_mut(&id).expect("who waits is known");
        let mut prompt = match self.reading.take() {
            Some(it) => it,
            None => (self.model).begin_prefill(&mut self.cache, &job.request.prompt)?,
        };
        let before = prompt.remaining();
        let read = self
            .model
            .continue_prefill(&mut self.cache, &mut prompt, *budget)?;
        *budget -= before - prompt.remaining();
        if let Some((slot, logits)) = read {
            job.prompt = Some(ReadPrompt { slot, logits });
            return Ok(true);
        }
        self.reading = Some(prompt);
        Ok(false)
    }

    /// Empties a cache in which only prompts are left; they will be read again.
    fn evict_prompts(&mut self) {
        self.cache.clear();
        self.reading = None;
        for job in self.jobs.values_mut() {
            job.prompt = None;
        }
    }

    fn advance(&mut self, events: &mut Vec<Event>) -> Result<(), Error> {
        if self.active.is_empty() {
            return Ok(());
        }
        let step: Vec<(SeqSlot, u32)> = self.active.iter().map(|it| (it.slot, it.last)).collect();
        let mut logits = std::mem::take(&mut self.logits);
        self.model.decode(&mut self.cache, &step, &mut logits)?;
        let active = std::mem::take(&mut self.active);
        let vocabulary = self.model.config().vocab_size;
        let drawn = self.draw_all(&active, |i| &logits[i * vocabulary..][..vocabulary]);
        self.logits = logits;
        for (it, drawn) in active.into_iter().zip(drawn) {
            self.push(it, drawn, events)?;
        }
        Ok(())
    }

    /// The next token of each completion, from its row of logits.
    fn draw_all<'l>(
        &self,
        active: &[Active],
        row: impl Fn(usize) -> &'l [f32] + Sync,
    ) -> Vec<(Drawn, Vec<(u32, f32)>)> {
        let one = |(i, it): (usize, &Active)| {
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
        (self.model.device()).enter(|| active.par_iter().enumerate().map(one).collect())
    }

    /// Appends a token; the completion stays under way or is over.
    fn push(
        &mut self,
        mut it: Active,
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
        let event = |kind| Event {
            request: it.id,
            completion: it.completion,
            kind,
        };
        events.push(event(EventKind::Token(NewToken { drawn, text, top })));
        let Some(why) = &mut reason else {
            self.active.push(it);
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
            kind: EventKind::Finished {
                reason: *why,
                text: rest,
            },
        });
        self.cache.release(it.slot)?;
        let job = self.jobs.get_mut(&it.id).expect("it was under way");
        job.finished += 1;
        if job.finished == job.request.completions {
            self.jobs.remove(&it.id);
        }
        Ok(())
    }
}

impl Request {
    fn wants_text(&self) -> bool {
        self.text || !self.stop_strings.is_empty()
    }
}

/// The `n` most likely tokens with their log-probabilities at temperature 1.
fn top(logits: &[f32], n: usize) -> Vec<(u32, f32)> {
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
    order
        .into_iter()
        .map(|id| (id, log_prob(stats, 1.0, logits[id as usize])))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GroupRequest, SampleSettings, Truncation, sample};
    use hapo_kernels::Cpu;
    use std::path::{Path, PathBuf};

    const STOP: [u32; 12] = [3, 19, 35, 51, 67, 83, 99, 115, 131, 147, 163, 179];
    const ROOMY: EngineLimits = EngineLimits {
        max_sequences: 64,
        cache_tokens: 8192,
        prefill_tokens: 1024,
        usable_vocab: 381,
    };

    fn folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/fixtures/models/tiny-qwen2")
    }

    fn model(threads: usize) -> Model<Cpu> {
        let cpu = Cpu::new(threads).unwrap();
        hapo_model::load(&folder(), cpu, |_| 128).unwrap().model
    }

    fn request(i: u64) -> Request {
        Request {
            prompt: (0..3 + 11 * i as u32)
                .map(|j| (i as u32 * 37 + j * 11) % 380)
                .collect(),
            completions: 1 + (i as usize * 2) % 5,
            decoding: Decoding::Sample {
                temperature: 0.5 + i as f32 / 4.0,
                truncation: Truncation {
                    min_p: 0.001 * i as f32,
                    ..Truncation::NONE
                },
            },
            max_tokens: 8 + 3 * i as usize,
            stop_tokens: STOP.to_vec(),
            stop_strings: Vec::new(),
            text: false,
            top_log_probs: 0,
            rng: RngKey {
                seed: 5 + i,
                rng_stream: RngStream::Generate,
                step: 2,
                prompt: PromptId(i),
            },
        }
    }

    type Told = BTreeMap<(u64, usize), (Vec<Drawn>, FinishReason)>;

    /// Serves requests that come at the steps of `arrivals`, by number.
    fn serve(model: &Model<Cpu>, limits: EngineLimits, arrivals: &[(usize, u64)]) -> Told {
        let mut engine = Engine::new(model, None, limits).unwrap();
        let (mut ids, mut tokens, mut told) = (BTreeMap::new(), BTreeMap::new(), Told::new());
        let mut step = 0;
        while step <= arrivals.iter().map(|it| it.0).max().unwrap() || !engine.is_idle() {
            for (_, number) in arrivals.iter().filter(|it| it.0 == step) {
                ids.insert(engine.submit(request(*number)).unwrap(), *number);
            }
            for it in engine.step().unwrap() {
                let key = (ids[&it.request], it.completion);
                match it.kind {
                    EventKind::Token(token) => {
                        let so_far: &mut Vec<Drawn> = tokens.entry(key).or_default();
                        so_far.push(token.drawn);
                    }
                    EventKind::Finished { reason, .. } => {
                        let all = tokens.remove(&key).unwrap();
                        assert!(told.insert(key, (all, reason)).is_none());
                    }
                }
            }
            step += 1;
            assert!(step < 10_000, "the engine makes progress");
        }
        assert_eq!(engine.free_tokens(), limits.cache_tokens);
        assert!(tokens.is_empty() && engine.jobs.is_empty());
        told
    }

    #[test]
    fn a_request_gets_the_same_whoever_else_is_there() {
        let all_at_once: Vec<(usize, u64)> = (0..7).map(|i| (0, i)).collect();
        let expected = serve(&model(1), ROOMY, &all_at_once);
        assert_eq!(
            expected.len(),
            (0..7).map(|i| request(i).completions).sum::<usize>()
        );
        let reasons: Vec<FinishReason> = expected.values().map(|it| it.1).collect();
        assert!(
            reasons.contains(&FinishReason::EndToken) && reasons.contains(&FinishReason::Length)
        );
        let backwards: Vec<(usize, u64)> = (0..7).rev().map(|i| (0, i)).collect();
        let late: Vec<(usize, u64)> = (0..7).map(|i| (i as usize * 3, 6 - i)).collect();
        let tight = EngineLimits {
            max_sequences: 3,
            cache_tokens: 112,
            prefill_tokens: 5,
            ..ROOMY
        };
        let pieces = EngineLimits {
            prefill_tokens: 7,
            ..ROOMY
        };
        for (threads, limits, arrivals) in [
            (2, ROOMY, &backwards),
            (1, tight, &backwards),
            (2, tight, &late),
            (1, pieces, &all_at_once),
            (2, pieces, &late),
        ] {
            let got = serve(&model(threads), limits, arrivals);
            assert!(
                got == expected,
                "{threads} threads, {limits:?}, {arrivals:?}"
            );
        }
    }

    #[test]
    fn the_loop_over_known_requests_gives_the_same() {
        let model = model(2);
        let told = serve(&model, ROOMY, &[(0, 4)]);
        let it = request(4);
        let settings = SampleSettings {
            decoding: it.decoding,
            stop: &STOP,
            max_new_tokens: it.max_tokens,
            max_sequences: 2,
            usable_vocab: 381,
            seed: it.rng.seed,
            rng_stream: it.rng.rng_stream,
            step: it.rng.step,
        };
        let group = GroupRequest {
            prompt: it.rng.prompt,
            tokens: &it.prompt,
            completions: it.completions,
        };
        let sampled = sample(&model, &[group], &settings).unwrap();
        for (index, (completion, details)) in sampled[0].completions().enumerate() {
            let (drawn, reason) = &told[&(4, index)];
            let tokens: Vec<u32> = drawn.iter().map(|it| it.token).collect();
            assert_eq!((&completion.tokens, details.finish), (&tokens, *reason));
            assert!(
                drawn
                    .iter()
                    .map(|it| it.log_prob)
                    .eq(completion.log_probs.clone())
            );
        }
    }

    #[test]
    fn a_long_prompt_does_not_hold_up_the_others() {
        let model = model(1);
        let limits = EngineLimits {
            prefill_tokens: 10,
            ..ROOMY
        };
        let mut engine = Engine::new(&model, None, limits).unwrap();
        let first = engine
            .submit(Request {
                stop_tokens: Vec::new(),
                completions: 1,
                max_tokens: 20,
                ..request(0)
            })
            .unwrap();
        engine.step().unwrap();
        let long = engine.submit(request(6)).unwrap();
        let mut steps = 0;
        loop {
            let events = engine.step().unwrap();
            let of = |id| events.iter().filter(|it| it.request == id).count();
            assert_eq!(of(first), 1);
            steps += 1;
            if of(long) > 0 {
                break;
            }
        }
        assert_eq!(steps, request(6).prompt.len().div_ceil(10));
    }

    #[test]
    fn a_cancelled_request_leaves_its_room() {
        let model = model(1);
        for prefill_tokens in [4, 1024] {
            let limits = EngineLimits {
                max_sequences: 4,
                prefill_tokens,
                ..ROOMY
            };
            let mut engine = Engine::new(&model, None, limits).unwrap();
            let ids: Vec<RequestId> = [6, 4, 2]
                .map(|i| engine.submit(request(i)).unwrap())
                .to_vec();
            engine.step().unwrap();
            assert!(engine.cancel(ids[0]).unwrap());
            assert!(!engine.cancel(ids[0]).unwrap());
            assert!(engine.cancel(ids[2]).unwrap());
            while !engine.is_idle() {
                let events = engine.step().unwrap();
                assert!(events.iter().all(|it| it.request == ids[1]));
            }
            assert!(!engine.cancel(ids[1]).unwrap());
            assert_eq!(engine.free_tokens(), limits.cache_tokens);
        }
    }

    #[test]
    fn a_stop_string_ends_a_completion_and_its_text() {
        let (model, tokenizer) = (model(1), Tokenizer::open(&folder()).unwrap());
        let run = |stops: &[&str]| {
            let mut engine = Engine::new(&model, Some(&tokenizer), ROOMY).unwrap();
            engine
                .submit(Request {
                    completions: 1,
                    decoding: Decoding::Greedy,
                    max_tokens: 40,
                    stop_tokens: Vec::new(),
                    stop_strings: stops.iter().map(|it| (*it).to_owned()).collect(),
                    text: true,
                    ..request(3)
                })
                .unwrap();
            let (mut tokens, mut all, mut why) = (Vec::new(), String::new(), None);
            while !engine.is_idle() {
                for it in engine.step().unwrap() {
                    match it.kind {
                        EventKind::Token(it) => {
                            tokens.push(it.drawn.token);
                            all.push_str(&it.text);
                        }
                        EventKind::Finished { reason, text } => {
                            all.push_str(&text);
                            why = Some(reason);
                        }
                    }
                }
            }
            (tokens, all, why.unwrap())
        };
        let (tokens, text, why) = run(&[]);
        assert_eq!((tokens.len(), why), (40, FinishReason::Length));
        assert_eq!(text, tokenizer.decode(&tokens).unwrap());
        // Cut a piece out of the middle of the text that spans tokens.
        let chars: Vec<(usize, char)> = text.char_indices().collect();
        let (from, to) = (chars[chars.len() / 2].0, chars[chars.len() / 2 + 6].0);
        let stop = &text[from..to];
        let (short, before, why) = run(&["nowhere in it", stop]);
        assert_eq!(why, FinishReason::StopString(1));
        assert_eq!(before, text[..text.find(stop).unwrap()]);
        assert_eq!(short, tokens[..short.len()]);
        assert!(tokenizer.decode(&short).unwrap().contains(stop));
        assert!(
            !tokenizer
                .decode(&short[..short.len() - 1])
                .unwrap()
                .contains(stop)
        );
    }

    #[test]
    fn the_most_likely_tokens_are_told() {
        let model = model(1);
        let mut engine = Engine::new(&model, None, ROOMY).unwrap();
        engine
            .submit(Request {
                completions: 1,
                decoding: Decoding::Greedy,
                top_log_probs: 5,
                ..request(1)
            })
            .unwrap();
        let events = engine.step().unwrap();
        let EventKind::Token(it) = &events[0].kind else {
            panic!("a token comes first");
        };
        assert_eq!(it.top.len(), 5);
        assert_eq!(it.top[0], (it.drawn.token, it.drawn.log_prob_t1));
        assert!(it.top.is_sorted_by(|a, b| a.1 >= b.1));
    }

    #[test]
    fn what_could_never_be_served_is_refused_by_field() {
        let model = model(1);
        let limits = EngineLimits {
            cache_tokens: 64,
            ..ROOMY
        };
        let mut engine = Engine::new(&model, None, limits).unwrap();
        let good = Request {
            max_tokens: 8,
            ..request(1)
        };
        let mut refused = |it: Request| engine.submit(it).unwrap_err().to_string();
        let check = |got: String, expected: &str| assert_eq!(got, expected);
        let sampled = |temperature, top_p, min_p| Decoding::Sample {
            temperature,
            truncation: Truncation {
                top_k: 0,
                top_p,
                min_p,
            },
        };
        check(
            refused(Request {
                prompt: Vec::new(),
                ..good.clone()
            }),
            "prompt: expected at least one token, got none",
        );
        check(
            refused(Request {
                prompt: vec![1, 9999],
                ..good.clone()
            }),
            "token 9999 at row 1: the vocabulary has 384",
        );
        check(
            refused(Request {
                max_tokens: 116,
                ..good.clone()
            }),
            "max_tokens: expected prompt and completion within 128 tokens, got a prompt of 14 and 116 more",
        );
        check(
            refused(Request {
                max_tokens: 64,
                ..good.clone()
            }),
            "max_tokens: expected a cache with room for 80 tokens, got one of 64",
        );
        check(
            refused(Request {
                decoding: sampled(0.0, 1.0, 0.0),
                ..good.clone()
            }),
            "temperature: expected a number above 0, got 0",
        );
        check(
            refused(Request {
                decoding: sampled(1.0, f32::NAN, 0.0),
                ..good.clone()
            }),
            "top_p: expected a number in (0, 1], got NaN",
        );
        check(
            refused(Request {
                decoding: sampled(1.0, 1.0, 1.5),
                ..good.clone()
            }),
            "min_p: expected a number in [0, 1], got 1.5",
        );
        check(
            refused(Request {
                text: true,
                ..good.clone()
            }),
            "stop: expected an engine with a tokenizer, got one without",
        );
        assert!(engine.submit(good).is_ok());
    }

    #[test]
    fn the_stated_memory_covers_the_cache_and_the_logits() {
        let model = model(1);
        let bytes = Engine::memory_bytes(&model, ROOMY);
        let cache = KvCache::<Cpu>::bytes(model.config(), ROOMY.cache_tokens);
        let logits = 2 * 64 * model.config().vocab_size * size_of::<f32>();
        assert!(bytes > cache + logits);
        let more = EngineLimits {
            cache_tokens: ROOMY.cache_tokens + 1600,
            ..ROOMY
        };
        let per_token = cache / ROOMY.cache_tokens;
        assert_eq!(Engine::memory_bytes(&model, more) - bytes, 1600 * per_token);
    }
}
