//! Errors between a folder on disk and a model in memory.
//!
//! Each names the file, the thing inside it, what was expected and what was found; [`Explain::hint`] says what a reader
//! can do about it.

use std::fmt;
use std::path::{Path, PathBuf};

use hapo_core::Explain;

/// A folder, a weight file or a tokenizer that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file system refused.
    #[error("cannot {action} {}: {cause}", file.display())]
    Io {
        /// Verb: `open`, `read`, `write`, ….
        action: &'static str,
        /// The file or folder.
        file: PathBuf,
        /// The system's error.
        cause: std::io::Error,
    },
    /// What is missing, contradictory, damaged, or asks for something the decoder does not implement.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// Several fields of one file.
    #[error("{} fields ask for another decoder ({}): {}", problems.len(), file.display(), listed(problems))]
    Fields {
        /// The JSON file.
        file: PathBuf,
        /// Each field.
        problems: Vec<Refusal>,
    },
}

/// A file, or a part of one, that cannot be used as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
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

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, place, expected, got, .. } = self;
        write!(f, "expected {expected}, got {got} ({}", file.display())?;
        if place.is_empty() { f.write_str(")") } else { write!(f, ": {place})") }
    }
}

fn listed(problems: &[Refusal]) -> String {
    let each = problems.iter().map(|Refusal { place, expected, got, .. }| {
        format!("{place}: expected {expected}, got {got}")
    });
    each.collect::<Vec<_>>().join("; ")
}

impl Explain for Error {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Fields { problems, .. } => problems.iter().find_map(|it| it.hint),
            Self::Refused(it) => it.hint,
            Self::Io { cause, .. } if cause.kind() == std::io::ErrorKind::NotFound => Some(
                "a model folder holds config.json, tokenizer.json and model.safetensors (or shards with an index)",
            ),
            Self::Io { .. } => None,
        };
        hint.map(str::to_owned)
    }

    fn is_bad_input(&self) -> bool {
        true
    }
}

impl Error {
    /// The file or folder of the error.
    pub fn file(&self) -> &Path {
        match self {
            Self::Io { file, .. } | Self::Fields { file, .. } => file,
            Self::Refused(it) => &it.file,
        }
    }

    /// One error of several fields of one file; errors of another kind go first.
    pub(crate) fn of_fields(errors: Vec<Self>) -> Option<Self> {
        let mut problems = Vec::new();
        for it in errors {
            match it {
                Self::Refused(it) => problems.push(*it),
                other => return Some(other),
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
        Self::Refused(Box::new(Refusal { file: file.to_owned(), place, expected, got, hint: None }))
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<Option<&'static str>>) -> Self {
        if let Self::Refused(it) = &mut self {
            it.hint = hint.into();
        }
        self
    }

    pub(crate) fn io(action: &'static str, file: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let file = file.to_owned();
        move |cause| Self::Io { action, file, cause }
    }
}

/// At most the first 80 characters, so that a hostile file cannot fill the terminal.
pub(crate) fn excerpt(text: &str) -> String {
    hapo_core::excerpt(text, 80)
}
