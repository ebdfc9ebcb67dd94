use std::fmt::Display;
use std::path::{Path, PathBuf};

use hapo_core::{Explain, Remedy};

use crate::row::BadRow;

/// An error while data are read or made. A bad row of a file is not an error but a [`BadRow`] beside the good ones.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be opened, read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A row that cannot be read, where each is needed.
    #[error("{0}")]
    Row(Box<BadRow>),
    /// A file, a name, a template or a request that cannot be used.
    #[error("{problem}")]
    Refused {
        /// Expected and found, with the place.
        problem: String,
        /// How to fix it.
        hint: Option<&'static str>,
    },
}

/// The hint for a file that contradicts itself or is cut.
pub(crate) const DAMAGED: &str = "take the file again from where it comes";

impl Error {
    pub(crate) fn refused(problem: String) -> Self {
        Self::Refused { problem, hint: None }
    }

    pub(crate) fn of_file(path: &Path, problem: impl Display, hint: &'static str) -> Self {
        let problem = format!("{}: {problem}", path.display());
        Self::Refused { problem, hint: Some(hint) }
    }

    /// A name that is in none of the tables of this crate.
    pub(crate) fn unknown<'k>(
        kind: &'static str,
        name: &str,
        known: impl Iterator<Item = &'k str>,
    ) -> Self {
        let known = known.collect::<Vec<_>>().join(", ");
        Self::refused(format!("unknown {kind} `{name}`, expected one of: {known}"))
    }
}

impl Explain for Error {
    fn hint(&self) -> Option<String> {
        match self {
            Error::Io { .. } => Some("paths are relative to the current folder".to_owned()),
            Error::Row(_) => self.remedy().map(|remedy| remedy.to_string()),
            Error::Refused { hint, .. } => hint.map(str::to_owned),
        }
    }

    fn remedy(&self) -> Option<Remedy> {
        matches!(self, Error::Row(_)).then_some(Remedy::DropBadRows)
    }

    fn is_bad_input(&self) -> bool {
        true
    }
}
