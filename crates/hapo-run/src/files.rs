//! Files that are either complete or absent.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};

/// Writes a file under a temporary name, flushes it to the disk and renames it.
///
/// # Errors
/// [`Error::Io`]; the file is then as it was before.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    write_atomically_with(path, |file| file.write_all(bytes).map_err(Error::io("write", path)))
}

/// [`write_atomically`] with contents written by `fill`.
pub fn write_atomically_with<E: From<Error>>(
    path: &Path,
    fill: impl FnOnce(&mut File) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let temporary = temporary_name(path);
    let written = File::create(&temporary)
        .map_err(|it| E::from(Error::io("write", path)(it)))
        .and_then(|mut file| {
            fill(&mut file)?;
            let renamed = file.sync_all().and_then(|()| fs::rename(&temporary, path));
            Ok(renamed.map_err(Error::io("write", path))?)
        });
    if written.is_err() {
        // A full disk needs the space back; the first cause is the one to report.
        let _ = fs::remove_file(&temporary);
    }
    written?;
    Ok(sync_parent(path)?)
}

/// A name in the folder of `path` that no other writer uses. It does not contain the file's own name, which may be
/// as long as the system allows.
fn temporary_name(path: &Path) -> PathBuf {
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    path.with_file_name(format!(".hapo-{}-{number}.tmp", std::process::id()))
}

/// Makes a rename in the folder of `path` survive a power cut.
pub fn sync_parent(path: &Path) -> Result<()> {
    let Some(parent) = path.parent().filter(|it| !it.as_os_str().is_empty()) else {
        return Ok(());
    };
    File::open(parent).and_then(|it| it.sync_all()).map_err(Error::io("write", parent))
}

/// Creates a folder and those above it.
pub fn create_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(Error::io("create", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut all: Vec<String> =
            entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        all.sort();
        all
    }

    #[test]
    fn a_file_is_replaced_or_left_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        write_atomically(&path, b"one").unwrap();
        write_atomically(&path, b"two").unwrap();
        let failed = write_atomically_with(&path, |file| {
            file.write_all(b"half").unwrap();
            Err(Error::io("write", &path)(std::io::Error::other("full")))
        });
        assert!(failed.unwrap_err().to_string().ends_with("a.json: full"));
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(names(folder.path()), ["a.json"]);
    }

    #[test]
    fn a_name_may_be_as_long_as_the_system_allows() {
        let folder = tempfile::tempdir().unwrap();
        let name = "n".repeat(255);
        write_atomically(&folder.path().join(&name), b"x").unwrap();
        assert_eq!(names(folder.path()), [name]);
    }

    #[test]
    fn many_writers_of_one_file_leave_one_complete_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = &folder.path().join("a");
        std::thread::scope(|scope| {
            for writer in 0..8_u8 {
                scope.spawn(move || write_atomically(path, &vec![writer; 100_000]).unwrap());
            }
        });
        let bytes = fs::read(path).unwrap();
        assert_eq!(bytes.len(), 100_000);
        assert!(bytes.iter().all(|it| *it == bytes[0]));
        assert_eq!(names(folder.path()), ["a"]);
    }
}
