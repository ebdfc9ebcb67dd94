//! Files of a model folder: reading up to a limit, and errors about bad ones.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::Error;

/// Where a model's configuration ends and 16 MiB of something else begins.
pub(crate) const MAX_JSON_BYTES: u64 = 16 << 20;

pub(crate) const RELOAD: &str = "the file is damaged or incomplete; fetch or write it again";

pub(crate) fn read_bounded(file: &Path, limit: u64) -> Result<Vec<u8>, Error> {
    let handle = open(file)?;
    let mut bytes = Vec::new();
    (handle.take(limit + 1).read_to_end(&mut bytes)).map_err(Error::io("read", file))?;
    if bytes.len() as u64 > limit {
        return Err(malformed(file, format!("at most {limit} bytes"), "more"));
    }
    Ok(bytes)
}

/// Opens a regular file: a pipe would be waited for, and a device has no end.
pub(crate) fn open(file: &Path) -> Result<File, Error> {
    let found = std::fs::metadata(file).map_err(Error::io("open", file))?;
    if !found.is_file() {
        let got = if found.is_dir() { "a folder" } else { "a pipe or device" };
        return Err(malformed(file, "a file", got));
    }
    File::open(file).map_err(Error::io("open", file))
}

pub(crate) fn malformed(file: &Path, expected: impl Into<String>, got: impl Into<String>) -> Error {
    Error::refused(file, "", expected, got).with_hint(RELOAD)
}

pub(crate) fn require_finite(file: &Path, tensor: &str, values: &[f32]) -> Result<(), Error> {
    match values.iter().position(|value| !value.is_finite()) {
        None => Ok(()),
        Some(i) => {
            let got = format!("{} at position {i}", values[i]);
            Err(Error::refused(file, tensor, "finite numbers", got))
        }
    }
}
