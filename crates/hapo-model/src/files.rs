//! Files of a model folder: reading up to a limit, the checksums of what was written, and errors about bad ones.

use std::io::{ErrorKind, Read};
use std::{collections::BTreeMap, fmt::Display, fs::File, path::Path};

use hapo_core::{Refusal, expected, found_at, hex, if_there};
use sha2::{Digest, Sha256};

/// Files that go with a model's weights, name and bytes.
pub type Companions = Vec<(&'static str, Vec<u8>)>;

/// Where a model's configuration ends and 16 MiB of something else begins.
pub(crate) const MAX_JSON_BYTES: u64 = 16 << 20;

pub(crate) const RELOAD: &str = "the file is damaged or incomplete; fetch or write it again";

const FOLDER: &str = "a model folder holds config.json, tokenizer.json and model.safetensors (or shards with an index)";

/// The bytes of a file that goes with a model, at most 256 MiB (a tokenizer of 250,000 entries takes about 20 MB); those
/// of its checksum where its folder has one.
pub fn read_file(file: &Path) -> Result<Vec<u8>, Refusal> {
    read_bounded(file, 256 << 20)
}

/// The bytes of a file, which are those of its checksum where its folder has one.
pub(crate) fn read_bounded(file: &Path, limit: u64) -> Result<Vec<u8>, Refusal> {
    let handle = open(file)?;
    let mut bytes = Vec::new();
    (handle.take(limit + 1).read_to_end(&mut bytes)).map_err(io("read", file))?;
    if bytes.len() as u64 > limit {
        return Err(malformed(file, format!("at most {limit} bytes"), "more"));
    }
    match checksum_of(file)? {
        Some(sum) if sum != hex(Sha256::digest(&bytes)) => Err(broken(file, DIFFERS)),
        _ => Ok(bytes),
    }
}

/// Opens a regular file: a pipe would be waited for, and a device has no end.
pub(crate) fn open(file: &Path) -> Result<File, Refusal> {
    let found = std::fs::metadata(file).map_err(io("open", file))?;
    if !found.is_file() {
        let got = if found.is_dir() { "a folder" } else { "a pipe or device" };
        return Err(malformed(file, "a file", got));
    }
    File::open(file).map_err(io("open", file))
}

/// Fills `bytes` from a place of the file on. Read rather than mapped: a file that is shortened meanwhile, or a disk that
/// fails, is an error and not a signal.
pub(crate) fn read_exact_at(
    file: &File,
    path: &Path,
    place: usize,
    bytes: &mut [u8],
) -> Result<(), Refusal> {
    #[cfg(unix)]
    let read = std::os::unix::fs::FileExt::read_exact_at(file, bytes, place as u64);
    #[cfg(windows)]
    let read = std::os::windows::fs::FileExt::seek_read(file, bytes, place as u64)
        .and_then(|n| if n < bytes.len() { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(()) });
    read.map_err(|cause| match cause.kind() {
        ErrorKind::UnexpectedEof => {
            malformed(path, format!("{} more bytes", bytes.len()), "the end of the file")
        }
        _ => io("read", path)(cause),
    })
}

pub(crate) fn malformed(file: &Path, expected: impl Display, got: impl Display) -> Refusal {
    refused(file, "", expected, got).hint(RELOAD)
}

/// Refuses numbers of a tensor from `first` on that are no numbers.
pub(crate) fn require_finite(
    file: &Path,
    tensor: &str,
    first: usize,
    values: &[f32],
) -> Result<(), Refusal> {
    // Without a branch for each: the largest exponent carries into the highest bit.
    let carried = |it: &f32| (it.to_bits() & 0x7fff_ffff).wrapping_add(0x0080_0000);
    if values.iter().fold(0, |all, it| all | carried(it)) >> 31 == 0 {
        return Ok(());
    }
    match values.iter().position(|value| !value.is_finite()) {
        None => Ok(()),
        Some(i) => {
            let got = format!("{} at position {}", values[i], first + i);
            Err(refused(file, tensor, "finite numbers", got))
        }
    }
}

/// Refuses `place`, a field or tensor of `file`, or the whole file where it is empty.
pub(crate) fn refused(
    file: &Path,
    place: impl Display,
    expectation: impl Display,
    got: impl Display,
) -> Refusal {
    let (refusal, place) = (expected(expectation).got(got), place.to_string());
    in_file(file, if place.is_empty() { refusal } else { refusal.at(place) })
}

/// A refusal within `outer`, the prefix of its place.
pub(crate) fn inside(outer: &str, refusal: Refusal) -> Refusal {
    let place = format!("{outer}{}", refusal.place().unwrap_or_default());
    refusal.at(place)
}

pub(crate) fn in_file(file: &Path, refusal: Refusal) -> Refusal {
    let file = file.display();
    match refusal.place() {
        Some(_) => inside(&format!("{file}: "), refusal),
        None => refusal.at(file),
    }
}

pub(crate) fn several(mut refused: Vec<Refusal>) -> Option<Refusal> {
    if refused.len() < 2 {
        return refused.pop();
    }
    let each: Vec<String> = refused.iter().map(ToString::to_string).collect();
    let (n, each) = (refused.len(), each.join("; "));
    let whole = Refusal::input(format!("{n} fields ask for another decoder: {each}"));
    let hint = refused.iter().find_map(Refusal::how_to_mend).map(str::to_owned);
    Some(match hint {
        Some(hint) => whole.hint(hint),
        None => whole,
    })
}

/// A failed system call on a file of a model folder, whatever it was to do.
pub(crate) fn io(action: &'static str, file: &Path) -> impl FnOnce(std::io::Error) -> Refusal {
    let refuse = Refusal::io(action, file);
    move |cause| {
        let is_missing = cause.kind() == std::io::ErrorKind::NotFound;
        let refusal = refuse(cause);
        if is_missing { refusal.hint(FOLDER) } else { refusal }
    }
}

/// True if a file is there. Where its folder's checksums list it, it is no choice whether it is.
pub fn is_there(path: &Path) -> Result<bool, Refusal> {
    let is_there = found_at(path)?.is_some();
    if is_there || checksum_of(path)?.is_none() {
        Ok(is_there)
    } else {
        Err(broken(path, " is missing"))
    }
}

/// At most the first 80 characters, so that a hostile file cannot fill the terminal.
pub(crate) fn excerpt(text: &str) -> String {
    hapo_core::excerpt(text, 80)
}

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
