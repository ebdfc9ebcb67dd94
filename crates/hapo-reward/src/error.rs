//! Errors of custom rewards.

use hapo_core::Explain;

/// An error before the first request to a program or server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name is none.
    #[error("expected {expected}, got `{name}`")]
    Name {
        /// The given name.
        name: String,
        /// The form of a name.
        expected: &'static str,
    },
}

impl Explain for Error {
    fn hint(&self) -> Option<String> {
        let examples = "for example `command:python reward.py`, `python:reward.py:reward` or `http://localhost:8000/reward`";
        Some(examples.to_owned())
    }

    fn is_bad_input(&self) -> bool {
        true
    }
}

/// Why a completion has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The failure.
    pub(crate) message: String,
    /// No later answer can be trusted, or none will come.
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
