//! Why an evaluation cannot be made.

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
    #[error("the grader cannot read the gold answer {0}")]
    Gold(String),
    /// A program or a server that judges gave no judgement.
    #[error("the reward failed: {0}")]
    Grader(String),
    /// A server that cannot be asked.
    #[error(transparent)]
    Teacher(#[from] hapo_teacher::Error),
    /// A name that is no benchmark, suite or level.
    #[error("unknown benchmark `{0}`")]
    UnknownBenchmark(String),
    /// A problem that the server has no reply for.
    #[error("{0}")]
    NoReply(String),
    /// A record with results of other problems.
    #[error("{0}")]
    OtherProblems(String),
    /// A benchmark whose problems the user must bring, or that the folder has no file for.
    #[error("{0}")]
    NoFile(String),
    /// Rows that cannot be used: the first, and how many there are.
    #[error("{0} (bad rows in all: {1})")]
    Rows(String, u64),
    /// A file that is not the benchmark.
    #[error("{0}")]
    Count(String),
    /// A record that cannot be read, written or resumed.
    #[error(transparent)]
    Run(#[from] hapo_run::Error),
}

impl Error {
    pub(crate) fn gold(example: &Example, reason: &GoldError) -> Self {
        Self::Gold(format!("`{}` of problem {}: {reason}", example.answer, example.id))
    }
}

impl Explain for Error {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Error::Teacher(it) => return it.hint(),
            Error::Data(it) => return it.hint(),
            Error::Sampler(it) => return it.hint(),
            Error::Run(it) => return it.hint(),
            Error::Gold(..) | Error::Rows(..) => "correct or remove the row",
            Error::Grader(..) => {
                "what it printed is above; with a record the same command resumes where it stopped"
            }
            Error::UnknownBenchmark(..) => {
                "`hapo list benchmarks` names them; for a dataset: --data FILE or hf://datasets/ORG/NAME"
            }
            _ => return self.remedy().map(|remedy| remedy.to_string()),
        };
        Some(hint.to_owned())
    }

    fn remedy(&self) -> Option<Remedy> {
        Some(match self {
            Error::NoFile(..) => Remedy::NameBenchmarks,
            Error::Problem { .. } => Remedy::ShortenCompletions,
            Error::Count(..) => Remedy::WholeBenchmark,
            Error::OtherProblems(..) => Remedy::SameData,
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
            Error::NoReply(..) => false,
            _ => true,
        }
    }
}
