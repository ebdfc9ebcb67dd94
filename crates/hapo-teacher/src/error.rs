use hapo_core::{Explain, Remedy};

/// An error that ends a run. A teacher's completion is never an error, nor is a server's temporary fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An endpoint that is no http(s) address.
    #[error("endpoint `{url}`: {problem}")]
    Url {
        /// The given address, without secrets.
        url: String,
        /// The problem.
        problem: String,
    },
    /// A key that no header can hold.
    #[error("the API key has characters that no header can hold")]
    Key,
    /// The server refuses, and would refuse again.
    #[error("{url} refuses with status {status}: {message}")]
    Refused {
        /// The address, without secrets.
        url: String,
        /// The HTTP status.
        status: u16,
        /// The server's message, shortened.
        message: String,
    },
    /// The server asks for a longer wait than the run allows.
    #[error("{0}")]
    Wait(String),
    /// Too many failures in a row.
    #[error("{0}")]
    Down(String),
    /// The run was interrupted: how far it is.
    #[error("stopped; {0}")]
    Stopped(String),
    /// A file that cannot be read or written, or a journal that is not this session's.
    #[error(transparent)]
    Run(#[from] hapo_run::Error),
    /// A gold answer that the grader cannot read.
    #[error("the grader cannot read the gold answer {0}")]
    Gold(String),
    /// A program or a server that judges gave no judgement.
    #[error("the reward failed: {0}")]
    Grader(String),
}

impl Explain for Error {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Error::Url { .. } => "give the base address, as in http://localhost:8000/v1",
            Error::Key => "look for a line break or another character that is no part of it",
            Error::Refused { status, .. } => match status {
                402 | 429 => "the account has no credit left",
                300..=399 => "give the address that it points to",
                _ => return self.remedy().map(|remedy| remedy.to_string()),
            },
            Error::Wait(..) | Error::Stopped(..) => "the same command resumes where it stopped",
            Error::Run(hapo_run::Error::Settings { .. }) | Error::Down(..) => {
                return self.remedy().map(|remedy| remedy.to_string());
            }
            Error::Run(it) => return it.hint(),
            Error::Gold(..) => "correct or remove the row",
            Error::Grader(..) => {
                "what it printed is above; the same command resumes where it stopped"
            }
        };
        Some(hint.to_owned())
    }

    fn remedy(&self) -> Option<Remedy> {
        match self {
            Error::Refused { status: 401 | 403, .. } => Some(Remedy::SetApiKey),
            Error::Refused { status: 404, .. } => Some(Remedy::CheckEndpoint),
            Error::Refused { status: 402 | 429 | 300..=399, .. } => None,
            Error::Refused { .. } => Some(Remedy::CheckRequest),
            Error::Down(..) => Some(Remedy::RetryFailed),
            Error::Run(hapo_run::Error::Settings { .. }) => Some(Remedy::SameSettingsOrAfresh),
            Error::Run(it) => it.remedy(),
            _ => None,
        }
    }

    fn is_bad_input(&self) -> bool {
        match self {
            Error::Refused { status, .. } => !matches!(status, 402 | 429),
            Error::Url { .. } | Error::Key | Error::Gold(..) | Error::Grader(..) => true,
            Error::Run(it) => it.is_bad_input(),
            _ => false,
        }
    }
}
