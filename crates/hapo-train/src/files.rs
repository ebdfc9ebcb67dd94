//! Files that are either whole or absent.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use crate::error::{Error, Result};

/// Writes a file under a temporary name, flushes it to the disk and renames it.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    write_atomically_with(path, |file| file.write_all(bytes))
}

/// As [`write_atomically`], of what `fill` writes.
pub(crate) fn write_atomically_with(
    path: &Path,
    fill: impl FnOnce(&mut File) -> std::io::Result<()>,
) -> Result<()> {
    let io = |action| {
        move |source| Error::Io {
            action,
            path: path.to_owned(),
            source,
        }
    };
    let aside = path.with_extension("tmp");
    let write = || {
        let mut file = File::create(&aside)?;
        fill(&mut file)?;
        file.sync_all()?;
        fs::rename(&aside, path)
    };
    write().map_err(|it| {
        // A full disk needs the room back; the first cause is the one to report.
        let _ = fs::remove_file(&aside);
        io("write")(it)
    })?;
    sync_parent(path)
}

/// Makes a rename in the folder of `path` survive a power cut.
pub(crate) fn sync_parent(path: &Path) -> Result<()> {
    let Some(parent) = path.parent().filter(|it| !it.as_os_str().is_empty()) else {
        return Ok(());
    };
    File::open(parent)
        .and_then(|it| it.sync_all())
        .map_err(|source| Error::Io {
            action: "write",
            path: parent.to_owned(),
            source,
        })
}

/// Removes what a killed process left unfinished in a run folder.
pub(crate) fn remove_leftovers(run_dir: &Path) -> Result<()> {
    for folder in [
        run_dir.to_owned(),
        run_dir.join("checkpoints"),
        run_dir.join("rollouts"),
    ] {
        let Ok(entries) = fs::read_dir(&folder) else {
            continue;
        };
        for path in entries
            .filter_map(std::result::Result::ok)
            .map(|it| it.path())
        {
            let extension = path.extension().and_then(|it| it.to_str());
            let removed = match extension {
                Some("partial") if path.is_dir() => fs::remove_dir_all(&path),
                Some("tmp") if path.is_file() => fs::remove_file(&path),
                _ => continue,
            };
            removed.map_err(|source| Error::Io {
                action: "remove",
                path: path.clone(),
                source,
            })?;
        }
    }
    Ok(())
}

/// Creates a folder and those above it.
pub(crate) fn create_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(|source| Error::Io {
        action: "create",
        path: path.to_owned(),
        source,
    })
}
