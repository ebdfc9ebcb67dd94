//! The command `hapo`.

use std::ffi::OsString;
use std::io::Write;

use pyo3::prelude::*;

/// Runs the command with these arguments, the program's name first, and gives its exit code.
#[pyfunction]
pub(crate) fn command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| {
        let code = hapo_cli::run(arguments);
        // A program of Rust's does so when it ends; a reader that is gone has seen what it wanted.
        let _ = std::io::stdout().flush();
        code
    })
}
