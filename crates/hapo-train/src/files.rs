//! Files that are either whole or absent.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use crate::error::{Error, Result};

/// Writes a file under a temporary name, flushes it to the disk and renames it.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    let io = |action| {
        move |source| Error::Io {
            action,
            path: path.to_owned(),
            source,
        }
    };
    let aside = path.with_extension("tmp");
    let mut file = File::create(&aside).map_err(io("create"))?;
    file.write_all(bytes).map_err(io("write"))?;
    file.sync_all().map_err(io("write"))?;
    fs::rename(&aside, path).map_err(io("rename"))?;
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

/// Creates a folder and those above it.
pub(crate) fn create_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(|source| Error::Io {
        action: "create",
        path: path.to_owned(),
        source,
    })
}
