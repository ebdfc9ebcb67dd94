//! Errors of a report: folders without a run, pages that cannot be written.

use std::path::{Path, PathBuf};

use hapo_core::{Explain, Remedy};

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why there is no report. A broken or unfinished run is no error: its page lists the missing parts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A folder that holds no run and no folders of runs.
    #[error("{} holds no run: expected recipe.toml or metrics.jsonl in it, or in folders below it", .0.display())]
    NoRun(PathBuf),
    /// A file that cannot be read or written.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// `read`, `write`, `listen on`, …
        action: &'static str,
        /// The file, or the address.
        path: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file of a run that cannot be read, or a page that cannot be written.
    #[error(transparent)]
    Run(#[from] hapo_run::Error),
    /// A step whose rollouts cannot be read.
    #[error("the rollouts of step {step} cannot be read: {source}")]
    Rollouts {
        /// The step.
        step: u64,
        /// The file's error.
        source: hapo_run::Error,
    },
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.display().to_string();
        move |source| Self::Io { action, path, source }
    }
}

impl Explain for Error {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Run(it) => it.hint(),
            _ => self.remedy().map(|remedy| remedy.to_string()),
        }
    }

    fn remedy(&self) -> Option<Remedy> {
        match self {
            Self::NoRun(_) => Some(Remedy::NameRun),
            Self::Io { action: "listen on", .. } => Some(Remedy::FreePort),
            Self::Run(it) => it.remedy(),
            _ => None,
        }
    }

    fn is_bad_input(&self) -> bool {
        matches!(self, Self::NoRun(_))
    }
}
