//! Why an evaluation cannot be made.

use std::path::PathBuf;

use hapo_core::{Explain, Remedy};
use hapo_data::Example;
use hapo_verify::GoldError;

/// Why an evaluation cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Sampling failed.
    #[error(transparent)]
    Sampler(#[from] hapo_sampler::Error),
    /// Problems that cannot be read or made.
    #[error(transparent)]
    Data(#[from] hapo_data::Error),
    /// A problem for which no completion can be sampled.
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
    /// A program or a server that judges gave no judgement.
    #[error("the reward failed: {problem}")]
    Grader {
        /// The failure.
        problem: String,
    },
    /// A server that gives no answers.
    #[error(transparent)]
    Teacher(#[from] hapo_teacher::Error),
    /// A name that is no benchmark, suite or level.
    #[error("unknown benchmark `{name}`")]
    UnknownBenchmark {
        /// The name.
        name: String,
    },
    /// A problem that the server has no reply for.
    #[error("{address} has no answer for problem {problem} after {requests} requests: {reason}")]
    NoReply {
        /// The server, without secrets.
        address: String,
        /// The problem's index.
        problem: usize,
        /// Requests sent.
        requests: u32,
        /// Why the last request failed.
        reason: String,
    },
    /// A record with results of other problems.
    #[error("{} has answers to other problems of {set}: number {index} is {id}", path.display())]
    OtherProblems {
        /// The record.
        path: PathBuf,
        /// The set.
        set: String,
        /// The problem's index.
        index: usize,
        /// The id that is recorded.
        id: String,
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
    /// A record that cannot be read, written or resumed.
    #[error(transparent)]
    Run(#[from] hapo_run::Error),
}

impl Error {
    pub(crate) fn gold(example: &Example, reason: GoldError) -> Self {
        Self::Gold { id: example.id.clone(), gold: example.answer.clone(), reason }
    }
}

impl Explain for Error {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Error::Teacher(it) => return it.hint(),
            Error::Data(it) => return it.hint(),
            Error::Sampler(it) => return it.hint(),
            Error::Run(it) => return it.hint(),
            Error::Gold { .. } | Error::Rows { .. } => "correct or remove the row",
            Error::Grader { .. } => {
                "what it printed is above; with a record the same command resumes where it stopped"
            }
            Error::UnknownBenchmark { .. } => "`hapo list benchmarks` names them",
            _ => return self.remedy().map(|remedy| remedy.to_string()),
        };
        Some(hint.to_owned())
    }

    fn remedy(&self) -> Option<Remedy> {
        Some(match self {
            Error::NeedsFile { .. } | Error::NoFile { .. } => Remedy::NameBenchmarks,
            Error::Problem { .. } => Remedy::ShortenCompletions,
            Error::Count { .. } => Remedy::WholeBenchmark,
            Error::OtherProblems { .. } => Remedy::SameData,
            Error::Teacher(it) => return it.remedy(),
            Error::Data(it) => return it.remedy(),
            Error::Run(it) => return it.remedy(),
            _ => return None,
        })
    }

    fn is_bad_input(&self) -> bool {
        match self {
            Error::Sampler(it) => it.is_bad_input(),
            Error::Teacher(it) => it.is_bad_input(),
            Error::Run(it) => it.is_bad_input(),
            Error::NoReply { .. } => false,
            _ => true,
        }
    }
}
