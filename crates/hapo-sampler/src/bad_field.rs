//! A refused field of a request, which a server names in its answer.

use std::fmt::Display;

use hapo_core::Refusal;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: expected {expected}, got {got}")]
pub struct BadField {
    pub field: &'static str,
    pub expected: String,
    pub got: String,
}

impl From<BadField> for Refusal {
    fn from(bad: BadField) -> Self {
        Self::because(bad)
    }
}

pub(crate) fn refuse(
    field: &'static str,
    expected: impl Display,
    got: impl Display,
) -> Result<(), BadField> {
    Err(BadField { field, expected: expected.to_string(), got: got.to_string() })
}
