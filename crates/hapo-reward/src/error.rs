//! What can be wrong with a reward of one's own.

use hapo_core::Explain;

/// What is wrong before a program or server is asked anything.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name is none.
    #[error("expected {expected}, got `{name}`")]
    Name {
        /// What was given.
        name: String,
        /// What a name is.
        expected: &'static str,
    },
}

impl Explain for Error {
    fn hint(&self) -> Option<String> {
        Some("for example `command:python reward.py` or `http://localhost:8000/reward`".to_owned())
    }

    fn is_bad_input(&self) -> bool {
        true
    }
}

/// Why a completion has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// What happened.
    pub(crate) message: String,
    /// Whether nothing that it answers can be trusted, or nothing will be answered.
    pub(crate) fatal: bool,
}

impl Failure {
    /// Of one completion.
    pub(crate) fn of_one(message: impl Into<String>) -> Self {
        Self { message: message.into(), fatal: false }
    }

    /// Of the program or server.
    pub(crate) fn fatal(message: impl Into<String>) -> Self {
        Self { message: message.into(), fatal: true }
    }
}
