//! One process per run folder.
//!
//! The lock is the system's, on an open file: it goes when the process goes, however it ends, so
//! nothing has to be cleaned up after a kill. The price is an empty `run.lock` in every run folder.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;

use crate::error::{Error, Result};

/// The right to write into a run folder, held as long as this lives.
#[derive(Debug)]
pub(crate) struct RunLock {
    _file: File,
}

impl RunLock {
    /// Takes the lock of `run_dir`, which exists.
    pub(crate) fn take(run_dir: &Path) -> Result<Self> {
        let path = run_dir.join("run.lock");
        let io = |action| {
            let path = path.clone();
            move |source| Error::Io {
                action,
                path,
                source,
            }
        };
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(io("create"))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(Error::Busy {
                folder: run_dir.to_owned(),
            }),
            Err(TryLockError::Error(source)) => Err(io("lock")(source)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_locked_until_its_holder_goes() {
        let dir = tempfile::tempdir().unwrap();
        let held = RunLock::take(dir.path()).unwrap();
        let refused = RunLock::take(dir.path()).unwrap_err().to_string();
        assert_eq!(
            refused,
            format!(
                "run folder {} is in use by another process",
                dir.path().display()
            )
        );
        drop(held);
        RunLock::take(dir.path()).unwrap();
    }
}
