//! Refusals that several modules word alike.

use hapo_core::{Fault, Refusal};
use std::{fmt::Display, path::Path};

pub(crate) type Result<T, E = Refusal> = std::result::Result<T, E>;

/// The hint for a file that contradicts itself or is cut.
pub(crate) const DAMAGED: &str = "take the file again from where it comes";

pub(crate) fn of_file(path: &Path, problem: impl Display, hint: &'static str) -> Refusal {
    Refusal::input(format!("{}: {problem}", path.display())).hint(hint)
}

/// A file that cannot be written where the user asks for it.
pub(crate) fn unwritten(path: &Path, source: std::io::Error) -> Refusal {
    use std::io::ErrorKind::{IsADirectory, NotADirectory, NotFound, PermissionDenied};
    let kind = source.kind();
    let refusal = Refusal::io("write", path)(source);
    if !matches!(kind, NotFound | NotADirectory | IsADirectory | PermissionDenied) {
        return refusal;
    }
    refusal.with_fault(Fault::Input).hint("paths are relative to the current folder")
}

/// A name that is in none of the tables of this crate.
pub(crate) fn unknown<'k>(kind: &str, name: &str, known: impl Iterator<Item = &'k str>) -> Refusal {
    let known = known.collect::<Vec<_>>().join(", ");
    Refusal::input(format!("unknown {kind} `{name}`, expected one of: {known}"))
}
