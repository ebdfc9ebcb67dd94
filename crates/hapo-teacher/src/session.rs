//! Prompts, the answers there are, what the grader says of them, and which is chosen.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use hapo_data::Dataset;
use hapo_verify::{Gold, Grader, Verdict};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::journal::{Attempt, Begin, Journal, Origin, Spot};
use crate::leak::leak;

/// How a teacher is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptKind {
    /// With the answer told (the paper, appendix C).
    Conditioned,
    /// The problem, and to put the final answer within `\boxed{}`.
    Plain,
    /// The problem alone, for a model whose own template asks for the rest.
    Bare,
}

impl PromptKind {
    /// The text of the user's turn.
    pub fn render(self, problem: &str, answer: &str) -> String {
        match self {
            PromptKind::Conditioned => hapo_data::teacher_prompt(problem, answer),
            PromptKind::Plain => format!(
                "{problem}\n\nPlease reason step by step, and put your final answer within \\boxed{{}}."
            ),
            PromptKind::Bare => problem.to_owned(),
        }
    }
}

/// Which of the good traces are taken. Ties go to the earlier attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The shortest, in tokens where a tokenizer is given, else in characters.
    ShortestCorrect,
    /// The first; later attempts are not asked once there is one.
    FirstCorrect,
    /// All, in the order of the attempts.
    AllCorrect,
}

/// What becomes of correct traces that let on that the answer was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaked {
    /// Chosen only when no other is correct.
    Last,
    /// Never chosen.
    Never,
    /// Chosen like any other.
    Any,
}

/// Price of a million tokens, in whatever currency.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prices {
    /// Of the question.
    pub input: f64,
    /// Of the answer.
    pub output: f64,
}

impl Prices {
    fn cost(self, it: &Judged) -> Option<f64> {
        let (input, output) = (it.prompt_tokens?, it.completion_tokens?);
        Some((input as f64 * self.input + output as f64 * self.output) / 1e6)
    }
}

/// How long a trace may be (D9).
pub struct Length<'a> {
    /// Most tokens, the end token included.
    pub limit: usize,
    /// Tokens of a trace, the end token included (D10).
    pub tokens: &'a dyn Fn(&str) -> usize,
}

/// How answers are judged and chosen. None of it shapes the answers, so all of it may change between runs.
pub struct Rules<'a> {
    /// k: attempts at each prompt.
    pub attempts: u32,
    /// Which are chosen.
    pub rule: Rule,
    /// What becomes of leaked ones.
    pub leaked: Leaked,
    /// Who judges.
    pub grader: &'a dyn Grader,
    /// How long a trace may be, if there is a tokenizer to measure it.
    pub length: Option<Length<'a>>,
    /// What tokens cost.
    pub prices: Option<Prices>,
}

/// What became of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Correct, whole, short enough.
    Correct,
    /// An answer that is not the gold.
    Wrong,
    /// No answer that can be read.
    Unparsable,
    /// Cut off at the server's limit, whatever it says.
    Truncated,
    /// Correct and longer than the limit (D9).
    TooLong,
    /// No answer after all retries.
    Failed,
}

/// An attempt as it is kept in memory: everything but its text.
#[derive(Clone, Debug)]
struct Judged {
    outcome: Outcome,
    leak: Option<&'static str>,
    /// Tokens or characters.
    length: usize,
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    requests: u32,
    spot: Spot,
}

/// Counts over a session's answers.
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
    /// Finished attempts that lay in the journal when the run began.
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
    /// Ones without an answer after all retries.
    pub failed: usize,
    /// Correct ones that let on that the answer was told.
    pub leaked: usize,
    /// Requests that were sent for the finished attempts, in all runs.
    pub requests: u64,
    /// Those of them that asked again after a fault.
    pub retries: u64,
    /// Tokens of questions, as far as they were counted.
    pub prompt_tokens: u64,
    /// Tokens of answers, as far as they were counted.
    pub completion_tokens: u64,
    /// Cost of the finished attempts; null without prices.
    pub cost: Option<f64>,
    /// Attempts whose cost is unknown because the server did not count tokens.
    pub uncounted: usize,
}

/// A set of prompts with the answers there are.
pub struct Session<'a> {
    dataset: &'a Dataset,
    golds: Vec<Gold>,
    rules: Rules<'a>,
    origin: Origin,
    output: PathBuf,
    journal: Journal,
    done: Vec<BTreeMap<u32, Judged>>,
    resumed: usize,
}

impl<'a> Session<'a> {
    /// Opens the journal beside `output` (its name and `.journal`) and judges what lies in it.
    ///
    /// `origin.input` is set here. With `retry_failed`, attempts that failed count as not made.
    ///
    /// # Errors
    /// [`Error::Gold`] for a gold that the grader cannot read; [`Error::Settings`], [`Error::Journal`], [`Error::Busy`],
    /// [`Error::NoJournal`] and [`Error::Io`] for the journal.
    pub fn open(
        dataset: &'a Dataset,
        output: &Path,
        mut origin: Origin,
        rules: Rules<'a>,
        begin: Begin,
        retry_failed: bool,
    ) -> Result<Self, Error> {
        let golds: Vec<Gold> = dataset
            .examples
            .iter()
            .enumerate()
            .map(|(number, it)| {
                Gold::any(rules.grader, it.golds()).map_err(|reason| Error::Gold {
                    row: number + 1,
                    id: it.id.clone(),
                    gold: it.answer.clone(),
                    reason,
                })
            })
            .collect::<Result<_, _>>()?;
        origin.input = fingerprint(dataset);
        let mut done: Vec<BTreeMap<u32, Judged>> = vec![BTreeMap::new(); golds.len()];
        let mut name = output.as_os_str().to_owned();
        name.push(".journal");
        let journal = Journal::open(
            Path::new(&name),
            &origin,
            begin,
            |prompt, attempt, it, spot| {
                let (Some(gold), Some(done)) = (golds.get(prompt), done.get_mut(prompt)) else {
                    return Err(format!("one at prompt {prompt} of {}", golds.len()));
                };
                let problem = &dataset.examples[prompt].problem;
                let judged = judge(&it, gold, problem, origin.prompt, &rules, spot);
                // An attempt that failed may have been made again.
                if judged.outcome != Outcome::Failed || !done.contains_key(&attempt) {
                    done.insert(attempt, judged);
                }
                Ok(())
            },
        )?;
        if retry_failed {
            for it in &mut done {
                it.retain(|_, it| it.outcome != Outcome::Failed);
            }
        }
        let mut session = Self {
            dataset,
            golds,
            rules,
            origin,
            output: output.to_owned(),
            journal,
            done,
            resumed: 0,
        };
        session.resumed = session.summary().attempts;
        Ok(session)
    }

    /// What the answers belong to.
    pub fn origin(&self) -> &Origin {
        &self.origin
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

    /// The attempt to make once one at this prompt is finished, where the rule asks one after the other.
    pub(crate) fn follow_up(&self, prompt: usize) -> Option<u32> {
        match self.rules.rule {
            Rule::FirstCorrect => self.wanted(prompt).first().copied(),
            Rule::ShortestCorrect | Rule::AllCorrect => None,
        }
    }

    /// Whether an attempt is finished.
    pub fn has(&self, prompt: usize, attempt: u32) -> bool {
        self.done[prompt].contains_key(&attempt)
    }

    /// Keeps a finished attempt: in the journal, and judged.
    ///
    /// # Errors
    /// [`Error::Io`] when the journal cannot be written.
    pub fn record(&mut self, prompt: usize, attempt: u32, it: &Attempt) -> Result<Outcome, Error> {
        let spot = self.journal.append(prompt, attempt, it)?;
        let problem = &self.dataset.examples[prompt].problem;
        let gold = &self.golds[prompt];
        let judged = judge(it, gold, problem, self.origin.prompt, &self.rules, spot);
        let outcome = judged.outcome;
        self.done[prompt].insert(attempt, judged);
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
            for it in self.done[prompt]
                .range(..self.rules.attempts)
                .map(|it| it.1)
            {
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
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn flush(&mut self) -> Result<(), Error> {
        self.journal.flush()
    }

    /// Writes the output whole, in the order of the prompts: each row with its new traces first and those it had after
    /// them. `keep_all` keeps rows that have no new trace. Nothing in it depends on the time or on what had to be retried.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write(&mut self, keep_all: bool) -> Result<(), Error> {
        self.journal.flush()?;
        let mut aside = self.output.as_os_str().to_owned();
        aside.push(".tmp");
        let aside = PathBuf::from(aside);
        let output = self.output.clone();
        let io = |source| Error::Io {
            action: "write",
            path: output.clone(),
            source,
        };
        let written = File::create(&aside)
            .map_err(io)
            .and_then(|file| {
                self.write_rows(&mut BufWriter::new(&file), keep_all, io)?;
                Ok(file)
            })
            .and_then(|file| file.sync_all().map_err(io))
            .and_then(|()| std::fs::rename(&aside, &output).map_err(io));
        if written.is_err() {
            // A full disk needs the room back; the first cause is the one to report.
            let _ = std::fs::remove_file(&aside);
        }
        written?;
        match output.parent().filter(|it| !it.as_os_str().is_empty()) {
            Some(folder) => File::open(folder).and_then(|it| it.sync_all()).map_err(io),
            None => Ok(()),
        }
    }

    fn write_rows(
        &mut self,
        writer: &mut impl Write,
        keep_all: bool,
        io: impl Fn(std::io::Error) -> Error,
    ) -> Result<(), Error> {
        for prompt in 0..self.golds.len() {
            let chosen = self.chosen(prompt);
            if chosen.is_empty() && !keep_all {
                continue;
            }
            let mut example = self.dataset.examples[prompt].clone();
            let before = std::mem::take(&mut example.teachers);
            for attempt in &chosen {
                let spot = self.done[prompt][attempt].spot;
                let text = self.journal.read(spot)?.text.unwrap_or_default();
                example.teachers.push(clean(&text).to_owned());
            }
            for it in before {
                if !example.teachers.contains(&it) {
                    example.teachers.push(it);
                }
            }
            let mut row = Vec::new();
            hapo_data::write_row(&mut row, &example).map_err(&io)?;
            let provenance = serde_json::to_string(&self.provenance(prompt, &chosen))
                .expect("provenance is plain data");
            // The row ends in a brace and a line break; the provenance is one more field.
            let end = row
                .iter()
                .rposition(|it| *it == b'}')
                .expect("a row is an object");
            row.truncate(end);
            writeln!(row, ",\"provenance\":{provenance}}}").map_err(&io)?;
            writer.write_all(&row).map_err(&io)?;
        }
        writer.flush().map_err(&io)
    }

    fn provenance(&self, prompt: usize, chosen: &[u32]) -> Provenance<'_> {
        let done = &self.done[prompt];
        Provenance {
            endpoint: &self.origin.endpoint,
            model: &self.origin.model,
            prompt: self.origin.prompt,
            system: self.origin.system.as_deref(),
            temperature: self.origin.temperature,
            top_p: self.origin.top_p,
            max_tokens: self.origin.max_tokens,
            seed: self.origin.seed,
            outcomes: done
                .range(..self.rules.attempts)
                .map(|it| it.1.outcome)
                .collect(),
            traces: chosen
                .iter()
                .map(|attempt| {
                    let it = &done[attempt];
                    Trace {
                        attempt: *attempt,
                        leak: it.leak,
                        prompt_tokens: it.prompt_tokens,
                        completion_tokens: it.completion_tokens,
                        cost: self.rules.prices.and_then(|prices| prices.cost(it)),
                    }
                })
                .collect(),
        }
    }
}

/// Where a row's traces come from.
#[derive(Serialize)]
struct Provenance<'a> {
    endpoint: &'a str,
    model: &'a str,
    prompt: PromptKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<&'a str>,
    temperature: f64,
    top_p: f64,
    max_tokens: Option<u64>,
    seed: u64,
    outcomes: Vec<Outcome>,
    traces: Vec<Trace>,
}

#[derive(Serialize)]
struct Trace {
    attempt: u32,
    leak: Option<&'static str>,
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<f64>,
}

fn judge(
    it: &Attempt,
    gold: &Gold,
    problem: &str,
    prompt: PromptKind,
    rules: &Rules<'_>,
    spot: Spot,
) -> Judged {
    let text = it.text.as_deref().map(clean);
    let length = text.map_or(0, |text| match &rules.length {
        Some(it) => (it.tokens)(text),
        None => text.chars().count(),
    });
    let outcome = match text {
        None => Outcome::Failed,
        Some(_) if it.finish_reason.as_deref() == Some("length") => Outcome::Truncated,
        Some(text) => match gold.judge(text).verdict {
            Verdict::Correct if rules.length.as_ref().is_some_and(|it| length > it.limit) => {
                Outcome::TooLong
            }
            Verdict::Correct => Outcome::Correct,
            Verdict::Wrong => Outcome::Wrong,
            Verdict::Unparsable(_) => Outcome::Unparsable,
        },
    };
    Judged {
        outcome,
        // Who was not told the answer cannot let on that it was.
        leak: text
            .filter(|_| prompt == PromptKind::Conditioned)
            .and_then(|it| leak(it, problem)),
        length,
        prompt_tokens: it.prompt_tokens,
        completion_tokens: it.completion_tokens,
        requests: it.requests,
        spot,
    }
}

/// A trace without white space around it and without the end token that some servers leave in: the template adds its
/// own (D10).
fn clean(text: &str) -> &str {
    const ENDS: [&str; 5] = [
        "<|im_end|>",
        "<|endoftext|>",
        "<|eot_id|>",
        "<|return|>",
        "</s>",
    ];
    let mut text = text.trim();
    while let Some(it) = ENDS.iter().find_map(|it| text.strip_suffix(it)) {
        text = it.trim_end();
    }
    text
}

/// SHA-256 of what is asked: ids, problems and answers, in order.
fn fingerprint(dataset: &Dataset) -> String {
    let mut hash = Sha256::new();
    for it in &dataset.examples {
        for field in [&it.id, &it.problem, &it.answer] {
            hash.update((field.len() as u64).to_le_bytes());
            hash.update(field);
        }
    }
    hash.finalize()
        .iter()
        .fold(String::with_capacity(64), |hex, it| {
            hex + &format!("{it:02x}")
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapo_data::Example;

    fn dataset() -> Dataset {
        let example = |id: &str, answer: &str| Example {
            id: id.into(),
            problem: format!("What is {id}?"),
            answer: answer.into(),
            ..Example::default()
        };
        Dataset {
            examples: vec![example("a", "4"), example("b", "7")],
        }
    }

    fn origin(temperature: f64) -> Origin {
        Origin {
            endpoint: "http://h/v1/chat/completions".into(),
            model: "m".into(),
            prompt: PromptKind::Conditioned,
            system: None,
            temperature,
            top_p: 1.0,
            max_tokens: None,
            seed: 0,
            extra: serde_json::Map::new(),
            input: String::new(),
        }
    }

    fn rules(rule: Rule, leaked: Leaked) -> Rules<'static> {
        Rules {
            attempts: 3,
            rule,
            leaked,
            grader: &hapo_verify::MATH,
            length: None,
            prices: Some(Prices {
                input: 1.0,
                output: 10.0,
            }),
        }
    }

    fn said(text: &str) -> Attempt {
        Attempt {
            text: Some(text.into()),
            failed: None,
            finish_reason: Some("stop".into()),
            served_by: None,
            prompt_tokens: Some(100),
            completion_tokens: Some(10),
            requests: 2,
            milliseconds: 5,
            at: 1,
        }
    }

    fn open<'a>(
        dataset: &'a Dataset,
        output: &Path,
        rules: Rules<'a>,
    ) -> Result<Session<'a>, Error> {
        Session::open(
            dataset,
            output,
            origin(0.5),
            rules,
            Begin::ResumeOrStart,
            false,
        )
    }

    /// Attempts 0, 1, 2 at prompt 0, then what each rule takes from the same journal.
    fn check(texts: [&str; 3], rule: Rule, leaked: Leaked, expected: &[u32]) {
        let folder = tempfile::tempdir().unwrap();
        let (data, output) = (dataset(), folder.path().join("out.jsonl"));
        let mut session = open(&data, &output, rules(rule, leaked)).unwrap();
        for (attempt, text) in (0..).zip(texts) {
            session.record(0, attempt, &said(text)).unwrap();
        }
        assert_eq!(session.chosen(0), expected, "{texts:?} {rule:?} {leaked:?}");
    }

    #[test]
    fn rules_choose_among_correct_traces_and_leaked_ones_come_last() {
        let texts = [
            "long way to \\boxed{4}",
            "the given answer \\boxed{4}",
            "so \\boxed{4}",
        ];
        check(texts, Rule::ShortestCorrect, Leaked::Last, &[2]);
        check(texts, Rule::FirstCorrect, Leaked::Last, &[0]);
        check(texts, Rule::AllCorrect, Leaked::Last, &[0, 2]);
        check(texts, Rule::AllCorrect, Leaked::Any, &[0, 1, 2]);
        let only_leaked = ["as provided \\boxed{4}", "\\boxed{5}", "none"];
        check(only_leaked, Rule::ShortestCorrect, Leaked::Last, &[0]);
        check(only_leaked, Rule::ShortestCorrect, Leaked::Any, &[0]);
        check(only_leaked, Rule::ShortestCorrect, Leaked::Never, &[]);
        let equal = ["\\boxed{4} a", "\\boxed{4} b", "\\boxed{4} c"];
        check(equal, Rule::ShortestCorrect, Leaked::Last, &[0]);
    }

    #[test]
    fn first_correct_asks_one_at_a_time_and_stops() {
        let folder = tempfile::tempdir().unwrap();
        let (data, output) = (dataset(), folder.path().join("out.jsonl"));
        let mut session = open(&data, &output, rules(Rule::FirstCorrect, Leaked::Last)).unwrap();
        assert_eq!(session.wanted(0), [0]);
        session
            .record(0, 0, &said("as provided \\boxed{4}"))
            .unwrap();
        assert_eq!(session.wanted(0), [1]);
        session.record(0, 1, &said("\\boxed{4}")).unwrap();
        assert_eq!(session.wanted(0), [0_u32; 0]);
        assert_eq!(session.wanted(1), [0]);
        drop(session);
        // The same journal under another rule lacks the third attempt.
        let session = open(&data, &output, rules(Rule::ShortestCorrect, Leaked::Last)).unwrap();
        assert_eq!(session.wanted(0), [2]);
        assert_eq!(session.wanted(1), [0, 1, 2]);
    }

    #[test]
    fn cut_long_failed_and_ended_traces() {
        let folder = tempfile::tempdir().unwrap();
        let (data, output) = (dataset(), folder.path().join("out.jsonl"));
        let tokens = |text: &str| text.split_whitespace().count() + 1;
        let limited = Rules {
            length: Some(Length {
                limit: 4,
                tokens: &tokens,
            }),
            ..rules(Rule::AllCorrect, Leaked::Last)
        };
        let mut session = open(&data, &output, limited).unwrap();
        let cut = Attempt {
            finish_reason: Some("length".into()),
            ..said("\\boxed{4}")
        };
        let failed = Attempt {
            text: None,
            failed: Some("status 500".into()),
            prompt_tokens: None,
            ..said("")
        };
        assert_eq!(session.record(0, 0, &cut).unwrap(), Outcome::Truncated);
        assert_eq!(session.record(0, 1, &failed).unwrap(), Outcome::Failed);
        // Three words and the end token fit; four do not.
        let long = said("one two three \\boxed{4}");
        assert_eq!(session.record(0, 2, &long).unwrap(), Outcome::TooLong);
        let fits = said(" one two \\boxed{7}<|im_end|>\n<|endoftext|> ");
        assert_eq!(session.record(1, 0, &fits).unwrap(), Outcome::Correct);
        let it = session.summary();
        assert_eq!(
            (
                it.truncated,
                it.failed,
                it.too_long,
                it.correct,
                it.admitted
            ),
            (1, 1, 1, 1, 1)
        );
        assert_eq!((it.requests, it.retries, it.uncounted), (8, 4, 0));
        // Three attempts were counted: 100 tokens at 1 and 10 at 10, per million.
        assert!((it.cost.unwrap() - 3.0 * 200.0 / 1e6).abs() < 1e-15);
        session.write(true).unwrap();
        let loaded = hapo_data::load(&output).unwrap();
        assert_eq!(loaded.bad_row_count, 0);
        assert_eq!(loaded.dataset.examples[0].teachers, [""; 0]);
        assert_eq!(loaded.dataset.examples[1].teachers, ["one two \\boxed{7}"]);
        session.write(false).unwrap();
        assert_eq!(hapo_data::load(&output).unwrap().dataset.examples.len(), 1);
    }

    #[test]
    fn traces_of_the_input_follow_the_new_ones() {
        let folder = tempfile::tempdir().unwrap();
        let (mut data, output) = (dataset(), folder.path().join("out.jsonl"));
        data.examples[0].teachers = vec!["\\boxed{4}".into(), "old \\boxed{4}".into()];
        let mut session = open(&data, &output, rules(Rule::FirstCorrect, Leaked::Last)).unwrap();
        session.record(0, 0, &said("\\boxed{4}")).unwrap();
        session.write(true).unwrap();
        let teachers = &hapo_data::load(&output).unwrap().dataset.examples[0].teachers;
        assert_eq!(*teachers, ["\\boxed{4}", "old \\boxed{4}"]);
    }

    #[test]
    fn journal_survives_a_torn_line_and_refuses_other_settings() {
        let folder = tempfile::tempdir().unwrap();
        let (data, output) = (dataset(), folder.path().join("out.jsonl"));
        let mut session = open(&data, &output, rules(Rule::AllCorrect, Leaked::Last)).unwrap();
        session.record(0, 0, &said("\\boxed{4}")).unwrap();
        session.record(1, 2, &said("\\boxed{7}")).unwrap();
        let again = open(&data, &output, rules(Rule::AllCorrect, Leaked::Last));
        assert!(matches!(again.err(), Some(Error::Busy { .. })));
        drop(session);
        let journal = folder.path().join("out.jsonl.journal");
        let whole = std::fs::read(&journal).unwrap();
        assert_eq!(whole.split(|it| *it == b'\n').count(), 4);
        for cut in 0..=whole.len() {
            std::fs::write(&journal, &whole[..cut]).unwrap();
            let session = open(&data, &output, rules(Rule::AllCorrect, Leaked::Last)).unwrap();
            let lines = whole[..cut].split(|it| *it == b'\n').count() - 1;
            assert_eq!(session.summary().resumed, lines.saturating_sub(1), "{cut}");
            assert_eq!(session.has(1, 2), cut == whole.len());
        }
        std::fs::write(&journal, &whole).unwrap();
        let other = |temperature, begin| {
            let rules = rules(Rule::AllCorrect, Leaked::Last);
            Session::open(&data, &output, origin(temperature), rules, begin, false)
        };
        let message = other(0.75, Begin::ResumeOrStart).err().unwrap().to_string();
        let expected = format!(
            "{} was begun with other settings: temperature was 0.5, is 0.75",
            journal.display()
        );
        assert_eq!(message, expected);
        assert_eq!(other(0.5, Begin::Resume).unwrap().summary().resumed, 2);
        assert_eq!(other(0.75, Begin::Fresh).unwrap().summary().resumed, 0);
        std::fs::write(&journal, "{\"id\":1}\n").unwrap();
        let message = other(0.5, Begin::Resume).err().unwrap().to_string();
        assert!(
            message.ends_with(":1: expected the head of a teacher's journal, got {\"id\":1}"),
            "{message}"
        );
        std::fs::remove_file(&journal).unwrap();
        assert!(matches!(
            other(0.5, Begin::Resume).err(),
            Some(Error::NoJournal { .. })
        ));
    }

    #[test]
    fn failed_attempts_are_made_again_on_demand_and_the_answer_counts() {
        let folder = tempfile::tempdir().unwrap();
        let (data, output) = (dataset(), folder.path().join("out.jsonl"));
        let failed = Attempt {
            text: None,
            failed: Some("status 500".into()),
            ..said("")
        };
        let again = |retry| {
            let rules = rules(Rule::AllCorrect, Leaked::Last);
            Session::open(
                &data,
                &output,
                origin(0.5),
                rules,
                Begin::ResumeOrStart,
                retry,
            )
            .unwrap()
        };
        again(false).record(0, 1, &failed).unwrap();
        assert_eq!(again(false).wanted(0), [0, 2]);
        let mut session = again(true);
        assert_eq!(session.wanted(0), [0, 1, 2]);
        session.record(0, 1, &said("\\boxed{4}")).unwrap();
        drop(session);
        assert_eq!(again(false).chosen(0), [1]);
    }
}
