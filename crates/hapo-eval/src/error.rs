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
    /// A server that cannot be asked.
    #[error(transparent)]
    Teacher(#[from] hapo_teacher::Error),
    /// A problem that the server has no reply for.
    #[error("{0}")]
    NoReply(String),
    /// A name, a row or a judgement that cannot be used.
    #[error("{problem}")]
    Refused {
        /// Expected and found.
        problem: String,
        /// How to fix it.
        hint: &'static str,
    },
    /// A file, a record or a problem that the evaluation cannot be made with.
    #[error("{problem}")]
    Unfit {
        /// Expected and found.
        problem: String,
        /// How to fix it.
        remedy: Remedy,
    },
    /// A record that cannot be read, written or resumed.
    #[error(transparent)]
    Run(#[from] hapo_run::Error),
}

impl Error {
    pub(crate) fn gold(example: &Example, reason: &GoldError) -> Self {
        let (answer, id) = (&example.answer, &example.id);
        Self::Refused {
            problem: format!(
                "the grader cannot read the gold answer `{answer}` of problem {id}: {reason}"
            ),
            hint: "correct or remove the row",
        }
    }
}

/// True of a file that holds no record of an evaluation. No option starts it afresh.
fn is_no_record(error: &hapo_run::Error) -> bool {
    matches!(error.remedy(), Some(Remedy::OtherOutput | Remedy::StartFirst))
}

impl Explain for Error {
    fn hint(&self) -> Option<String> {
        match self {
            Error::Teacher(it) => it.hint(),
            Error::Data(it) => it.hint(),
            Error::Sampler(it) => it.hint(),
            Error::Run(it) if is_no_record(it) => {
                Some("name a file that `hapo eval --out` wrote, or a new one for --out".to_owned())
            }
            Error::Run(it) => it.hint(),
            Error::Refused { hint, .. } => Some((*hint).to_owned()),
            Error::Unfit { remedy, .. } => Some(remedy.to_string()),
            Error::NoReply(_) => Some(
                "see what the server says; with --out, the same command resumes where it stopped"
                    .to_owned(),
            ),
        }
    }

    fn remedy(&self) -> Option<Remedy> {
        match self {
            Error::Unfit { remedy, .. } => Some(*remedy),
            Error::Teacher(it) => it.remedy(),
            Error::Data(it) => it.remedy(),
            Error::Run(it) => it.remedy().filter(|_| !is_no_record(it)),
            _ => None,
        }
    }

    fn is_bad_input(&self) -> bool {
        match self {
            Error::Sampler(it) => it.is_bad_input(),
            Error::Teacher(it) => it.is_bad_input(),
            Error::Run(it) => it.is_bad_input(),
            Error::NoReply(_) => false,
            _ => true,
        }
    }
}
