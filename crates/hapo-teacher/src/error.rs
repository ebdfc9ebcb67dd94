use std::path::PathBuf;

use hapo_core::Explain;

/// What ends a run. What a teacher says, and what a server does wrong for a while, is never an error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The endpoint is no address that can be asked.
    #[error("endpoint `{url}`: {problem}")]
    Url {
        /// What was given, without secrets.
        url: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The HTTP client cannot be made.
    #[error("the HTTP client cannot start: {0}")]
    Start(String),
    /// The server refuses, and would refuse again.
    #[error("{url} refuses with status {status}: {message}")]
    Refused {
        /// The address, without secrets.
        url: String,
        /// The HTTP status.
        status: u16,
        /// What the server says, shortened.
        message: String,
    },
    /// The server asks for more patience than the run has.
    #[error("{url} asks to wait {asked} s, expected at most {longest} s")]
    Wait {
        /// The address, without secrets.
        url: String,
        /// Seconds asked for.
        asked: u64,
        /// Seconds the run would wait.
        longest: u64,
    },
    /// Nothing but failures, one after the other.
    #[error("{url} does not answer: {failures} attempts failed in a row, the last with: {reason}")]
    Down {
        /// The address, without secrets.
        url: String,
        /// How many failed.
        failures: usize,
        /// Why the last one did.
        reason: String,
    },
    /// The run was told to stop.
    #[error("stopped; {answered} of {wanted} answers are kept in {}", journal.display())]
    Stopped {
        /// Answers in the journal.
        answered: usize,
        /// Answers that were wanted when the run began, those included.
        wanted: usize,
        /// The journal.
        journal: PathBuf,
    },
    /// A file cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A journal that this program did not write.
    #[error("{}:{line}: expected {expected}, got {got}", path.display())]
    Journal {
        /// The journal.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What should be there.
        expected: &'static str,
        /// What is there, shortened.
        got: String,
    },
    /// The journal belongs to a run with other settings.
    #[error("{} was begun with other settings: {differences}", path.display())]
    Settings {
        /// The journal.
        path: PathBuf,
        /// Each setting that differs, with both values.
        differences: String,
    },
    /// A run that was to be resumed has no journal.
    #[error("nothing to resume: {} does not exist or is empty", path.display())]
    NoJournal {
        /// The journal.
        path: PathBuf,
    },
    /// Another process writes the same output.
    #[error("{} is in use by another process", path.display())]
    Busy {
        /// The journal.
        path: PathBuf,
    },
    /// A gold answer that the grader cannot read.
    #[error("the grader cannot read the gold answer `{gold}` (row {row}, id {id}): {reason}")]
    Gold {
        /// The row, from 1.
        row: usize,
        /// Its id.
        id: String,
        /// Its gold answer.
        gold: String,
        /// The grader's reason.
        reason: hapo_verify::GoldError,
    },
}

impl Explain for Error {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Error::Url { .. } => "give the base address, as in http://localhost:8000/v1",
            Error::Start(_) => "an https endpoint needs the system's root certificates",
            Error::Refused { status, .. } => match status {
                401 | 403 => "set the key in the variable that --api-key-env names",
                404 => "check --endpoint (it usually ends in /v1) and --model",
                402 | 429 => "the account has no credit left",
                300..=399 => "give the address that it points to",
                _ => {
                    "check --model, --max-tokens and --extra; a field is removed by --extra '{\"seed\": null}'"
                }
            },
            Error::Wait { .. } | Error::Stopped { .. } => {
                "the same command goes on where it stopped"
            }
            Error::Down { .. } => {
                "once it is up again, add --retry-failed: it goes on where it stopped and asks the failed ones again"
            }
            Error::Settings { .. } => {
                "use the settings it was begun with, another output, or --fresh to begin anew"
            }
            Error::NoJournal { .. } => "leave out --resume to begin",
            Error::Busy { .. } => "wait for it, or choose another output",
            Error::Journal { .. } => "choose another output, or --fresh to begin anew",
            Error::Gold { .. } => "correct or remove the row",
            Error::Io { .. } => return None,
        };
        Some(hint.to_owned())
    }

    fn is_bad_input(&self) -> bool {
        match self {
            Error::Refused { status, .. } => !matches!(status, 402 | 429),
            Error::Url { .. }
            | Error::Journal { .. }
            | Error::Settings { .. }
            | Error::NoJournal { .. }
            | Error::Gold { .. } => true,
            _ => false,
        }
    }
}
