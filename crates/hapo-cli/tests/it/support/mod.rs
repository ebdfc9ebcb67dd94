//! The binary, run as a user would.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A file of the repository.
#[allow(dead_code, reason = "not every test file needs every helper")]
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The command under test: what `HAPO` names, as the wheel's command, else the binary.
pub(crate) fn binary() -> OsString {
    std::env::var_os("HAPO").unwrap_or_else(|| env!("CARGO_BIN_EXE_hapo").into())
}

/// Runs `hapo` in a folder.
pub(crate) fn hapo(folder: &Path, args: &[&str]) -> Output {
    Command::new(binary()).args(args).current_dir(folder).env("NO_COLOR", "1").output().unwrap()
}

/// Runs `hapo` and expects success; gives what it printed.
#[allow(dead_code, reason = "not every test file needs every helper")]
pub(crate) fn succeed(folder: &Path, args: &[&str]) -> String {
    let output = hapo(folder, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs `hapo`, expects exit code 2 and gives the message.
#[allow(dead_code, reason = "not every test file needs every helper")]
pub(crate) fn refuse(folder: &Path, args: &[&str]) -> String {
    let output = hapo(folder, args);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
    assert!(
        output.stdout.is_empty(),
        "{args:?} printed {}",
        String::from_utf8_lossy(&output.stdout)
    );
    message
}
