//! Why a study cannot be made.

use std::path::PathBuf;

use hapo_core::Explain;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a study or a demonstration cannot continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A run failed.
    #[error(transparent)]
    Train(Box<hapo_train::Error>),
    /// Scoring a model failed.
    #[error(transparent)]
    Eval(#[from] hapo_eval::Error),
    /// Problems that cannot be made.
    #[error(transparent)]
    Data(#[from] hapo_data::Error),
    /// A table that cannot be written.
    #[error(transparent)]
    Run(#[from] hapo_run::Error),
    /// A page that cannot be made.
    #[error(transparent)]
    Report(#[from] hapo_report::Error),
    /// A name that is no table of the study.
    #[error("expected a table of the study, got `{name}`")]
    UnknownTable {
        /// The name.
        name: String,
        /// The tables there are.
        known: String,
    },
    /// A learning rate of what no table searches one for.
    #[error("expected the name of a search, got `{name}`")]
    UnknownSearch {
        /// The name.
        name: String,
        /// The searches of the tables.
        known: String,
    },
    /// Scores of other settings than those that are asked for.
    #[error("{} holds the scores of a run that differs in {differences}", path.display())]
    OtherScores {
        /// The file.
        path: PathBuf,
        /// What differs.
        differences: String,
    },
    /// Too few problems for the splits of a study.
    #[error("expected at least {expected} problems, got {got}")]
    TooFewProblems {
        /// Held out, of the development split, and of one step.
        expected: usize,
        /// How many there are.
        got: usize,
    },
    /// A problem in two parts of a file.
    #[error("problem {} is {}, and {}, which says the same, is {}", problems[0], parts[0], problems[1], parts[1])]
    Overlap {
        /// Their ids.
        problems: [String; 2],
        /// What each is.
        parts: [&'static str; 2],
    },
    /// A line of a record that is no run's scores.
    #[error("{}:{line}: expected the scores of a run: {problem}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// A record that cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A path that is not UTF-8.
    #[error("the path of {} is not UTF-8", path.display())]
    Path {
        /// The path.
        path: PathBuf,
    },
}

impl From<hapo_train::Error> for Error {
    fn from(error: hapo_train::Error) -> Self {
        Self::Train(Box::new(error))
    }
}

impl Explain for Error {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Train(it) => it.hint(),
            Self::Eval(it) => it.hint(),
            Self::Data(it) => it.hint(),
            Self::Report(it) => it.hint(),
            Self::Run(it) => it.hint(),
            Self::OtherScores { .. } => Some(
                "give the settings that it was made with, or another folder or record; without the file the run is scored again"
                    .to_owned(),
            ),
            Self::Record { .. } | Self::Read { .. } => Some("give the file STUDY.runs.jsonl of a study's folder".to_owned()),
            Self::Overlap { .. } => Some("leave one of them out of the file".to_owned()),
            Self::TooFewProblems { .. } => Some("hold out fewer, or give a larger file".to_owned()),
            Self::UnknownTable { known, .. } => Some(format!("tables are {known}")),
            Self::UnknownSearch { known, .. } => Some(format!("those of these tables are {known}")),
            _ => None,
        }
    }

    fn is_bad_input(&self) -> bool {
        match self {
            Self::Train(it) => it.is_bad_input(),
            Self::Eval(it) => it.is_bad_input(),
            Self::Report(it) => it.is_bad_input(),
            Self::Data(_)
            | Self::UnknownTable { .. }
            | Self::UnknownSearch { .. }
            | Self::TooFewProblems { .. }
            | Self::Overlap { .. }
            | Self::OtherScores { .. }
            | Self::Record { .. }
            | Self::Read { .. }
            | Self::Path { .. } => true,
            Self::Run(it) => it.is_bad_input(),
        }
    }
}
