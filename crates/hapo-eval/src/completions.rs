//! Completions of problems from anywhere: a local model or an OpenAI-compatible server. They are graded, journalled and
//! counted as they come, so a killed command resumes where its journal ends.
//!
//! The scores of an evaluation and the traces of a teacher are two summaries of them.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant, SystemTime};

use futures_util::StreamExt;
use hapo_core::{CounterRng, PromptId, Refusal, RngCounter, RngStream, Rollout};
use hapo_kernels::Device;
use hapo_net::chat::Client;
use hapo_run::{Journal, JournalFormat, OpenMode, Span};
use hapo_sampler::{ChatFormat, Details, GroupRequest, InGroup, SampleSettings, Sampled, Watch};

use crate::grading::{Judge, RawCompletion};
use crate::plan::Plan;

/// Hints of records that go on; the command names its option in the place of "another output".
pub(crate) const OTHER_DATA: &str = "use the data it was begun with, or another output";
pub(crate) const OTHER_SETTINGS: &str = "use the settings it was started with, or another output";

/// Completions of one problem that are graded and journalled together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Piece {
    pub(crate) set: usize,
    pub(crate) problem: usize,
    /// The number of the first completion.
    pub(crate) first: u32,
    pub(crate) count: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub completions: usize,
    pub correct: usize,
    /// Ones without a text.
    pub failed: usize,
}

impl Progress {
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            completions: self.completions + other.completions,
            correct: self.correct + other.correct,
            failed: self.failed + other.failed,
        }
    }
}

/// What becomes of completions.
pub trait Summarise: Sized {
    type Line: serde::de::DeserializeOwned;
    const FORMAT: JournalFormat;
    /// Where the seeds of requests are drawn.
    const STREAM: RngStream;
    /// Whether there may be no completion; otherwise the first failure ends the command.
    const TAKES_FAILURES: bool;
    /// Whether there are gold answers to read.
    const GRADES: bool = true;

    /// The settings that a journal must share to be resumed.
    fn settings(plan: &Plan) -> serde_json::Value;

    fn read(&mut self, judges: &[Judge<'_>], line: Self::Line, span: Span) -> Result<(), Refusal>;

    /// What is missing, in the order in which it is asked for.
    fn missing(&self, plan: &Plan) -> Vec<Piece>;

    fn progress(&self) -> Progress;

    /// Grades and journals a piece; returns its part of the progress, and the piece that is wanted because of it.
    fn add(
        &mut self,
        judges: &[Judge<'_>],
        journal: Option<&mut Journal>,
        piece: Piece,
        completions: Vec<RawCompletion>,
    ) -> Result<(Progress, Option<Piece>), Refusal>;
}

/// Completions that are wanted, and the summary of those there are.
pub struct Completions<'a, S> {
    pub(crate) plan: &'a Plan,
    pub(crate) judges: Vec<Judge<'a>>,
    pub(crate) journal: Option<Journal>,
    pub(crate) summary: S,
    pub(crate) progress: Progress,
    observer: &'a dyn Fn(Progress),
}

impl<'a, S: Summarise> Completions<'a, S> {
    pub(crate) fn begin(
        plan: &'a Plan,
        mut summary: S,
        journal: Option<(&std::path::Path, OpenMode)>,
    ) -> Result<Self, Refusal> {
        let other = plan.other.as_ref().map(|grader| grader as &dyn hapo_verify::Grader);
        let graded = plan.sets.iter().filter(|_| S::GRADES).map(|set| {
            let judge = Judge::new(&set.dataset, &plan.grader, other, plan.truncated);
            judge.map_err(
                |refusal| if set.name.is_empty() { refusal } else { refusal.at(&set.name) },
            )
        });
        let judges: Vec<Judge<'a>> = graded.collect::<Result<_, _>>()?;
        let mut refused = None;
        let opened = journal.map(|(path, mode)| {
            Journal::open(path, &S::FORMAT, &S::settings(plan), mode, |line, span| {
                summary.read(&judges, line, span).map_err(|refusal| {
                    refused = Some(refusal.at(path.display()));
                    String::new()
                })
            })
        });
        if let Some(refusal) = refused {
            return Err(refusal);
        }
        let journal = opened.transpose()?;
        let progress = summary.progress();
        Ok(Self { plan, judges, journal, summary, progress, observer: &|_| {} })
    }

    pub fn observed(self, observer: &'a dyn Fn(Progress)) -> Self {
        Self { observer, ..self }
    }

    pub(crate) fn missing(&self) -> Vec<Piece> {
        self.summary.missing(self.plan)
    }

    /// Grades, journals and counts a piece; returns the one that is wanted because of it.
    pub(crate) fn add(
        &mut self,
        piece: Piece,
        completions: Vec<RawCompletion>,
    ) -> Result<Option<Piece>, Refusal> {
        let journal = self.journal.as_mut();
        let (added, next) = self.summary.add(&self.judges, journal, piece, completions)?;
        self.progress = self.progress.and(added);
        (self.observer)(self.progress);
        Ok(next)
    }

    pub fn sample<D: Device>(&mut self, model: LocalModel<'_, D>) -> Result<(), Refusal> {
        const FLUSH_EVERY: Duration = Duration::from_secs(1);
        let missing = self.missing();
        let mut flushed = Instant::now();
        for pieces in missing.chunk_by(|one, next| one.set == next.set) {
            model.sample(self.plan, pieces, S::STREAM, |piece, completions| {
                self.add(piece, completions)?;
                if flushed.elapsed() >= FLUSH_EVERY {
                    self.flush()?;
                    flushed = Instant::now();
                }
                Ok(())
            })?;
            self.flush()?;
        }
        Ok(())
    }

    pub fn flush(&mut self) -> Result<(), Refusal> {
        self.journal.as_mut().map_or(Ok(()), Journal::flush)
    }

    /// Requests what is missing from a server, as many completions at once as the client allows, until `stop`. Each
    /// piece is journalled before the next request starts, so at most what is in flight is lost.
    pub async fn request(
        &mut self,
        client: &Client,
        stop: impl Future<Output = ()>,
    ) -> Result<(), Refusal> {
        let requested = self.request_all(client, stop).await;
        let flushed = self.flush();
        requested.and(flushed)
    }

    async fn request_all(
        &mut self,
        client: &Client,
        stop: impl Future<Output = ()>,
    ) -> Result<(), Refusal> {
        let (plan, concurrency) = (self.plan, client.retry_policy().concurrency.max(1));
        let each =
            |piece: Piece| (piece.first..).take(piece.count as usize).map(move |n| (piece, n));
        let mut queue: VecDeque<(Piece, u32)> = self.missing().into_iter().flat_map(each).collect();
        let wanted = self.progress.completions + queue.len();
        let mut incomplete: BTreeMap<Piece, BTreeMap<u32, RawCompletion>> = BTreeMap::new();
        let (mut in_flight, mut failures) = (futures_util::stream::FuturesUnordered::new(), 0);
        tokio::pin!(stop);
        loop {
            while in_flight.len() < concurrency
                && let Some((piece, number)) = queue.pop_front()
            {
                in_flight.push(ask(client, plan, S::STREAM, piece, number));
            }
            let next = tokio::select! {
                biased;
                () = &mut stop => return Err(self.stopped(wanted)),
                asked = in_flight.next() => asked,
            };
            let Some(asked) = next else { return Ok(()) };
            let (piece, number, completion) = asked?;
            let given_up = completion.failed.clone().filter(|_| completion.given_up);
            if let Some(reason) = completion.failed.as_ref().filter(|_| !S::TAKES_FAILURES) {
                let asked =
                    format!("problem {} after {} requests", piece.problem, completion.requests);
                let failed = format!("{} has no answer for {asked}: {reason}", client.address());
                return Err(Refusal::machine(failed).hint(
                    "see what the server says; with --out, the same command resumes where it stopped",
                ));
            }
            let of_piece = incomplete.entry(piece).or_default();
            of_piece.insert(number, completion);
            if of_piece.len() == piece.count as usize {
                let completions = incomplete.remove(&piece).unwrap_or_default();
                if let Some(next) = self.add(piece, completions.into_values().collect())? {
                    queue.push_front((next, next.first));
                }
            }
            let Some(reason) = given_up else {
                failures = 0;
                continue;
            };
            failures += 1;
            if failures >= (2 * concurrency).max(8) {
                let failed =
                    format!("{failures} attempts failed in a row, the last with: {reason}");
                let down = format!("{} does not answer: {failed}", client.address());
                return Err(Refusal::machine(down).hint("once it is up again, add --retry-failed: it resumes where it stopped and retries the failed attempts"));
            }
        }
    }

    fn stopped(&self, wanted: usize) -> Refusal {
        let far = format!("stopped; {} of {wanted} attempts are", self.progress.completions);
        let place = self.journal.as_ref().map(|journal| journal.path().display().to_string());
        let far = format!("{far} in {}", place.unwrap_or_else(|| "no journal".to_owned()));
        Refusal::machine(far).hint("the same command resumes where it stopped")
    }
}

async fn ask(
    client: &Client,
    plan: &Plan,
    stream: RngStream,
    piece: Piece,
    number: u32,
) -> Result<(Piece, u32, RawCompletion), Refusal> {
    let sampling = &plan.sampling;
    let example = &plan.sets[piece.set].dataset.examples[piece.problem];
    let counter = RngCounter {
        step: piece.set as u64,
        prompt: piece.problem as u64,
        rollout: u64::from(number),
        position: u64::MAX,
    };
    // Servers take 31 bits.
    let seed = CounterRng::new(sampling.seed, stream, counter).word() >> 33;
    let started = Instant::now();
    let exchange = client.ask(&sampling.request(example, seed), seed).await?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let mut completion = RawCompletion {
        requests: exchange.requests,
        milliseconds: started.elapsed().as_millis() as u64,
        at: now.unwrap_or(Duration::ZERO).as_secs(),
        ..RawCompletion::default()
    };
    match exchange.reply {
        Ok(reply) => {
            completion.text = Some(reply.text);
            completion.thought = reply.thought;
            completion.finish_reason = reply.finish_reason;
            completion.served_by = reply.model;
            completion.prompt_tokens = reply.prompt_tokens;
            completion.completion_tokens = reply.completion_tokens;
        }
        Err(reason) => {
            completion.given_up = exchange.retried_out;
            completion.failed = Some(reason);
        }
    }
    Ok((piece, number, completion))
}

#[derive(Clone, Debug)]
pub struct LocalModel<'a, D: Device> {
    pub model: &'a hapo_model::Model<D>,
    pub chat_format: &'a ChatFormat,
}

impl<D: Device> Copy for LocalModel<'_, D> {}

impl<D: Device> LocalModel<'_, D> {
    pub(crate) fn prompts(self, dataset: &hapo_data::Dataset) -> Result<Vec<Vec<u32>>, Refusal> {
        dataset.examples.iter().map(|problem| self.chat_format.prompt_of(problem)).collect()
    }

    pub fn longest_prompt(self, plan: &Plan) -> Result<usize, Refusal> {
        let mut longest = 0;
        for set in &plan.sets {
            let prompts = self.prompts(&set.dataset)?;
            longest = prompts.iter().map(Vec::len).fold(longest, usize::max);
        }
        Ok(longest)
    }

    /// Samples whole pieces of one set, and hands over each as soon as its completions are there. A completion depends
    /// on its problem's index and its own only.
    pub(crate) fn sample(
        self,
        plan: &Plan,
        pieces: &[Piece],
        rng_stream: RngStream,
        mut finished: impl FnMut(Piece, Vec<RawCompletion>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let Some(set) = pieces.first().map(|piece| &plan.sets[piece.set]) else { return Ok(()) };
        let Self { model, chat_format } = self;
        let prompts = self.prompts(&set.dataset)?;
        let request = |piece: &Piece| {
            let prompt = PromptId(piece.problem as u64);
            GroupRequest::new(prompt, &prompts[piece.problem], piece.count as usize)
        };
        let requests: Vec<GroupRequest<'_>> = pieces.iter().map(request).collect();
        let sampling = SampleSettings {
            decoding: plan.decoding()?,
            stop: &chat_format.stop,
            max_new_tokens: plan.max_tokens(),
            max_sequences: plan.local.max_sequences,
            kv_memory: plan.local.kv_memory,
            usable_vocab: chat_format.tokenizer.vocab_size(),
            seed: plan.sampling.seed,
            rng_stream,
            step: set.draws,
        };
        let stop_strings = &plan.local.stop[..];
        let raw = |(rollout, details): (&Rollout, &Details)| {
            let text = chat_format.text_before(&rollout.tokens, stop_strings)?;
            let whole = RawCompletion::local(text, rollout.tokens.len(), rollout.ended);
            Ok(RawCompletion { drawn: Some((rollout.clone(), details.clone())), ..whole })
        };
        let watch = Watch { tokenizer: &chat_format.tokenizer, stop_strings, progress: &|_| () };
        let watch = (!stop_strings.is_empty()).then_some(watch);
        let finished = |index: usize, sampled: Sampled| {
            let completions = sampled.completions().map(raw).collect::<Result<_, Refusal>>()?;
            finished(pieces[index], completions)
        };
        let sampled = hapo_sampler::sample_each(model, &requests, &sampling, watch, finished);
        sampled.map_err(|refusal| match refusal.cause::<InGroup>() {
            Some(InGroup { index, source }) => {
                let id = &set.dataset.examples[pieces[*index].problem].id;
                Refusal::input(format!("problem {id}: {source}"))
                    .hint("remove the row, or lower --max-tokens")
            }
            None => refusal,
        })
    }
}
