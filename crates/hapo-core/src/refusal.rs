//! Refusals: the one error that a person reads.

use std::borrow::Cow;
use std::error::Error;
use std::fmt::{self, Display};
use std::fs::Metadata;
use std::io::{self, ErrorKind as Kind};
use std::path::Path;

/// Whose fault a refusal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The input: a recipe, a file, an option, a request. The command ends with exit code 2.
    Input,
    /// The machine: a disk, a server, memory.
    Machine,
    /// The program.
    Bug,
}

/// Why something cannot be done: the thing, what was expected and what came, the place, what the reader can do, whose
/// fault it is, and the error below. Printed: `what: expected …, got …: source (place)`, without the parts it lacks.
///
/// Code that must tell one failure from another has an enum of its own and turns it into a refusal where only a
/// person is left to read it.
///
/// ```
/// use hapo_core::{Fault, expected};
///
/// let refusal = expected("a rank from 1 to 4096").got(0).at("lora.rank").hint("leave it out for 16");
/// assert_eq!(refusal.to_string(), "expected a rank from 1 to 4096, got 0 (lora.rank)");
/// assert_eq!(refusal.fault(), Fault::Input);
/// ```
#[derive(Debug)]
pub struct Refusal(Box<Parts>);

#[derive(Debug)]
struct Parts {
    what: Cow<'static, str>,
    expected: Option<String>,
    got: Option<String>,
    place: Option<String>,
    hint: Option<Cow<'static, str>>,
    fault: Fault,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// A refused input by what was expected of it; [`Refusal::got`] says what came.
pub fn expected(expected: impl Display) -> Refusal {
    let mut refusal = Refusal::input("");
    refusal.0.expected = Some(expected.to_string());
    refusal
}

/// What a system call read of `path`, or `None` where nothing is there. Another error is no absence: whoever takes an
/// unreadable file for a missing one goes on with something else.
pub fn if_there<T>(path: &Path, read: io::Result<T>) -> Result<Option<T>, Refusal> {
    match read {
        Err(error) if is_absence(&error) => Ok(None),
        read => read.map(Some).map_err(Refusal::io("read", path)),
    }
}

/// What is at `path`, a link followed, or `None` where nothing is.
pub fn found_at(path: &Path) -> Result<Option<Metadata>, Refusal> {
    if_there(path, path.metadata())
}

/// Errors by which a system says that a path leads to nothing.
fn is_absence(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        Kind::NotFound | Kind::NotADirectory | Kind::InvalidFilename | Kind::InvalidInput
    )
}

impl Refusal {
    /// A refusal of the input.
    pub fn input(what: impl Into<Cow<'static, str>>) -> Self {
        Self::of(Fault::Input, what)
    }

    /// A failure of the machine.
    pub fn machine(what: impl Into<Cow<'static, str>>) -> Self {
        Self::of(Fault::Machine, what)
    }

    /// A failure of the program.
    pub fn bug(what: impl Into<Cow<'static, str>>) -> Self {
        Self::of(Fault::Bug, what)
    }

    fn of(fault: Fault, what: impl Into<Cow<'static, str>>) -> Self {
        let what = what.into();
        let parts =
            Parts { what, expected: None, got: None, place: None, hint: None, fault, source: None };
        Self(Box::new(parts))
    }

    /// A refused input in the words of the error below it.
    pub fn because(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::input("").source(source)
    }

    /// A failed system call on `path`; `action` is `read`, `write`, `create`, … It is the input's fault where there is
    /// nothing to read at the path, or nothing that may be read; a disk that fails is the machine's.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let what = format!("cannot {action} {}", path.display());
        move |source| {
            let is_missing = is_absence(&source);
            let is_refused = matches!(source.kind(), Kind::PermissionDenied | Kind::IsADirectory);
            let is_of_system = source.raw_os_error().is_some() && !is_missing && !is_refused;
            if is_of_system || !matches!(action, "read" | "open" | "map") {
                return Self::machine(what).source(source);
            }
            let refusal = Self::input(what).source(source);
            let hint = "paths are relative to the current folder";
            if is_missing { refusal.hint(hint) } else { refusal }
        }
    }

    /// Names the thing that the refusal is about, in front of what it says already.
    pub fn about(mut self, thing: impl Display) -> Self {
        self.0.what = match &*self.0.what {
            "" => thing.to_string().into(),
            what => format!("{thing}: {what}").into(),
        };
        self
    }

    /// What came instead of the expected.
    pub fn got(mut self, got: impl Display) -> Self {
        self.0.got = Some(got.to_string());
        self
    }

    /// The place: a file with its line, a key, a row.
    pub fn at(mut self, place: impl Display) -> Self {
        self.0.place = Some(place.to_string());
        self
    }

    /// What the reader can do, in the words of the command. "Another output" stands for the option of the command at hand.
    pub fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Whose fault it is, where the caller knows better.
    pub fn with_fault(mut self, fault: Fault) -> Self {
        self.0.fault = fault;
        self
    }

    /// The error below, whose words are a part of the refusal's.
    pub fn source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// What the reader can do, if it is known.
    pub fn how_to_mend(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The place, if it is known.
    pub fn place(&self) -> Option<&str> {
        self.0.place.as_deref()
    }

    /// What it says, without the place.
    pub fn problem(&self) -> String {
        let Parts { what, expected, got, source, .. } = &*self.0;
        let expectation = match (expected, got) {
            (Some(expected), Some(got)) => Some(format!("expected {expected}, got {got}")),
            (Some(expected), None) => Some(format!("expected {expected}")),
            (None, Some(got)) => Some(format!("got {got}")),
            (None, None) => None,
        };
        let what = (!what.is_empty()).then(|| what.to_string());
        let source = source.as_ref().map(ToString::to_string);
        let parts: Vec<String> = [what, expectation, source].into_iter().flatten().collect();
        parts.join(": ")
    }

    /// Whose fault it is.
    pub fn fault(&self) -> Fault {
        self.0.fault
    }

    /// True if the input is at fault rather than the machine or the program.
    pub fn is_bad_input(&self) -> bool {
        self.0.fault == Fault::Input
    }

    /// The error below of type `E`, at whatever depth.
    pub fn cause<E: Error + 'static>(&self) -> Option<&E> {
        let mut below = Error::source(self);
        while let Some(error) = below {
            if let Some(found) = error.downcast_ref() {
                return Some(found);
            }
            below = error.source();
        }
        None
    }
}

impl Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.0.place.as_ref().map(|it| format!(" ({it})")).unwrap_or_default();
        write!(f, "{}{place}", self.problem())
    }
}

impl Error for Refusal {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source.as_ref().map(|source| &**source as &(dyn Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_prints_the_parts_it_has() {
        let io = || std::io::Error::other("disk on fire");
        let path = Path::new("a.toml");
        let read = Refusal::io("read", path)(io());
        assert_eq!(read.to_string(), "cannot read a.toml: disk on fire");
        assert_eq!(read.fault(), Fault::Input);
        assert!(read.cause::<std::io::Error>().is_some());
        assert_eq!(Refusal::io("write", path)(io()).fault(), Fault::Machine);
        let of_system = |code| Refusal::io("read", path)(std::io::Error::from_raw_os_error(code));
        // ENOENT and EACCES are the input's, EIO and EMFILE the machine's.
        assert_eq!(
            [2, 13, 5, 24].map(|it| of_system(it).is_bad_input()),
            [true, true, false, false]
        );
        let bare = Refusal::because(io()).about("row 3").at("b.jsonl:3");
        assert_eq!(bare.to_string(), "row 3: disk on fire (b.jsonl:3)");
        let nested = Refusal::because(Refusal::because(io()).hint("call"));
        assert!(nested.cause::<std::io::Error>().is_some() && nested.how_to_mend().is_none());
        assert_eq!(Refusal::input("no").hint("free space").how_to_mend(), Some("free space"));
    }
}
