//! A file of finished work that a killed process resumes. The first line holds the settings, so that work of other
//! settings is never mixed in; each line after it is one finished piece. Lines are written at once, which a killed
//! process survives, and flushed to the disk in batches, which a power cut survives up to the last second. A last line
//! that was cut off is dropped, and its piece is done again; so is the piece of a damaged line between others. The file
//! is locked while it is open. The price of one file is that it is no data set: its first line is of another kind.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hapo_core::{Refusal, excerpt, expected};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::lock::lock;

/// How the journals of one kind are told from other files.
#[derive(Clone, Copy, Debug)]
pub struct JournalFormat {
    /// Key of the version in the first line.
    pub name: &'static str,
    pub version: u32,
    /// Key of the settings in the first line.
    pub settings: &'static str,
    /// The first line's name in messages.
    pub first_line: &'static str,
    /// A later line's name in messages.
    pub line: &'static str,
    /// What to do about a file that is no such journal.
    pub if_other: &'static str,
    /// What to do about a journal of other settings.
    pub if_changed: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Resumes a journal of the same settings, or starts one.
    ResumeOrStart,
    /// Resumes a journal of the same settings, which must exist.
    Resume,
    /// Starts a journal and drops the file's contents.
    Fresh,
}

#[derive(Clone, Copy, Debug)]
pub struct Span {
    start: u64,
    length: usize,
}

#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    end: u64,
    /// Numbers of the lines that could not be read and were passed over.
    pub damaged_lines: Vec<usize>,
    unflushed: usize,
    flushed: Instant,
}

const NOT_BEGUN: &str = "leave out --resume to start it";

impl Journal {
    /// Opens and locks the journal at `path` and hands every complete line after the first to `each`, which returns a
    /// reason to refuse one. An unreadable line is skipped: the others hold the paid work.
    pub fn open<L: DeserializeOwned>(
        path: &Path,
        format: &JournalFormat,
        settings: &Value,
        mode: OpenMode,
        each: impl FnMut(L, Span) -> Result<(), String>,
    ) -> Result<Self, Refusal> {
        let is_resumed = mode == OpenMode::Resume;
        let file = OpenOptions::new().create(!is_resumed).read(true).append(true).open(path);
        let file = file.map_err(|source| match source.kind() {
            ErrorKind::NotFound if is_resumed => nothing_to_resume(path, NOT_BEGUN),
            _ => Refusal::io("open", path)(source),
        })?;
        lock(&file, path, Duration::ZERO)?;
        if mode == OpenMode::Fresh {
            file.set_len(0).map_err(Refusal::io("write", path))?;
        }
        let Found { end, damaged_lines, .. } = read(&file, path, format, Some(settings), each)?;
        if end == 0 && is_resumed {
            return Err(nothing_to_resume(path, NOT_BEGUN));
        }
        file.set_len(end).map_err(Refusal::io("write", path))?;
        let (path, flushed) = (path.to_owned(), Instant::now());
        let mut journal = Self { path, file, end, damaged_lines, unflushed: 0, flushed };
        if end == 0 {
            // The version comes first: by it a first line that was cut off is recognised.
            let (name, version, key) = (format.name, format.version, format.settings);
            let first = format!("{{\"{name}\":{version},\"{key}\":{settings}}}\n");
            journal.write(first.as_bytes())?;
        }
        Ok(journal)
    }

    /// Reads a journal without opening it for writing: its settings, and its complete lines into `each`.
    pub fn read<L: DeserializeOwned>(
        path: &Path,
        format: &JournalFormat,
        each: impl FnMut(L, Span) -> Result<(), String>,
    ) -> Result<Value, Refusal> {
        let file = File::open(path).map_err(Refusal::io("read", path))?;
        let found = read(&file, path, format, None, each)?;
        found.settings.ok_or_else(|| nothing_to_resume(path, format.if_other))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a finished piece; the line is handed to the system before this returns.
    pub fn append(&mut self, line: &impl Serialize) -> Result<Span, Refusal> {
        let mut text = serde_json::to_vec(line).expect("a line is plain data");
        text.push(b'\n');
        self.write(&text)
    }

    fn write(&mut self, text: &[u8]) -> Result<Span, Refusal> {
        const BATCH: usize = 64;
        self.file.write_all(text).map_err(Refusal::io("write", &self.path))?;
        let span = Span { start: self.end, length: text.len() };
        self.end += text.len() as u64;
        self.unflushed += 1;
        if self.unflushed >= BATCH || self.flushed.elapsed() > Duration::from_secs(1) {
            self.flush()?;
        }
        Ok(span)
    }

    pub fn flush(&mut self) -> Result<(), Refusal> {
        self.file.sync_data().map_err(Refusal::io("write", &self.path))?;
        self.unflushed = 0;
        self.flushed = Instant::now();
        Ok(())
    }

    pub fn read_at<L: DeserializeOwned>(&mut self, span: Span) -> Result<L, Refusal> {
        let mut text = vec![0; span.length];
        self.file
            .seek(SeekFrom::Start(span.start))
            .and_then(|_| self.file.read_exact(&mut text))
            .and_then(|()| Ok(serde_json::from_slice(&text)?))
            .map_err(Refusal::io("read", &self.path))
    }
}

/// A file's contents: its settings, the end of its last complete line (0 without one), and the unreadable lines.
#[derive(Default)]
struct Found {
    settings: Option<Value>,
    end: u64,
    damaged_lines: Vec<usize>,
}

/// Reads a journal, which is refused where it is of other settings than those that are wanted.
fn read<L: DeserializeOwned>(
    file: &File,
    path: &Path,
    format: &JournalFormat,
    wanted: Option<&Value>,
    mut each: impl FnMut(L, Span) -> Result<(), String>,
) -> Result<Found, Refusal> {
    let malformed = |line: usize, what: &str, got: String| {
        let place = format!("{}:{line}", path.display());
        expected(what).got(got).about(place).hint(format.if_other)
    };
    let mut reader = BufReader::new(file);
    let (mut found, mut number, mut text) = (Found::default(), 0, Vec::new());
    loop {
        text.clear();
        let length = reader.read_until(b'\n', &mut text).map_err(Refusal::io("read", path))?;
        if text.last() != Some(&b'\n') {
            // The end, or a line that a kill cut off. A file that is no journal must not be taken for one whose
            // first line was cut off.
            let start = format!("{{\"{}\":", format.name).into_bytes();
            if number == 0 && !start.starts_with(&text[..text.len().min(start.len())]) {
                return Err(malformed(1, format.first_line, shown(&text)));
            }
            return Ok(found);
        }
        number += 1;
        if number == 1 {
            let recorded = settings_of(&text, format);
            let recorded = recorded.ok_or_else(|| malformed(1, format.first_line, shown(&text)))?;
            if let Some(wanted) = wanted.filter(|it| **it != recorded) {
                let (path, differences) = (path.display(), differences(&recorded, wanted));
                let problem = format!("{path} was started with other settings: {differences}");
                return Err(Refusal::input(problem).hint(format.if_changed));
            }
            found.settings = Some(recorded);
        } else if let Ok(line) = serde_json::from_slice(&text) {
            each(line, Span { start: found.end, length })
                .map_err(|got| malformed(number, format.line, got))?;
        } else {
            found.damaged_lines.push(number);
        }
        found.end += length as u64;
    }
}

fn nothing_to_resume(path: &Path, hint: &'static str) -> Refusal {
    let problem = format!("nothing to resume: {} does not exist or is empty", path.display());
    Refusal::input(problem).hint(hint)
}

fn settings_of(first_line: &[u8], format: &JournalFormat) -> Option<Value> {
    let mut line: Map<String, Value> = serde_json::from_slice(first_line).ok()?;
    let version = line.get(format.name)?.as_u64()?;
    (version == u64::from(format.version)).then_some(())?;
    line.remove(format.settings)
}
fn shown(line: &[u8]) -> String {
    excerpt(String::from_utf8_lossy(line).trim_end(), 80)
}

/// Each setting that differs between two objects, with both values.
pub fn differences(recorded: &Value, now: &Value) -> String {
    let both = recorded.as_object().into_iter().chain(now.as_object());
    let mut names: BTreeSet<&String> = both.flat_map(Map::keys).collect();
    names.retain(|it| recorded.get(it) != now.get(it));
    let shown = |it: Option<&Value>| {
        it.map_or_else(|| "nothing".to_owned(), |it| excerpt(&it.to_string(), 80))
    };
    let differing = names.into_iter().map(|it| {
        let (then, now) = (shown(recorded.get(it)), shown(now.get(it)));
        format!("{it} was {then}, is {now}")
    });
    differing.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const FORMAT: JournalFormat = JournalFormat {
        name: "hapo_test",
        version: 1,
        settings: "asked",
        first_line: "the settings of a test",
        line: "one number",
        if_other: "another",
        if_changed: "the same",
    };

    fn open(path: &Path, settings: &Value, mode: OpenMode) -> Result<(Journal, Vec<u32>), Refusal> {
        let mut found = Vec::new();
        let journal = Journal::open(path, &FORMAT, settings, mode, |it: u32, _| {
            if it == 99 {
                return Err("99, which is too large".to_owned());
            }
            found.push(it);
            Ok(())
        })?;
        Ok((journal, found))
    }

    #[test]
    fn a_journal_cut_anywhere_is_resumed_at_its_last_complete_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let settings = json!({ "b": 1, "a": "x" });
        let (mut journal, found) = open(&path, &settings, OpenMode::Fresh).unwrap();
        assert_eq!(found, [0; 0]);
        let spans = [7_u32, 8].map(|it| journal.append(&it).unwrap());
        assert_eq!(journal.read_at::<u32>(spans[0]).unwrap(), 7);
        let again = open(&path, &settings, OpenMode::Fresh).unwrap_err();
        assert!(again.cause::<crate::Busy>().is_some());
        drop(journal);
        let whole = std::fs::read(&path).unwrap();
        assert!(whole.starts_with(b"{\"hapo_test\":1,\"asked\":{"));
        for cut in 0..=whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let (mut journal, found) = open(&path, &settings, OpenMode::ResumeOrStart).unwrap();
            assert!([7, 8].starts_with(&found), "{cut}: {found:?}");
            for it in &[7, 8][found.len()..] {
                journal.append(it).unwrap();
            }
            assert_eq!(std::fs::read(&path).unwrap(), whole, "{cut}");
        }
        let mut read = Vec::new();
        let recorded = Journal::read(&path, &FORMAT, |it: u32, _| {
            read.push(it);
            Ok(())
        });
        assert_eq!((recorded.unwrap(), read), (settings, vec![7, 8]));
    }

    #[test]
    fn a_damaged_line_is_passed_over_and_the_others_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let settings = json!({ "k": 2 });
        let text = b"{\"hapo_test\":1,\"asked\":{\"k\":2}}\n7\n\xff8\n-1\n9\n";
        std::fs::write(&path, text).unwrap();
        let (mut journal, found) = open(&path, &settings, OpenMode::Resume).unwrap();
        assert_eq!((found, &journal.damaged_lines[..]), (vec![7, 9], &[3, 4][..]));
        journal.append(&8).unwrap();
        drop(journal);
        assert_eq!(open(&path, &settings, OpenMode::Resume).unwrap().1, [7, 9, 8]);
    }

    #[test]
    fn what_is_no_journal_of_these_settings_is_refused_and_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let settings = json!({ "k": 2 });
        let refused = |settings: &Value, mode| {
            let message = open(&path, settings, mode).unwrap_err().to_string();
            message.replace(&folder.path().display().to_string(), "")
        };
        assert_eq!(
            refused(&settings, OpenMode::Resume),
            "nothing to resume: /j does not exist or is empty"
        );
        open(&path, &settings, OpenMode::ResumeOrStart).unwrap();
        assert_eq!(
            refused(&json!({ "k": 4, "l": null }), OpenMode::Resume),
            "/j was started with other settings: k was 2, is 4; l was nothing, is null"
        );
        for (text, expected) in [
            ("{\"id\":1}\n", "/j:1: expected the settings of a test, got {\"id\":1}"),
            ("hello", "/j:1: expected the settings of a test, got hello"),
            (
                "{\"hapo_test\":2,\"asked\":{}}\n",
                "/j:1: expected the settings of a test, got {\"hapo_test\":2,\"asked\":{}}",
            ),
            (
                "{\"hapo_test\":1,\"asked\":{\"k\":2}}\n7\n99\n",
                "/j:3: expected one number, got 99, which is too large",
            ),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(refused(&settings, OpenMode::ResumeOrStart), expected);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }
}
