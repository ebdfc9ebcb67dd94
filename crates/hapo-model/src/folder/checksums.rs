//! The checksums of a checkpoint: what is read of its files is what was written into them.

use std::collections::BTreeMap;
use std::path::Path;

use hapo_core::{Refusal, Remedy, hex, if_there};
use sha2::{Digest, Sha256};

/// SHA-256 of the files of a folder by their names, of the bytes as they were handed to the disk.
pub type Checksums = BTreeMap<String, String>;

/// The file of a folder's checksums.
pub const CHECKSUMS: &str = "checksums.json";

/// The checksums of a folder; none where it has no file of them.
pub fn checksums(folder: &Path) -> Result<Option<Checksums>, Refusal> {
    let path = folder.join(CHECKSUMS);
    let text = if_there(&path, std::fs::read(&path))?;
    let parse = |text: Vec<u8>| serde_json::from_slice(&text);
    text.map(parse)
        .transpose()
        .map_err(|it| broken_checkpoint(folder, &format!("{CHECKSUMS}: {it}")))
}

/// The checksum that a file's folder lists for it.
pub(crate) fn checksum_of(file: &Path) -> Result<Option<String>, Refusal> {
    let Some(name) = file.file_name().and_then(|it| it.to_str()) else { return Ok(None) };
    Ok(checksums(folder_of(file))?.and_then(|mut it| it.remove(name)))
}

/// Refuses bytes of a file that are others than its folder's checksum is of.
pub fn require_as_written(file: &Path, bytes: &[u8]) -> Result<(), Refusal> {
    match checksum_of(file)? {
        Some(sum) if sum != hex(Sha256::digest(bytes)) => Err(altered(file)),
        _ => Ok(()),
    }
}

/// The refusal of a file that is not as it was written.
pub(crate) fn altered(file: &Path) -> Refusal {
    broken(file, "differs from its checksum")
}

/// The refusal of a file that its folder's checksums list and that is not there.
pub(crate) fn missing(file: &Path) -> Refusal {
    broken(file, "is missing")
}

fn broken(file: &Path, what: &str) -> Refusal {
    let name = file.file_name().unwrap_or_default().display();
    broken_checkpoint(folder_of(file), &format!("{name} {what}"))
        .hint("restore it from a copy; where it was changed on purpose, remove checksums.json")
}

fn folder_of(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new(""))
}

/// The refusal of a checkpoint that is incomplete, altered or of another run.
pub fn broken_checkpoint(folder: &Path, problem: &str) -> Refusal {
    let problem = format!("checkpoint {}: {problem}", folder.display());
    Refusal::input(problem).hint(Remedy::RestoreCheckpoint)
}
