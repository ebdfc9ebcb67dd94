//! Every answer on disk the moment it arrives.
//!
//! The first line says what was asked, so that answers to other questions are never mixed in; each line after it is one
//! finished attempt. Lines are written at once, which a killed process survives, and flushed to the disk in batches,
//! which a power cut survives up to the last second. A last line that was cut off is dropped; it is asked again. The file
//! is locked while it is open.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::client::shorten;
use crate::error::Error;
use crate::session::PromptKind;

/// What shapes the answers. A journal belongs to one of these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// The endpoint without secrets, or `local`.
    pub endpoint: String,
    /// The model's name.
    pub model: String,
    /// How it is asked.
    pub prompt: PromptKind,
    /// The system turn, if any.
    pub system: Option<String>,
    /// Sampling temperature.
    pub temperature: f64,
    /// Nucleus mass.
    pub top_p: f64,
    /// Longest answer in tokens.
    pub max_tokens: Option<u64>,
    /// Seed of the answers.
    pub seed: u64,
    /// Further fields of the request.
    pub extra: Map<String, Value>,
    /// SHA-256 of the prompts and their answers.
    pub input: String,
}

/// One finished attempt at one prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// The answer, as it came; `None` if there was none.
    pub text: Option<String>,
    /// Why there is none.
    pub failed: Option<String>,
    /// Why the answer ended: `stop`, `length` and others.
    pub finish_reason: Option<String>,
    /// The name under which the server answered.
    pub served_by: Option<String>,
    /// Tokens of the question, if they were counted.
    pub prompt_tokens: Option<u64>,
    /// Tokens of the answer, if they were counted.
    pub completion_tokens: Option<u64>,
    /// Requests that were sent for it.
    pub requests: u32,
    /// Milliseconds from the first request to the end.
    pub milliseconds: u64,
    /// When it ended, in seconds since 1970.
    pub at: u64,
}

/// Whether a journal may or must exist already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// Go on if there is one that fits.
    ResumeOrStart,
    /// There must be one that fits.
    Resume,
    /// Throw away what there is.
    Fresh,
}

#[derive(Serialize, Deserialize)]
struct Head {
    hapo_teacher_journal: u32,
    asked: Value,
}

/// A line after the first, as it is read.
#[derive(Deserialize)]
struct Line {
    prompt: usize,
    attempt: u32,
    #[serde(flatten)]
    it: Attempt,
}

/// The same, as it is written.
#[derive(Serialize)]
struct WrittenLine<'a> {
    prompt: usize,
    attempt: u32,
    #[serde(flatten)]
    it: &'a Attempt,
}

const VERSION: u32 = 1;

/// Where a line lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    start: u64,
    length: usize,
}

pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    end: u64,
    unflushed: usize,
    flushed: Instant,
}

impl Journal {
    /// Opens and locks the journal at `path` and hands every attempt in it to `each`: prompt, attempt, what it was, where
    /// it lies.
    pub(crate) fn open(
        path: &Path,
        origin: &Origin,
        begin: Begin,
        mut each: impl FnMut(usize, u32, Attempt, Spot) -> Result<(), String>,
    ) -> Result<Self, Error> {
        let io = |action| {
            move |source| Error::Io {
                action,
                path: path.to_owned(),
                source,
            }
        };
        let file = OpenOptions::new()
            .create(begin != Begin::Resume)
            .read(true)
            .append(true)
            .open(path)
            .map_err(|source| match source.kind() {
                std::io::ErrorKind::NotFound if begin == Begin::Resume => Error::NoJournal {
                    path: path.to_owned(),
                },
                _ => io("open")(source),
            })?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Busy {
                    path: path.to_owned(),
                });
            }
            Err(TryLockError::Error(source)) => return Err(io("lock")(source)),
        }
        if begin == Begin::Fresh {
            file.set_len(0).map_err(io("write"))?;
        }
        let malformed = |line, expected, got: &str| Error::Journal {
            path: path.to_owned(),
            line,
            expected,
            got: shorten(got, 80),
        };
        let asked = serde_json::to_value(origin).expect("settings are plain data");
        let mut reader = BufReader::new(&file);
        let (mut end, mut number, mut text) = (0, 0, Vec::new());
        loop {
            text.clear();
            let length = reader.read_until(b'\n', &mut text).map_err(io("read"))?;
            if text.last() != Some(&b'\n') {
                // The end, or a line that a kill cut off.
                break;
            }
            number += 1;
            let shown = || String::from_utf8_lossy(&text).trim_end().to_owned();
            if number == 1 {
                let head: Head = serde_json::from_slice(&text)
                    .ok()
                    .filter(|it: &Head| it.hapo_teacher_journal == VERSION)
                    .ok_or_else(|| malformed(1, "the head of a teacher's journal", &shown()))?;
                if head.asked != asked {
                    return Err(Error::Settings {
                        path: path.to_owned(),
                        differences: differences(&head.asked, &asked),
                    });
                }
            } else {
                let line: Line = serde_json::from_slice(&text)
                    .map_err(|_| malformed(number, "one finished attempt", &shown()))?;
                let spot = Spot { start: end, length };
                each(line.prompt, line.attempt, line.it, spot)
                    .map_err(|it| malformed(number, "an attempt at one of the prompts", &it))?;
            }
            end += length as u64;
        }
        drop(reader);
        if number == 0 && begin == Begin::Resume {
            return Err(Error::NoJournal {
                path: path.to_owned(),
            });
        }
        file.set_len(end).map_err(io("write"))?;
        let mut journal = Self {
            path: path.to_owned(),
            file,
            end,
            unflushed: 0,
            flushed: Instant::now(),
        };
        if number == 0 {
            journal.line(&Head {
                hapo_teacher_journal: VERSION,
                asked,
            })?;
        }
        Ok(journal)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn append(
        &mut self,
        prompt: usize,
        attempt: u32,
        it: &Attempt,
    ) -> Result<Spot, Error> {
        self.line(&WrittenLine {
            prompt,
            attempt,
            it,
        })
    }

    fn line(&mut self, it: &impl Serialize) -> Result<Spot, Error> {
        const BATCH: usize = 64;
        let mut text = serde_json::to_vec(it).expect("attempts are plain data");
        text.push(b'\n');
        self.file
            .write_all(&text)
            .map_err(|it| self.failed("write", it))?;
        let spot = Spot {
            start: self.end,
            length: text.len(),
        };
        self.end += text.len() as u64;
        self.unflushed += 1;
        if self.unflushed >= BATCH || self.flushed.elapsed() > Duration::from_secs(1) {
            self.flush()?;
        }
        Ok(spot)
    }

    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        self.file
            .sync_data()
            .map_err(|it| self.failed("write", it))?;
        self.unflushed = 0;
        self.flushed = Instant::now();
        Ok(())
    }

    /// The attempt that lies at a spot.
    pub(crate) fn read(&mut self, spot: Spot) -> Result<Attempt, Error> {
        let mut text = vec![0; spot.length];
        self.file
            .seek(SeekFrom::Start(spot.start))
            .and_then(|_| self.file.read_exact(&mut text))
            .map_err(|it| self.failed("read", it))?;
        serde_json::from_slice::<Line>(&text)
            .map(|it| it.it)
            .map_err(|it| self.failed("read", it.into()))
    }

    fn failed(&self, action: &'static str, source: std::io::Error) -> Error {
        Error::Io {
            action,
            path: self.path.clone(),
            source,
        }
    }
}

/// Each field that differs, with both values.
fn differences(journal: &Value, now: &Value) -> String {
    let empty = Map::new();
    let (journal, now) = (
        journal.as_object().unwrap_or(&empty),
        now.as_object().unwrap_or(&empty),
    );
    let mut names: Vec<&String> = journal.keys().chain(now.keys()).collect();
    names.sort();
    names.dedup();
    let shown = |it: Option<&Value>| {
        it.map_or_else(|| "nothing".to_owned(), |it| shorten(&it.to_string(), 80))
    };
    let differing: Vec<String> = names
        .into_iter()
        .filter(|it| journal.get(*it) != now.get(*it))
        .map(|it| {
            let (then, now) = (shown(journal.get(it)), shown(now.get(it)));
            format!("{it} was {then}, is {now}")
        })
        .collect();
    differing.join("; ")
}
