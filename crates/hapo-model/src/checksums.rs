//! The checksums of a checkpoint: what is read of its files is what was written into them.

use std::collections::BTreeMap;
use std::path::Path;

use hapo_core::{Refusal, if_there};

/// SHA-256 of the files of a folder by their names, of the bytes as they were handed to the disk.
pub type Checksums = BTreeMap<String, String>;

pub const CHECKSUMS: &str = "checksums.json";
pub const DIFFERS: &str = " differs from its checksum";

/// The checksums of a folder; none where it has no file of them.
pub fn checksums(folder: &Path) -> Result<Option<Checksums>, Refusal> {
    let path = folder.join(CHECKSUMS);
    let text = if_there(&path, std::fs::read(&path))?;
    let parsed = text.map(|text| serde_json::from_slice(&text)).transpose();
    parsed.map_err(|it| broken_checkpoint(folder, &format!("{CHECKSUMS}: {it}")))
}

/// The checksum that a file's folder, or the one above a checkpoint's `trainer_state`, lists for it.
pub(crate) fn checksum_of(file: &Path) -> Result<Option<String>, Refusal> {
    let Some(mut folder) = file.parent() else { return Ok(None) };
    if folder.ends_with("trainer_state") {
        folder = folder.parent().unwrap_or(folder);
    }
    let name = file.strip_prefix(folder).expect("a file in the folder").to_str();
    Ok(checksums(folder)?.and_then(|mut all| all.remove(name?)))
}

/// The refusal of a file that a command takes from a checkpoint.
pub(crate) fn broken(file: &Path, problem: &str) -> Refusal {
    let (folder, name) = (file.parent().unwrap_or(file), file.file_name().unwrap_or_default());
    broken_checkpoint(folder, &format!("{}{problem}", name.display()))
        .hint("restore it from a copy; where it was changed on purpose, remove checksums.json")
}

/// The refusal of a checkpoint that is incomplete, altered or of another run.
pub fn broken_checkpoint(folder: &Path, problem: &str) -> Refusal {
    let problem = format!("checkpoint {}: {problem}", folder.display());
    Refusal::input(problem).hint("restore the folder from a copy, or choose another --run-dir")
}
