//! One writing process per folder or file. The lock is the system's, on an open file: it goes when the process goes,
//! however it ends, so a kill leaves nothing to clean up. Where the system locks folders, a run folder is locked
//! itself, so a second process is refused even if somebody removed `run.lock`. The price is an empty `run.lock` in
//! every run folder. A killed process of many gigabytes takes a moment to go, so its lock is retried for some seconds.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hapo_core::{Refusal, found_at};

use crate::folder::{RunFolder, entries};

/// A folder or file that another process writes, as the cause of a refusal.
#[derive(Debug, thiserror::Error)]
#[error("{} is in use by another process", .0.display())]
pub struct Busy(PathBuf);

impl Busy {
    fn refusal(path: &Path) -> Refusal {
        let refusal = Refusal::machine("").source(Self(path.to_owned()));
        refusal.hint("wait for it, or choose another output")
    }
}

#[derive(Debug)]
pub struct Lock {
    _file: File,
    _folder: Option<File>,
}

impl Lock {
    pub fn take(run: RunFolder<'_>) -> Result<Self, Refusal> {
        let path = run.lock();
        // A pipe would be waited for.
        if found_at(&path)?.is_some_and(|it| !it.is_file()) {
            return Err(Refusal::input(format!("{} is no file", path.display())));
        }
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = file.map_err(Refusal::io("create", &path))?;
        lock(&file, run.0, PATIENCE)?;
        Ok(Self { _file: file, _folder: lock_folder(run.0)? })
    }

    /// Gives up the lock of a folder in which no run began, and removes the folder if nothing else is in it.
    pub fn abandon(self, run: RunFolder<'_>) {
        // On EIO the folder stays, with its lock file.
        if entries(run.0).is_ok_and(|all| all == [run.lock()]) {
            // What cannot be removed does no harm.
            let _ = fs::remove_file(run.lock()).and_then(|()| fs::remove_dir(run.0));
        }
    }
}

/// Locks a folder itself, without a file in it; `None` where the file system cannot, and on EIO.
pub fn lock_folder(path: &Path) -> Result<Option<File>, Refusal> {
    let folder = File::open(path).ok();
    if let Some(Err(TryLockError::WouldBlock)) = folder.as_ref().map(File::try_lock) {
        return Err(Busy::refusal(path));
    }
    Ok(folder)
}

/// How long to retry a run folder's lock that another process holds.
const PATIENCE: Duration = Duration::from_secs(3);

/// Locks an open file or says that `path` is in use, once the holder has been waited for.
pub(crate) fn lock(file: &File, path: &Path, patience: Duration) -> Result<(), Refusal> {
    let end = Instant::now() + patience;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(TryLockError::WouldBlock) => return Err(Busy::refusal(path)),
            Err(TryLockError::Error(source)) => return Err(Refusal::io("lock", path)(source)),
        }
    }
}

/// True if a process holds the lock on a file, by the system's list: a try would refuse a run that starts just then.
#[cfg(target_os = "linux")]
pub fn is_locked(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    // On EIO, here or below, a run that is going is shown as one that has stopped.
    let Ok(inode) = fs::metadata(path).map(|it| it.ino()) else { return false };
    let suffix = format!(":{inode}");
    // On EIO as above.
    fs::read_to_string("/proc/locks").is_ok_and(|locks| {
        locks.lines().any(|line| {
            let mut fields = line.split_whitespace();
            fields.any(|it| it == "FLOCK") && fields.any(|it| it.ends_with(&suffix))
        })
    })
}

/// Always false: this system has no list of locks.
#[cfg(not(target_os = "linux"))]
pub fn is_locked(_path: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_locked_until_its_holder_goes() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunFolder(dir.path());
        let held = Lock::take(run).unwrap();
        assert_eq!(is_locked(&run.lock()), cfg!(target_os = "linux"));
        let refused = Lock::take(run).unwrap_err().to_string();
        let expected = format!("{} is in use by another process", dir.path().display());
        assert_eq!(refused, expected);
        if cfg!(unix) {
            fs::remove_file(run.lock()).unwrap();
            assert_eq!(Lock::take(run).unwrap_err().to_string(), expected);
        }
        drop(held);
        assert!(!is_locked(&run.lock()));
        Lock::take(run).unwrap();
    }

    #[test]
    fn a_holder_that_is_about_to_go_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let held = Lock::take(RunFolder(dir.path())).unwrap();
        let going = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            drop(held);
        });
        Lock::take(RunFolder(dir.path())).unwrap();
        going.join().unwrap();
    }
}
