use hapo_core::{Explain, Remedy};

/// An error that ends a run. A teacher's completion is never an error, nor is a server's temporary fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An address, a key, a gold answer or a grader that cannot be used.
    #[error("{problem}")]
    Input {
        /// Expected and found, without secrets.
        problem: String,
        /// How to fix it.
        hint: &'static str,
    },
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
    /// The run was interrupted, or the server asks for a longer wait than it allows.
    #[error("{0}")]
    Stopped(String),
    /// Too many failures in a row.
    #[error("{0}")]
    Down(String),
    /// A file that cannot be read or written, or a journal that is not this session's.
    #[error(transparent)]
    Run(#[from] hapo_run::Error),
}

impl Error {
    /// A program or a server that judges gave no judgement.
    pub(crate) fn grader(problem: &str) -> Self {
        Self::Input {
            problem: format!("the reward failed: {problem}"),
            hint: "what it printed is above; the same command resumes where it stopped",
        }
    }
}

impl Explain for Error {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Error::Input { hint, .. } => hint,
            Error::Refused { status: 402 | 429, .. } => "the account has no credit left",
            Error::Refused { status: 300..=399, .. } => "give the address that it points to",
            Error::Stopped(_) => "the same command resumes where it stopped",
            Error::Run(it) if it.remedy().is_none() => return it.hint(),
            _ => return self.remedy().map(|remedy| remedy.to_string()),
        };
        Some(hint.to_owned())
    }

    fn remedy(&self) -> Option<Remedy> {
        match self {
            Error::Refused { status: 401 | 403, .. } => Some(Remedy::SetApiKey),
            Error::Refused { status: 404, .. } => Some(Remedy::CheckEndpoint),
            Error::Refused { status: 402 | 429 | 300..=399, .. }
            | Error::Input { .. }
            | Error::Stopped(_) => None,
            Error::Refused { .. } => Some(Remedy::CheckRequest),
            Error::Down(_) => Some(Remedy::RetryFailed),
            Error::Run(it) => match it.remedy() {
                Some(Remedy::SameSettings) => Some(Remedy::SameSettingsOrAfresh),
                other => other,
            },
        }
    }

    fn is_bad_input(&self) -> bool {
        match self {
            Error::Refused { status, .. } => !matches!(status, 402 | 429),
            Error::Input { .. } => true,
            Error::Run(it) => it.is_bad_input(),
            Error::Stopped(_) | Error::Down(_) => false,
        }
    }
}
