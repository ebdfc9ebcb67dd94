//! Answers of a model to a set of problems, graded.

use std::path::PathBuf;

use hapo_core::{PromptId, Purpose};
use hapo_data::Dataset;
use hapo_kernels::Device;
use hapo_model::Model;
use hapo_sampler::{ChatFormat, Decoding, GroupRequest, SampleSettings};
use hapo_verify::{Gold, GoldError, Grader, Judgement, Verdict};
use serde::{Deserialize, Serialize};

use crate::statistics::{Estimate, estimate};

/// How to ask.
#[derive(Clone, Copy, Debug)]
pub struct EvalSettings {
    /// k: completions of each problem.
    pub completions: usize,
    /// How tokens are drawn.
    pub decoding: Decoding,
    /// Longest completion in tokens.
    pub max_new_tokens: usize,
    /// Sequences decoded at once.
    pub max_sequences: usize,
    /// Seed of the draws and of the intervals.
    pub seed: u64,
}

/// What a model said to one problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answers {
    /// Id of the problem.
    pub id: String,
    /// The gold answer.
    pub gold: String,
    /// The completions.
    pub completions: Vec<Answer>,
}

/// One completion, graded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Its text.
    pub text: String,
    /// What the grader says.
    pub verdict: Mark,
    /// What the other grader says, where one was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<Mark>,
    /// What was taken for the answer.
    pub answer: Option<String>,
    /// The first completion that gives the same answer, by the grader's equivalence; `None` without an answer.
    pub vote: Option<usize>,
    /// Its length in tokens, if it was counted.
    pub tokens: Option<usize>,
    /// Whether it ended by itself.
    pub ended: bool,
}

/// A verdict without its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// The answer means the gold.
    Correct,
    /// An answer was found and does not mean the gold.
    Wrong,
    /// No answer that can be read.
    Unparsable,
}

impl Answers {
    /// Completions that are correct.
    pub fn correct(&self) -> usize {
        let correct = |it: &&Answer| it.verdict == Mark::Correct;
        self.completions.iter().filter(correct).count()
    }

    /// Share of the completions that are correct: the problem's part of avg@k.
    pub fn success(&self) -> f64 {
        self.correct() as f64 / self.completions.len().max(1) as f64
    }
}

/// Why an evaluation cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The sampler could not go on.
    #[error(transparent)]
    Sampler(#[from] hapo_sampler::Error),
    /// Problems that cannot be read or made.
    #[error(transparent)]
    Data(#[from] hapo_data::Error),
    /// A problem that the model cannot be asked.
    #[error("problem {id}: {source}")]
    Problem {
        /// Its id.
        id: String,
        /// Why.
        source: Box<hapo_sampler::Error>,
    },
    /// A gold answer that the grader cannot read.
    #[error("the grader cannot read the gold answer `{gold}` of problem {id}: {reason}")]
    Gold {
        /// Id of the problem.
        id: String,
        /// Its gold answer.
        gold: String,
        /// The grader's reason.
        reason: GoldError,
    },
    /// A benchmark whose problems the user must bring.
    #[error("the problems of {name} are read from a file")]
    NeedsFile {
        /// The benchmark.
        name: &'static str,
    },
    /// The folder has no file for a benchmark.
    #[error("no file for {name} in {}, expected one named {stems}", folder.display())]
    NoFile {
        /// The benchmark.
        name: &'static str,
        /// The folder.
        folder: PathBuf,
        /// Names that would be taken.
        stems: String,
    },
    /// Rows that cannot be used.
    #[error("{first} ({count} bad rows in all)")]
    Rows {
        /// The first.
        first: String,
        /// How many there are.
        count: u64,
    },
    /// A file that is not the benchmark.
    #[error("{}: expected the {expected} problems of {name}, found {found} in {rows} rows", path.display())]
    Count {
        /// The file.
        path: PathBuf,
        /// The benchmark.
        name: &'static str,
        /// How many problems it has.
        expected: usize,
        /// How many different ones the file has.
        found: usize,
        /// How many rows the file has.
        rows: usize,
    },
    /// A record that cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The record.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A record that this program did not write.
    #[error("{}:{line}: expected {expected}", path.display())]
    Record {
        /// The record.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What should be there.
        expected: &'static str,
    },
    /// A record of an evaluation with other settings.
    #[error("{} holds an evaluation with other settings: {differences}", path.display())]
    Settings {
        /// The record.
        path: PathBuf,
        /// Each setting that differs, with both values.
        differences: String,
    },
    /// Another process writes the record.
    #[error("{} is in use by another process", path.display())]
    Busy {
        /// The record.
        path: PathBuf,
    },
}

impl Error {
    /// What the reader can do.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Error::NeedsFile { .. } | Error::NoFile { .. } => {
                "--data names the folder with the benchmarks' files"
            }
            Error::Gold { .. } | Error::Rows { .. } => "correct or remove the row",
            Error::Problem { .. } => "remove the row, or lower --max-tokens",
            Error::Count { .. } => {
                "give the benchmark's own file, or any file by itself with --data FILE"
            }
            Error::Settings { .. } => "use the settings it was begun with, or another --out",
            Error::Record { .. } => "choose another --out",
            Error::Busy { .. } => "wait for it, or choose another --out",
            _ => return None,
        })
    }

    /// Whether the user's input is at fault.
    pub fn is_bad_input(&self) -> bool {
        !matches!(
            self,
            Error::Sampler(_) | Error::Io { .. } | Error::Busy { .. }
        )
    }
}

/// A completion before it is graded.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// Its text.
    pub text: String,
    /// Its length in tokens, if it was counted.
    pub tokens: Option<usize>,
    /// Whether it ended by itself.
    pub ended: bool,
}

/// The gold answers of a set of problems, as one or two graders read them.
pub struct Judge<'a> {
    dataset: &'a Dataset,
    grader: &'a Grader,
    golds: Vec<Gold>,
    others: Option<Vec<Option<Gold>>>,
}

impl<'a> Judge<'a> {
    /// Reads every gold for `grader`, and for `other` where it can: the one that is only compared with.
    ///
    /// # Errors
    /// [`Error::Gold`].
    pub fn new(
        dataset: &'a Dataset,
        grader: &'a Grader,
        other: Option<&Grader>,
    ) -> Result<Self, Error> {
        let golds = dataset
            .examples
            .iter()
            .map(|it| {
                Gold::any(grader, it.golds()).map_err(|reason| Error::Gold {
                    id: it.id.clone(),
                    gold: it.answer.clone(),
                    reason,
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        let others = other.map(|grader| {
            let golds = dataset.examples.iter();
            golds.map(|it| Gold::any(grader, it.golds()).ok()).collect()
        });
        Ok(Self {
            dataset,
            grader,
            golds,
            others,
        })
    }

    /// Grades the completions of one problem and groups equal answers.
    pub fn answers(&self, problem: usize, said: Vec<Said>) -> Answers {
        let example = &self.dataset.examples[problem];
        let judged: Vec<Judgement> = said
            .iter()
            .map(|it| self.golds[problem].judge(&it.text))
            .collect();
        let votes = votes(self.grader, &judged, &said);
        let completions = said.into_iter().zip(judged).zip(votes);
        let completions = completions.map(|((it, judged), vote)| Answer {
            verdict: mark(judged.verdict),
            other: self.others.as_ref().map(|golds| {
                let verdict = golds[problem]
                    .as_ref()
                    .map(|gold| gold.judge(&it.text).verdict);
                verdict.map_or(Mark::Unparsable, mark)
            }),
            answer: judged.extracted,
            vote,
            text: it.text,
            tokens: it.tokens,
            ended: it.ended,
        });
        Answers {
            id: example.id.clone(),
            gold: example.answer.clone(),
            completions: completions.collect(),
        }
    }
}

/// For each completion the first one with the same answer. Correct answers are equal to each other; of the wrong ones,
/// an answer that the grader can read as a gold is asked whether the later completion means it, others are compared as
/// text.
fn votes(grader: &Grader, judged: &[Judgement], said: &[Said]) -> Vec<Option<usize>> {
    let mut groups: Vec<(usize, Option<Gold>)> = Vec::new();
    let mut votes = Vec::with_capacity(judged.len());
    for (n, it) in judged.iter().enumerate() {
        let answer = match (&it.verdict, &it.extracted) {
            (Verdict::Unparsable(_), _) | (_, None) => {
                votes.push(None);
                continue;
            }
            (_, Some(answer)) => answer,
        };
        let same = groups.iter().find(|(first, gold)| {
            let (first, gold) = (&judged[*first], gold.as_ref());
            match (first.verdict.is_correct(), it.verdict.is_correct()) {
                (true, true) => true,
                (false, false) => {
                    first.extracted.as_ref() == Some(answer)
                        || gold.is_some_and(|gold| gold.judge(&said[n].text).verdict.is_correct())
                }
                _ => false,
            }
        });
        let vote = same.map_or(n, |it| it.0);
        if vote == n {
            let gold = (!it.verdict.is_correct()).then(|| Gold::new(grader, answer).ok());
            groups.push((n, gold.flatten()));
        }
        votes.push(Some(vote));
    }
    votes
}

fn mark(verdict: Verdict) -> Mark {
    match verdict {
        Verdict::Correct => Mark::Correct,
        Verdict::Wrong => Mark::Wrong,
        Verdict::Unparsable(_) => Mark::Unparsable,
    }
}

/// Who is asked.
#[derive(Debug)]
pub struct Asked<'a, D: Device> {
    /// The model.
    pub model: &'a Model<D>,
    /// Renders its prompts and reads its completions.
    pub chat_format: &'a ChatFormat,
}

impl<D: Device> Clone for Asked<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Device> Copy for Asked<'_, D> {}

/// Asks a model the problems with these numbers. A completion depends on its problem's number and its own, not on what
/// else is asked.
///
/// # Errors
/// [`Error::Sampler`].
pub fn sample_some<D: Device>(
    asked: Asked<'_, D>,
    dataset: &Dataset,
    numbers: &[usize],
    settings: EvalSettings,
) -> Result<Vec<Vec<Said>>, Error> {
    let Asked { model, chat_format } = asked;
    let prompts = numbers
        .iter()
        .map(|it| chat_format.prompt_of(&dataset.examples[*it]))
        .collect::<Result<Vec<_>, _>>()?;
    let requests: Vec<GroupRequest<'_>> = prompts
        .iter()
        .zip(numbers)
        .map(|(tokens, number)| GroupRequest {
            prompt: PromptId(*number as u64),
            tokens,
            completions: settings.completions,
        })
        .collect();
    let sampling = SampleSettings {
        decoding: settings.decoding,
        stop: &chat_format.stop,
        max_new_tokens: settings.max_new_tokens,
        max_sequences: settings.max_sequences,
        usable_vocab: chat_format.tokenizer.vocab_size(),
        seed: settings.seed,
        purpose: Purpose::Evaluate,
        step: 0,
    };
    let sampled = hapo_sampler::sample(model, &requests, &sampling).map_err(|it| match it {
        hapo_sampler::Error::InGroup { index, source } => Error::Problem {
            id: dataset.examples[numbers[index]].id.clone(),
            source,
        },
        other => other.into(),
    })?;
    sampled
        .into_iter()
        .map(|completions| {
            let said = completions.into_iter().map(|it| {
                Ok(Said {
                    text: chat_format.text(&it.tokens)?,
                    tokens: Some(it.tokens.len()),
                    ended: it.ended,
                })
            });
            said.collect()
        })
        .collect()
}

/// Asks a model every problem of a data set and grades what it says.
///
/// # Errors
/// [`Error::Gold`], [`Error::Sampler`].
pub fn evaluate<D: Device>(
    model: &Model<D>,
    chat_format: &ChatFormat,
    grader: &Grader,
    dataset: &Dataset,
    settings: EvalSettings,
) -> Result<Vec<Answers>, Error> {
    let judge = Judge::new(dataset, grader, None)?;
    let numbers: Vec<usize> = (0..dataset.examples.len()).collect();
    let said = sample_some(Asked { model, chat_format }, dataset, &numbers, settings)?;
    let graded = numbers.into_iter().zip(said);
    Ok(graded
        .map(|(number, said)| judge.answers(number, said))
        .collect())
}

/// avg@k with its interval over problems; `None` for no problems.
pub fn average(answers: &[Answers], seed: u64) -> Option<Estimate> {
    let values: Vec<f64> = answers.iter().map(Answers::success).collect();
    estimate(&values, seed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapo_data::Example;

    #[test]
    fn equal_answers_share_a_vote_however_they_are_written() {
        let example = Example {
            id: "a".into(),
            problem: "p".into(),
            answer: "1/2".into(),
            ..Example::default()
        };
        let dataset = Dataset {
            examples: vec![example],
        };
        let judge = Judge::new(&dataset, &hapo_verify::MATH, Some(&hapo_verify::EXACT)).unwrap();
        let texts = [
            "\\boxed{0.25}",
            "\\boxed{0.5}",
            "\\boxed{\\frac14}",
            "\\boxed{1/2}",
            "no idea",
            "\\boxed{x+1}",
            "\\boxed{1+x}",
        ];
        let said = texts.map(|it| Said {
            text: it.into(),
            tokens: None,
            ended: true,
        });
        let it = judge.answers(0, said.to_vec());
        let votes: Vec<Option<usize>> = it.completions.iter().map(|it| it.vote).collect();
        assert_eq!(
            votes,
            [Some(0), Some(1), Some(0), Some(1), None, Some(5), Some(5)]
        );
        let others: Vec<Option<Mark>> = it.completions.iter().map(|it| it.other).collect();
        assert_eq!(others[1], Some(Mark::Wrong));
        assert_eq!(others[3], Some(Mark::Correct));
        assert_eq!(it.correct(), 2);
    }
}
