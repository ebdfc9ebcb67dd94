//! Where the fixtures are.

use std::path::{Path, PathBuf};

/// A file of the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The folder of fixtures.
pub fn fixtures() -> PathBuf {
    repository("testdata/fixtures")
}

/// The folder of a small reference model, as `tiny-qwen2`.
pub fn model_dir(name: &str) -> PathBuf {
    fixtures().join("models").join(name)
}
