//! Every completion of an evaluation, in one file that grows problem by problem.
//!
//! The first line holds the settings; each line after it the completions of one problem of one benchmark. A killed
//! evaluation resumes where its record ends; a last line that was cut off is dropped. The price of one file is that
//! it cannot be read by a reader of data sets.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::Error;
use crate::graded::ProblemResult;

/// A record that is being written.
#[derive(Debug)]
pub struct Record {
    path: PathBuf,
    file: File,
}

/// What a record holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// The settings it was begun with.
    pub settings: Value,
    /// The benchmarks in the order in which they were begun, each with its results by the problem's index.
    pub benchmarks: Vec<(String, BTreeMap<usize, ProblemResult>)>,
}

#[derive(Serialize, Deserialize)]
struct Head {
    hapo_eval: u32,
    settings: Value,
}

#[derive(Serialize, Deserialize)]
struct Line {
    benchmark: String,
    problem: usize,
    #[serde(rename = "answers")]
    result: ProblemResult,
}

const VERSION: u32 = 1;

impl Recorded {
    /// Reads a record.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Record`].
    pub fn read(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(|source| Error::Io {
            action: "read",
            path: path.to_owned(),
            source,
        })?;
        match read(&file, path)? {
            Some((recorded, _)) => Ok(recorded),
            None => Err(Error::Record {
                path: path.to_owned(),
                line: 1,
                expected: "the settings of `hapo eval --out`",
            }),
        }
    }

    /// The results of a benchmark's problems.
    pub fn benchmark(&self, name: &str) -> Option<&BTreeMap<usize, ProblemResult>> {
        let it = self.benchmarks.iter().find(|it| it.0 == name);
        it.map(|it| &it.1)
    }

    /// Takes the results of a benchmark out.
    pub(crate) fn take(&mut self, name: &str) -> Option<BTreeMap<usize, ProblemResult>> {
        let index = self.benchmarks.iter().position(|it| it.0 == name)?;
        Some(self.benchmarks.swap_remove(index).1)
    }

    fn insert(&mut self, it: Line) {
        let index = self.benchmarks.iter().position(|old| old.0 == it.benchmark);
        let index = index.unwrap_or_else(|| {
            self.benchmarks.push((it.benchmark, BTreeMap::new()));
            self.benchmarks.len() - 1
        });
        self.benchmarks[index].1.insert(it.problem, it.result);
    }
}

impl Record {
    /// Opens a record to resume it, or begins one. It is locked while it is open.
    ///
    /// # Errors
    /// [`Error::Settings`] when it was begun with others; [`Error::Busy`], [`Error::Record`], [`Error::Io`].
    pub fn open(path: &Path, settings: &Value) -> Result<(Self, Recorded), Error> {
        let io = |action| {
            move |source| Error::Io {
                action,
                path: path.to_owned(),
                source,
            }
        };
        let file = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .open(path)
            .map_err(io("open"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Busy {
                    path: path.to_owned(),
                });
            }
            Err(TryLockError::Error(source)) => return Err(io("lock")(source)),
        }
        let found = read(&file, path)?;
        let mut record = Self {
            path: path.to_owned(),
            file,
        };
        if let Some((recorded, end)) = found {
            if recorded.settings != *settings {
                return Err(Error::Settings {
                    path: path.to_owned(),
                    differences: differences(&recorded.settings, settings),
                });
            }
            record.file.set_len(end).map_err(io("write"))?;
            return Ok((record, recorded));
        }
        record.file.set_len(0).map_err(io("write"))?;
        record.line(&Head {
            hapo_eval: VERSION,
            settings: settings.clone(),
        })?;
        let recorded = Recorded {
            settings: settings.clone(),
            benchmarks: Vec::new(),
        };
        Ok((record, recorded))
    }

    /// Records the result of one problem.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn add(
        &mut self,
        benchmark: &str,
        problem: usize,
        result: &ProblemResult,
    ) -> Result<(), Error> {
        self.line(&Line {
            benchmark: benchmark.to_owned(),
            problem,
            result: result.clone(),
        })
    }

    /// Flushes the record to the disk.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn flush(&self) -> Result<(), Error> {
        self.file.sync_data().map_err(|it| self.failed(it))
    }

    fn line(&mut self, it: &impl Serialize) -> Result<(), Error> {
        let mut text = serde_json::to_vec(it).expect("results are plain data");
        text.push(b'\n');
        self.file.write_all(&text).map_err(|it| self.failed(it))
    }

    fn failed(&self, source: std::io::Error) -> Error {
        Error::Io {
            action: "write",
            path: self.path.clone(),
            source,
        }
    }
}

/// What a file holds and where its last complete line ends; `None` for a file without a complete line.
fn read(file: &File, path: &Path) -> Result<Option<(Recorded, u64)>, Error> {
    let malformed = |line, expected| Error::Record {
        path: path.to_owned(),
        line,
        expected,
    };
    let mut reader = BufReader::new(file);
    let mut found: Option<Recorded> = None;
    let (mut end, mut number, mut text) = (0, 0, Vec::new());
    loop {
        text.clear();
        let length = reader
            .read_until(b'\n', &mut text)
            .map_err(|source| Error::Io {
                action: "read",
                path: path.to_owned(),
                source,
            })?;
        if text.last() != Some(&b'\n') {
            // A file that is no record must not be taken for one whose first line was cut off.
            if number == 0
                && !text.is_empty()
                && !b"{\"hapo_eval\":".starts_with(&text[..text.len().min(13)])
            {
                return Err(malformed(1, "the settings of `hapo eval --out`"));
            }
            return Ok(found.map(|it| (it, end)));
        }
        number += 1;
        match &mut found {
            None => {
                let head: Head = serde_json::from_slice(&text)
                    .ok()
                    .filter(|it: &Head| it.hapo_eval == VERSION)
                    .ok_or_else(|| malformed(1, "the settings of `hapo eval --out`"))?;
                found = Some(Recorded {
                    settings: head.settings,
                    benchmarks: Vec::new(),
                });
            }
            Some(it) => it.insert(
                serde_json::from_slice(&text)
                    .map_err(|_| malformed(number, "the completions of one problem"))?,
            ),
        }
        end += length as u64;
    }
}

/// Each setting that differs, with both values.
fn differences(then: &Value, now: &Value) -> String {
    let empty = Map::new();
    let (then, now) = (
        then.as_object().unwrap_or(&empty),
        now.as_object().unwrap_or(&empty),
    );
    let mut names: Vec<&String> = then.keys().chain(now.keys()).collect();
    names.sort();
    names.dedup();
    let shown = |it: Option<&Value>| it.map_or_else(|| "nothing".to_owned(), Value::to_string);
    let differing: Vec<String> = names
        .into_iter()
        .filter(|it| then.get(*it) != now.get(*it))
        .map(|it| {
            let (then, now) = (shown(then.get(it)), shown(now.get(it)));
            format!("{it} was {then}, is {now}")
        })
        .collect();
    differing.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn result(id: &str) -> ProblemResult {
        ProblemResult {
            id: id.into(),
            gold: "1".into(),
            completions: Vec::new(),
        }
    }

    #[test]
    fn a_record_resumes_after_any_cut_and_refuses_other_settings() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.jsonl");
        let settings = json!({ "model": "m", "k": 2 });
        let (mut record, empty) = Record::open(&path, &settings).unwrap();
        assert!(empty.benchmarks.is_empty());
        record.add("b", 1, &result("one")).unwrap();
        record.add("a", 0, &result("two")).unwrap();
        assert!(matches!(
            Record::open(&path, &settings),
            Err(Error::Busy { .. })
        ));
        drop(record);
        let whole = std::fs::read(&path).unwrap();
        for cut in 0..=whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let (mut record, found) = Record::open(&path, &settings).unwrap();
            for (name, number, id) in [("b", 1, "one"), ("a", 0, "two")] {
                if found
                    .benchmark(name)
                    .is_none_or(|it| !it.contains_key(&number))
                {
                    record.add(name, number, &result(id)).unwrap();
                }
            }
            assert_eq!(std::fs::read(&path).unwrap(), whole, "{cut}");
        }
        let names: Vec<String> = Recorded::read(&path)
            .unwrap()
            .benchmarks
            .into_iter()
            .map(|it| it.0)
            .collect();
        assert_eq!(names, ["b", "a"]);
        let other = Record::open(&path, &json!({ "model": "m", "k": 4 })).unwrap_err();
        assert!(
            other.to_string().ends_with("other settings: k was 2, is 4"),
            "{other}"
        );
        for text in [
            "{\"id\":1}\n",
            "hello",
            "{\"hapo_eval\":1,\"settings\":{}}\n{}\n",
        ] {
            std::fs::write(&path, text).unwrap();
            assert!(
                matches!(Record::open(&path, &settings), Err(Error::Record { .. })),
                "{text}"
            );
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }
}
