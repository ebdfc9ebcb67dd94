//! Prompts, their completions so far, the grader's verdicts, and the choice.

mod output;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hapo_core::{Hint, Refusal, Remedy};
use hapo_data::{Dataset, Example};
use hapo_run::{Journal, OpenMode, Span};
use hapo_verify::{Gold, GoldError, Grader, Problem};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::journal::{Attempt, FORMAT, Line, Origin, WrittenLine};
use crate::judgement::{Judged, Leaked, Outcome, Rule, Rules, judge};
use crate::prompt_kind::PromptKind;

/// Counts over a session's attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Prompts.
    pub prompts: usize,
    /// Prompts that have a trace now.
    pub admitted: usize,
    /// Prompts whose every attempt is finished, or which need no more.
    pub finished: usize,
    /// Finished attempts.
    pub attempts: usize,
    /// Finished attempts that were in the journal when the run started.
    pub resumed: usize,
    /// Correct attempts, leaked ones included.
    pub correct: usize,
    /// Wrong ones.
    pub wrong: usize,
    /// Ones without a readable answer.
    pub unparsable: usize,
    /// Ones that were cut off.
    pub truncated: usize,
    /// Correct ones beyond the length limit.
    pub too_long: usize,
    /// Ones without a completion after all retries.
    pub failed: usize,
    /// Correct ones that let on that the gold answer was in the prompt.
    pub leaked: usize,
    /// Requests that were sent for the finished attempts, in all runs.
    pub requests: u64,
    /// Those of them that were retries after a fault.
    pub retries: u64,
    /// Tokens of prompts, as far as they were counted.
    pub prompt_tokens: u64,
    /// Tokens of completions, as far as they were counted.
    pub completion_tokens: u64,
    /// Cost of the finished attempts; null without prices.
    pub cost: Option<f64>,
    /// Attempts whose cost is unknown because the server did not count tokens.
    pub uncounted: usize,
}

/// A set of prompts with the attempts there are.
pub struct Session<'a> {
    dataset: &'a Dataset,
    golds: Vec<Gold>,
    rules: Rules<'a>,
    origin: Origin,
    output: PathBuf,
    journal: Journal,
    done: Vec<BTreeMap<u32, Judged>>,
    resumed: usize,
    /// Why the last attempt that failed did.
    pub last_failure: Option<String>,
}

impl<'a> Session<'a> {
    /// Opens the journal next to `output` (its name and `.journal`) and judges its completions.
    ///
    /// `origin.input` is set here.
    pub fn open(
        dataset: &'a Dataset,
        output: &Path,
        mut origin: Origin,
        rules: Rules<'a>,
        mode: OpenMode,
    ) -> Result<Self, Refusal> {
        let golds = golds_of(dataset, rules.grader)?;
        origin.input = fingerprint(dataset);
        let mut done: Vec<BTreeMap<u32, Judged>> = vec![BTreeMap::new(); golds.len()];
        let (mut last_failure, mut grading_failed) = (None, None);
        let mut name = output.as_os_str().to_owned();
        name.push(".journal");
        let settings = serde_json::to_value(&origin).expect("settings are plain data");
        let journal =
            Journal::open(Path::new(&name), &FORMAT, &settings, mode, |line: Line, span: Span| {
                let Line { prompt, attempt, it } = line;
                let (Some(gold), Some(done)) = (golds.get(prompt), done.get_mut(prompt)) else {
                    return Err(format!("one at prompt {prompt} of {}", golds.len()));
                };
                let problem = &dataset.examples[prompt].problem;
                let judged = judge(&it, gold, conditioned_on(&origin, problem), &rules, span);
                let judged = judged.inspect_err(|it| grading_failed = Some(it.clone()))?;
                last_failure = it.failed.or(last_failure.take());
                // An attempt that failed may have been made again.
                if judged.outcome != Outcome::Failed || !done.contains_key(&attempt) {
                    done.insert(attempt, judged);
                }
                Ok(())
            });
        if let Some(problem) = grading_failed {
            return Err(grader_failed(&problem));
        }
        let journal = journal.map_err(or_afresh)?;
        let mut session = Self {
            dataset,
            golds,
            rules,
            origin,
            output: output.to_owned(),
            journal,
            done,
            resumed: 0,
            last_failure,
        };
        session.resumed = session.summary().attempts;
        Ok(session)
    }

    /// Counts attempts that failed as not made.
    pub fn retrying_failed(mut self) -> Self {
        for attempts in &mut self.done {
            attempts.retain(|_, judged| judged.outcome != Outcome::Failed);
        }
        self.resumed = self.summary().attempts;
        self
    }

    /// The settings of the completions.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Lines of the journal that could not be read: their attempts are made again.
    pub fn damaged_lines(&self) -> &[usize] {
        &self.journal.damaged_lines
    }

    /// The prompts.
    pub fn dataset(&self) -> &'a Dataset {
        self.dataset
    }

    /// The journal's path.
    pub fn journal(&self) -> &Path {
        self.journal.path()
    }

    /// The user's turn for a prompt.
    pub fn question(&self, prompt: usize) -> String {
        let it = &self.dataset.examples[prompt];
        self.origin.prompt.render(&it.problem, &it.answer)
    }

    /// The attempts at a prompt that can be made now: all that are missing, or the next one where the rule stops at the
    /// first good trace.
    pub fn wanted(&self, prompt: usize) -> Vec<u32> {
        let done = &self.done[prompt];
        let mut missing = (0..self.rules.attempts).filter(|it| !done.contains_key(it));
        match self.rules.rule {
            Rule::ShortestCorrect | Rule::AllCorrect => missing.collect(),
            Rule::FirstCorrect => {
                let Some(next) = missing.next() else {
                    return Vec::new();
                };
                let satisfied = done.range(..next).any(|(_, it)| {
                    it.outcome == Outcome::Correct
                        && (it.leak.is_none() || self.rules.leaked == Leaked::Any)
                });
                if satisfied { Vec::new() } else { vec![next] }
            }
        }
    }

    /// The attempt to make once one at this prompt is finished, where the rule makes one after the other.
    pub(crate) fn follow_up(&self, prompt: usize) -> Option<u32> {
        match self.rules.rule {
            Rule::FirstCorrect => self.wanted(prompt).first().copied(),
            Rule::ShortestCorrect | Rule::AllCorrect => None,
        }
    }

    /// True if an attempt is finished.
    pub fn has(&self, prompt: usize, attempt: u32) -> bool {
        self.done[prompt].contains_key(&attempt)
    }

    /// Adds a finished attempt to the journal, and judges it.
    pub fn record(
        &mut self,
        prompt: usize,
        attempt: u32,
        it: &Attempt,
    ) -> Result<Outcome, Refusal> {
        let span = self.journal.append(&WrittenLine { prompt, attempt, it })?;
        let problem = &self.dataset.examples[prompt].problem;
        let gold = &self.golds[prompt];
        let judged = judge(it, gold, conditioned_on(&self.origin, problem), &self.rules, span)
            .map_err(|it| grader_failed(&it))?;
        let outcome = judged.outcome;
        self.done[prompt].insert(attempt, judged);
        if it.failed.is_some() {
            self.last_failure.clone_from(&it.failed);
        }
        Ok(outcome)
    }

    /// The chosen attempts at a prompt, best first.
    fn chosen(&self, prompt: usize) -> Vec<u32> {
        let correct = |leaked: bool| -> Vec<(u32, &Judged)> {
            self.done[prompt]
                .range(..self.rules.attempts)
                .filter(|(_, it)| it.outcome == Outcome::Correct)
                .filter(|(_, it)| leaked || it.leak.is_none())
                .map(|(attempt, it)| (*attempt, it))
                .collect()
        };
        let mut good = correct(self.rules.leaked == Leaked::Any);
        if good.is_empty() && self.rules.leaked == Leaked::Last {
            good = correct(true);
        }
        match self.rules.rule {
            Rule::AllCorrect => {}
            Rule::FirstCorrect => good.truncate(1),
            Rule::ShortestCorrect => {
                good.sort_by_key(|(attempt, it)| (it.length, *attempt));
                good.truncate(1);
            }
        }
        good.into_iter().map(|it| it.0).collect()
    }

    /// Counts over the attempts there are.
    pub fn summary(&self) -> Summary {
        let mut sum = Summary {
            prompts: self.golds.len(),
            resumed: self.resumed,
            cost: self.rules.prices.map(|_| 0.0),
            ..Summary::default()
        };
        for prompt in 0..self.golds.len() {
            sum.admitted += usize::from(!self.chosen(prompt).is_empty());
            sum.finished += usize::from(self.wanted(prompt).is_empty());
            for it in self.done[prompt].range(..self.rules.attempts).map(|it| it.1) {
                sum.attempts += 1;
                let count = match it.outcome {
                    Outcome::Correct => &mut sum.correct,
                    Outcome::Wrong => &mut sum.wrong,
                    Outcome::Unparsable => &mut sum.unparsable,
                    Outcome::Truncated => &mut sum.truncated,
                    Outcome::TooLong => &mut sum.too_long,
                    Outcome::Failed => &mut sum.failed,
                };
                *count += 1;
                sum.leaked += usize::from(it.outcome == Outcome::Correct && it.leak.is_some());
                sum.requests += u64::from(it.requests);
                sum.retries += u64::from(it.requests.saturating_sub(1));
                sum.prompt_tokens += it.prompt_tokens.unwrap_or(0);
                sum.completion_tokens += it.completion_tokens.unwrap_or(0);
                if let (Some(prices), Some(total)) = (self.rules.prices, &mut sum.cost) {
                    match prices.cost(it) {
                        Some(it) => *total += it,
                        None => sum.uncounted += usize::from(it.outcome != Outcome::Failed),
                    }
                }
            }
        }
        sum
    }

    /// Flushes the journal to the disk.
    pub fn flush(&mut self) -> Result<(), Refusal> {
        Ok(self.journal.flush()?)
    }
}

/// A program or a server that judges gave no judgement.
fn grader_failed(problem: &str) -> Refusal {
    Refusal::input(format!("the reward failed: {problem}"))
        .hint("what it printed is above; the same command resumes where it stopped")
}

/// A journal of other settings can be started afresh here.
fn or_afresh(error: impl Into<Refusal>) -> Refusal {
    let refusal = error.into();
    match refusal.how_to_mend() {
        Some(Hint::Remedy(Remedy::SameSettings)) => refusal.hint(Remedy::SameSettingsOrAfresh),
        _ => refusal,
    }
}

/// Reads the prompts for a grader. Each must be a problem of one turn, as the output's rows are.
fn golds_of(dataset: &Dataset, grader: &dyn Grader) -> Result<Vec<Gold>, Refusal> {
    let gold = |(number, it): (usize, &Example)| {
        let (gold, row, id) = (&it.answer, number + 1, &it.id);
        if !it.messages.is_empty() {
            return Err(Refusal::input("a dialogue of several turns has no place in the output")
                .at(format!("row {row}, id {id}"))
                .hint("write its prompt as one problem, or remove the row"));
        }
        gold_of(grader, it).map_err(|reason| {
            let problem = format!("the grader cannot read the gold answer `{gold}`: {reason}");
            let place = format!("row {row}, id {id}");
            Refusal::input(problem).at(place).hint("correct or remove the row")
        })
    };
    dataset.examples.iter().enumerate().map(gold).collect()
}

/// Reads an example for a grader.
pub fn gold_of(grader: &dyn Grader, example: &Example) -> Result<Gold, GoldError> {
    let golds: Vec<&str> = example.golds().collect();
    let row = example.fields.as_deref();
    Gold::of(grader, &Problem { text: &example.problem, golds: &golds, row })
}

/// SHA-256 of the questions: ids, problems and answers, in order.
fn fingerprint(dataset: &Dataset) -> String {
    let mut hash = Sha256::new();
    for it in &dataset.examples {
        for field in [&it.id, &it.problem, &it.answer] {
            hash.update((field.len() as u64).to_le_bytes());
            hash.update(field);
        }
    }
    hapo_core::hex(hash.finalize())
}

/// The problem, where the prompt has its gold answer.
fn conditioned_on<'p>(origin: &Origin, problem: &'p str) -> Option<&'p str> {
    (origin.prompt == PromptKind::Conditioned).then_some(problem)
}
