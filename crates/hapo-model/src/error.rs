//! Errors between a folder on disk and a model in memory.
//!
//! Each names the file, the thing inside it, what was expected and what was found; the hint says what a reader
//! can do about it.

use std::fmt;
use std::path::{Path, PathBuf};

/// A folder, a weight file or a tokenizer that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// What is missing, contradictory, damaged, or asks for something the decoder does not implement.
    #[error("{0}")]
    Refused(Box<Problem>),
    /// Several fields of one file.
    #[error("{} fields ask for another decoder ({}): {}", problems.len(), file.display(), listed(problems))]
    Fields {
        /// The JSON file.
        file: PathBuf,
        /// Each field.
        problems: Vec<Problem>,
    },
}

/// A file, or a part of one, that cannot be used as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The file, or the folder where no file is to blame.
    pub file: PathBuf,
    /// The field (a dot separates levels) or tensor; empty for the whole file.
    pub place: String,
    /// What is needed.
    pub expected: String,
    /// The value in the file.
    pub got: String,
    /// How to fix it.
    pub hint: Option<&'static str>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, place, expected, got, .. } = self;
        write!(f, "expected {expected}, got {got} ({}", file.display())?;
        if place.is_empty() { f.write_str(")") } else { write!(f, ": {place})") }
    }
}

fn listed(problems: &[Problem]) -> String {
    let each = problems.iter().map(|Problem { place, expected, got, .. }| {
        format!("{place}: expected {expected}, got {got}")
    });
    each.collect::<Vec<_>>().join("; ")
}

impl From<Error> for hapo_core::Refusal {
    fn from(error: Error) -> Self {
        let hint = match &error {
            Error::Fields { problems, .. } => problems.iter().find_map(|it| it.hint),
            Error::Refused(it) => it.hint,
        };
        let refusal = Self::input(error.to_string());
        match hint {
            Some(hint) => refusal.hint(hint),
            None => refusal,
        }
    }
}

impl Error {
    /// One error of several fields of one file; errors of another kind go first.
    pub(crate) fn of_fields(errors: Vec<Self>) -> Option<Self> {
        let mut problems = Vec::new();
        for it in errors {
            match it {
                Self::Refused(it) => problems.push(*it),
                other @ Self::Fields { .. } => return Some(other),
            }
        }
        let file = problems.first()?.file.clone();
        Some(match problems.len() {
            1 => Self::Refused(Box::new(problems.remove(0))),
            _ => Self::Fields { file, problems },
        })
    }

    /// `place` is a field or tensor of `file`, or empty.
    pub(crate) fn refused(
        file: &Path,
        place: impl Into<String>,
        expected: impl Into<String>,
        got: impl Into<String>,
    ) -> Self {
        let (place, expected, got) = (place.into(), expected.into(), got.into());
        Self::Refused(Box::new(Problem { file: file.to_owned(), place, expected, got, hint: None }))
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<Option<&'static str>>) -> Self {
        if let Self::Refused(it) = &mut self {
            it.hint = hint.into();
        }
        self
    }
}
