//! Run folders to pages: the report, its figures, the live view.
//!
//! A run folder is read as far as it can be read. What is missing or broken becomes a note on the page;
//! only a folder that holds no run is an error. This crate knows run folders by their files, not by the
//! trainer's types, so a page can be made of the runs of another version. It writes nothing into them.

mod data;
mod drawing;
mod error;
mod evaluation;
mod figures;
mod folder;
mod live;
mod metrics;
mod page;
mod rollouts;
mod summary;

use std::path::{Path, PathBuf};

pub use error::{Error, Result};
pub use live::LiveView;

/// A self-contained page of the runs in `folders`; each is a run or holds runs below it.
///
/// # Errors
/// A folder without a run, or one that the system does not let us read.
pub fn report(folders: &[PathBuf]) -> Result<String> {
    let runs = folder::read_all(&folder::find(folders)?)?;
    Ok(page::stored(runs))
}

/// Says whether `folders` hold runs.
///
/// # Errors
/// The first that does not.
pub fn require_runs(folders: &[PathBuf]) -> Result<()> {
    folder::find(folders).map(drop)
}

/// Writes every figure of the runs in `folders` as SVG and PNG into `out`, and gives the files' names.
///
/// # Errors
/// As [`report`], and an `out` that cannot be written.
pub fn figures(folders: &[PathBuf], out: &Path) -> Result<Vec<PathBuf>> {
    let runs = folder::read_all(&folder::find(folders)?)?;
    std::fs::create_dir_all(out).map_err(Error::io("create", out))?;
    let mut written = Vec::new();
    for it in drawing::all(&runs) {
        for (extension, bytes) in [
            ("svg", it.svg.clone().into_bytes()),
            ("png", drawing::png(&it)?),
        ] {
            let path = out.join(format!("{}.{extension}", it.id));
            write_whole(&path, &bytes)?;
            written.push(path);
        }
    }
    Ok(written)
}

/// Writes a file aside and renames it, so that it is whole or absent.
///
/// # Errors
/// A place that cannot be written.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut aside = path.as_os_str().to_owned();
    // Two processes may write the same file: each writes its own, and the last rename holds.
    aside.push(format!(".{}.tmp", std::process::id()));
    let aside = PathBuf::from(aside);
    std::fs::write(&aside, bytes)
        .and_then(|()| std::fs::rename(&aside, path))
        .map_err(|it| {
            let _ = std::fs::remove_file(&aside);
            Error::io("write", path)(it)
        })
}
