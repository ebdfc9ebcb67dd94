//! A teacher's traces: prompts with gold answers in, the same prompts with verified solutions out.
//!
//! Each prompt is sent k times, with the gold answer (the paper's prompt) or without. Every completion goes into a
//! journal next to the output; verdicts and choices are recomputed from it each time, so the rule, the grader or the
//! number of attempts may change between runs without new requests. The price: the journal holds every completion, also
//! the bad ones.

mod leak;
mod output;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hapo_core::{Refusal, RngStream};
use hapo_data::Dataset;
use hapo_run::{Journal, JournalFormat, OpenMode, Span};
use hapo_verify::Verdict;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::completions::{Completions, Piece, Progress, Summarise};
use crate::grading::{Judge, RawCompletion};
use crate::plan::{Plan, PromptForm};
pub use leak::{LEAKS, leak};
use rules::{Attempt, CUT, clean};
pub use rules::{Leaked, Length, Outcome, Prices, Rule, Rules};

/// Counts over the attempts there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    pub prompts: usize,
    /// Prompts that have a trace now.
    pub admitted: usize,
    /// Prompts whose every attempt is finished, or which need no more.
    pub finished: usize,
    pub attempts: usize,
    /// Finished attempts that were in the journal when the run started.
    pub resumed: usize,
    /// Correct attempts, leaked ones included.
    pub correct: usize,
    pub wrong: usize,
    pub unparsable: usize,
    pub truncated: usize,
    /// Correct ones beyond the length limit.
    pub too_long: usize,
    pub failed: usize,
    /// Correct ones that let on that the gold answer was in the prompt.
    pub leaked: usize,
    /// In all runs, retries among them.
    pub requests: u64,
    pub retries: u64,
    /// As far as tokens were counted.
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    /// Cost of the finished attempts; null without prices.
    pub cost: Option<f64>,
    /// Attempts whose cost is unknown because the server did not count tokens.
    pub uncounted: usize,
}

/// The judged attempts of a teacher. Their texts are in the journal alone.
pub struct Traces<'a> {
    rules: Rules<'a>,
    /// k: attempts at each prompt.
    attempts: u32,
    /// The prompts hold their gold answers.
    conditioned: bool,
    output: PathBuf,
    done: Vec<BTreeMap<u32, Attempt>>,
    resumed: usize,
    last_failure: Option<String>,
}

#[derive(Serialize, Deserialize)]
pub struct Line {
    prompt: usize,
    attempt: u32,
    #[serde(flatten)]
    completion: RawCompletion,
}

impl Summarise for Traces<'_> {
    type Line = Line;
    const FORMAT: JournalFormat = JournalFormat {
        name: "hapo_teacher_journal",
        version: 1,
        settings: "asked",
        first_line: "the head of a teacher's journal",
        line: "one finished attempt at one of the prompts",
        if_other: "choose another output, or --fresh to start afresh",
        if_changed: "use the settings it was started with, or another output, or --fresh to start afresh",
    };
    const STREAM: RngStream = RngStream::Generate;
    const TAKES_FAILURES: bool = true;

    fn settings(plan: &Plan) -> Value {
        let sampling = &plan.sampling;
        json!({
            "endpoint": sampling.endpoint, "model": sampling.model, "prompt": sampling.prompt.name(),
            "system": sampling.system, "temperature": sampling.sent("temperature"),
            "top_p": sampling.sent("top_p"), "max_tokens": sampling.sent("max_tokens"), "seed": sampling.seed, "extra": sampling.extra,
            "input": fingerprint(&plan.sets[0].dataset),
        })
    }

    fn read(&mut self, judges: &[Judge<'_>], line: Line, span: Span) -> Result<(), Refusal> {
        let Line { prompt, attempt, completion } = line;
        let prompts = self.done.len();
        if prompt >= prompts {
            let got = format!("an attempt at prompt {prompt} of {prompts}");
            let refusal = hapo_core::expected(Self::FORMAT.line).got(got);
            return Err(refusal.hint(Self::FORMAT.if_other));
        }
        let judged = self.judge(&judges[0], prompt, &completion, span)?;
        // An attempt that failed may have been made again.
        if judged.outcome != Outcome::Failed || !self.done[prompt].contains_key(&attempt) {
            self.done[prompt].insert(attempt, judged);
        }
        self.last_failure = completion.failed.or(self.last_failure.take());
        Ok(())
    }

    fn missing(&self, _: &Plan) -> Vec<Piece> {
        (0..self.done.len()).flat_map(|prompt| self.wanted(prompt)).collect()
    }

    fn progress(&self) -> Progress {
        let attempts = self.done.iter().flat_map(|done| done.range(..self.attempts));
        attempts.fold(Progress::default(), |at, attempt| at.and(attempt.1.outcome.progress()))
    }

    fn add(
        &mut self,
        judges: &[Judge<'_>],
        journal: Option<&mut Journal>,
        piece: Piece,
        completions: Vec<RawCompletion>,
    ) -> Result<(Progress, Option<Piece>), Refusal> {
        let journal = journal.expect("a teacher has a journal");
        let (prompt, mut progress) = (piece.problem, Progress::default());
        for (attempt, mut completion) in (piece.first..).zip(completions) {
            if let Some(thought) = completion.thought.take() {
                completion.text = Some(hapo_data::with_thought(&thought, completion.text()));
            }
            let line = Line { prompt, attempt, completion };
            let span = journal.append(&line)?;
            let judged = self.judge(&judges[0], prompt, &line.completion, span)?;
            progress = progress.and(judged.outcome.progress());
            self.done[prompt].insert(attempt, judged);
            self.last_failure = line.completion.failed.or(self.last_failure.take());
        }
        let one_by_one = self.rules.rule == Rule::FirstCorrect;
        let next = self.wanted(prompt).first().copied().filter(|_| one_by_one);
        Ok((progress, next))
    }
}

impl Traces<'_> {
    /// Judges an attempt. A prompt without the gold answer cannot leak it.
    fn judge(
        &self,
        judge: &Judge<'_>,
        prompt: usize,
        completion: &RawCompletion,
        span: Span,
    ) -> Result<Attempt, Refusal> {
        let (text, limit) = (completion.text.as_deref().map(clean), self.rules.length.as_ref());
        let length = match (text, limit) {
            (Some(text), Some(limit)) => (limit.tokens)(text)?,
            (text, _) => text.map_or(0, |text| text.chars().count()),
        };
        let ended = !completion.finish_reason.as_deref().is_some_and(|why| CUT.contains(&why));
        let judged = text.map(|text| judge.judge(prompt, text, ended)).transpose()?;
        let outcome = match judged.map(|judged| judged.map(|judgement| judgement.verdict)) {
            None => Outcome::Failed,
            Some(None) => Outcome::Truncated,
            Some(Some(Verdict::Correct)) if limit.is_some_and(|most| length > most.limit) => {
                Outcome::TooLong
            }
            Some(Some(Verdict::Correct)) => Outcome::Correct,
            Some(Some(Verdict::Wrong)) => Outcome::Wrong,
            Some(Some(Verdict::Unparsable(_))) => Outcome::Unparsable,
        };
        let problem = &judge.dataset.examples[prompt].problem;
        Ok(Attempt {
            outcome,
            leak: text.filter(|_| self.conditioned).and_then(|text| leak(text, problem)),
            length,
            prompt_tokens: completion.prompt_tokens,
            completion_tokens: completion.completion_tokens,
            requests: completion.requests,
            span,
        })
    }

    /// The attempts at a prompt that are missing and to be made now.
    fn wanted(&self, prompt: usize) -> Vec<Piece> {
        let done = &self.done[prompt];
        let missing = (0..self.attempts).filter(|attempt| !done.contains_key(attempt));
        let piece = |first| Piece { set: 0, problem: prompt, first, count: 1 };
        let mut pieces: Vec<Piece> = missing.map(piece).collect();
        if self.rules.rule == Rule::FirstCorrect {
            pieces.truncate(1);
            pieces.retain(|next| !done.range(..next.first).any(|it| self.rules.takes_first(it.1)));
        }
        pieces
    }

    fn chosen(&self, prompt: usize) -> Vec<u32> {
        self.rules.chosen(&self.done[prompt].range(..self.attempts))
    }

    fn summary(&self) -> Summary {
        let mut sum = Summary {
            prompts: self.done.len(),
            resumed: self.resumed,
            cost: self.rules.prices.map(|_| 0.0),
            ..Summary::default()
        };
        for prompt in 0..self.done.len() {
            sum.admitted += usize::from(!self.chosen(prompt).is_empty());
            sum.finished += usize::from(self.wanted(prompt).is_empty());
            for (_, attempt) in self.done[prompt].range(..self.attempts) {
                sum.attempts += 1;
                let count = match attempt.outcome {
                    Outcome::Correct => &mut sum.correct,
                    Outcome::Wrong => &mut sum.wrong,
                    Outcome::Unparsable => &mut sum.unparsable,
                    Outcome::Truncated => &mut sum.truncated,
                    Outcome::TooLong => &mut sum.too_long,
                    Outcome::Failed => &mut sum.failed,
                };
                *count += 1;
                let is_correct = attempt.outcome == Outcome::Correct;
                sum.leaked += usize::from(is_correct && attempt.leak.is_some());
                sum.requests += u64::from(attempt.requests);
                sum.retries += u64::from(attempt.requests.saturating_sub(1));
                sum.prompt_tokens += attempt.prompt_tokens.unwrap_or(0);
                sum.completion_tokens += attempt.completion_tokens.unwrap_or(0);
                if let (Some(prices), Some(total)) = (self.rules.prices, &mut sum.cost) {
                    match prices.cost(attempt) {
                        Some(cost) => *total += cost,
                        None => sum.uncounted += usize::from(attempt.outcome != Outcome::Failed),
                    }
                }
            }
        }
        sum
    }
}

impl<'a> Completions<'a, Traces<'a>> {
    /// A teacher's attempts at the prompts of the plan's only set, with those of the journal next to `output` (its name
    /// and `.journal`). Each prompt must be of one turn, as the output's rows are.
    pub fn of_teacher(
        plan: &'a Plan,
        output: &Path,
        rules: Rules<'a>,
        mode: OpenMode,
    ) -> Result<Self, Refusal> {
        let set = &plan.sets[0];
        let mut prompts = set.dataset.examples.iter().enumerate();
        if let Some((index, example)) = prompts.find(|prompt| !prompt.1.messages.is_empty()) {
            return Err(Refusal::input("a dialogue of several turns has no place in the output")
                .at(format!("row {}, id {}", index + 1, example.id))
                .hint("write its prompt as one problem, or remove the row"));
        }
        let traces = Traces {
            rules,
            attempts: set.completions as u32,
            conditioned: plan.sampling.prompt == PromptForm::Conditioned,
            output: output.to_owned(),
            done: vec![BTreeMap::new(); set.dataset.examples.len()],
            resumed: 0,
            last_failure: None,
        };
        let mut name = output.as_os_str().to_owned();
        name.push(".journal");
        let mut session = Self::begin(plan, traces, Some((Path::new(&name), mode)))?;
        session.summary.resumed = session.progress.completions;
        Ok(session)
    }

    /// Counts attempts that failed as not made.
    pub fn retrying_failed(mut self) -> Self {
        for attempts in &mut self.summary.done {
            attempts.retain(|_, attempt| attempt.outcome != Outcome::Failed);
        }
        self.progress = self.summary.progress();
        self.summary.resumed = self.progress.completions;
        self
    }

    /// Lines of the journal that could not be read: their attempts are made again.
    pub fn damaged_lines(&self) -> &[usize] {
        self.journal.as_ref().map_or(&[], |journal| &journal.damaged_lines)
    }

    pub fn journal(&self) -> &Path {
        self.journal.as_ref().map_or(Path::new(""), Journal::path)
    }

    /// Why the last attempt that failed did.
    pub fn last_failure(&self) -> Option<&str> {
        self.summary.last_failure.as_deref()
    }

    pub fn summary(&self) -> Summary {
        self.summary.summary()
    }
}

/// SHA-256 of the prompts: ids, problems and answers, in order.
fn fingerprint(dataset: &Dataset) -> String {
    let mut hash = Sha256::new();
    for example in &dataset.examples {
        for field in [&example.id, &example.problem, &example.answer] {
            hash.update((field.len() as u64).to_le_bytes());
            hash.update(field);
        }
    }
    hapo_core::hex(hash.finalize())
}
