//! Errors of files that outlive a process.

use std::path::{Path, PathBuf};

use hapo_core::{Explain, Remedy};

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a file of a run cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file that cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// `read`, `write`, `create`, …
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A folder or file that another process writes.
    #[error("{} is in use by another process", path.display())]
    Busy {
        /// The folder or file.
        path: PathBuf,
    },
    /// A file of rollouts that cannot be read as such.
    #[error("{problem} ({})", path.display())]
    Rollouts {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// A journal that cannot be resumed: none, another program's, or one that was started with other settings.
    #[error("{problem}")]
    Journal {
        /// Expected and found, with the file.
        problem: String,
        /// The remedy.
        remedy: Remedy,
    },
}

impl Error {
    /// The error of a system call on `path`.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

impl Explain for Error {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Io { action: "read", .. } => {
                Some("paths are relative to the current folder".to_owned())
            }
            Self::Rollouts { .. } => Some("rollout files are written by `hapo train`".to_owned()),
            _ => self.remedy().map(|remedy| remedy.to_string()),
        }
    }

    fn remedy(&self) -> Option<Remedy> {
        match self {
            Self::Io { .. } | Self::Rollouts { .. } => None,
            Self::Busy { .. } => Some(Remedy::WaitForOutput),
            Self::Journal { remedy, .. } => Some(*remedy),
        }
    }

    fn is_bad_input(&self) -> bool {
        match self {
            Self::Io { action, .. } => *action == "read",
            Self::Busy { .. } => false,
            Self::Rollouts { .. } | Self::Journal { .. } => true,
        }
    }
}
