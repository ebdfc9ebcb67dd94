//! Every completion of an evaluation, in one journal that grows problem by problem.
//!
//! The first line holds the settings; each line after it the completions of one problem of one benchmark. A killed
//! evaluation resumes where its record ends; a last line that was cut off is dropped.

use std::collections::BTreeMap;
use std::path::Path;

use hapo_core::{Hint, Refusal, Remedy};
use hapo_run::{Journal, JournalFormat, OpenMode};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::graded::ProblemResult;

const FORMAT: JournalFormat = JournalFormat {
    name: "hapo_eval",
    version: 1,
    settings: "settings",
    first_line: "the settings of an evaluation",
    line: "the completions of one problem",
};

/// A record that is being written.
#[derive(Debug)]
pub struct Record {
    journal: Journal,
}

/// The contents of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// The settings it was begun with.
    pub settings: Value,
    /// The benchmarks in the order in which they were begun, each with its results by the problem's index.
    pub benchmarks: Vec<(String, BTreeMap<usize, ProblemResult>)>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    benchmark: String,
    problem: usize,
    #[serde(rename = "answers")]
    result: ProblemResult,
}

impl Recorded {
    /// Reads a record.
    pub fn read(path: &Path) -> Result<Self, Refusal> {
        let mut recorded = Self::empty(Value::Null);
        recorded.settings = Journal::read(path, &FORMAT, |line, _| {
            recorded.insert(line);
            Ok(())
        })
        .map_err(of_record)?;
        Ok(recorded)
    }

    fn empty(settings: Value) -> Self {
        Self { settings, benchmarks: Vec::new() }
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

    fn insert(&mut self, line: Line) {
        let known = |it: &(String, _)| it.0 == line.benchmark;
        let index = self.benchmarks.iter().position(known);
        let index = index.unwrap_or_else(|| {
            self.benchmarks.push((line.benchmark, BTreeMap::new()));
            self.benchmarks.len() - 1
        });
        self.benchmarks[index].1.insert(line.problem, line.result);
    }
}

impl Record {
    /// Opens a record to resume it, or begins one. It is locked while it is open.
    pub fn open(path: &Path, settings: &Value) -> Result<(Self, Recorded), Refusal> {
        let mut recorded = Recorded::empty(settings.clone());
        let mode = OpenMode::ResumeOrStart;
        let journal = Journal::open(path, &FORMAT, settings, mode, |line, _| {
            recorded.insert(line);
            Ok(())
        })
        .map_err(of_record)?;
        Ok((Self { journal }, recorded))
    }

    /// Records the result of one problem.
    pub fn add(
        &mut self,
        benchmark: &str,
        problem: usize,
        result: &ProblemResult,
    ) -> Result<(), Refusal> {
        self.journal.append(&Line {
            benchmark: benchmark.to_owned(),
            problem,
            result: result.clone(),
        })?;
        Ok(())
    }

    /// Flushes the record to the disk.
    pub fn flush(&mut self) -> Result<(), Refusal> {
        Ok(self.journal.flush()?)
    }
}

/// A file that holds no record of an evaluation: no option starts it afresh.
fn of_record(error: impl Into<Refusal>) -> Refusal {
    let refusal = error.into();
    match refusal.how_to_mend() {
        Some(Hint::Remedy(Remedy::OtherOutput | Remedy::StartFirst)) => {
            refusal.hint("name a file that `hapo eval --out` wrote, or a new one for --out")
        }
        _ => refusal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn result(id: &str) -> ProblemResult {
        ProblemResult { id: id.into(), gold: "1".into(), completions: Vec::new() }
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
        let busy = Record::open(&path, &settings).unwrap_err().to_string();
        assert!(busy.ends_with("is in use by another process"), "{busy}");
        drop(record);
        let whole = std::fs::read(&path).unwrap();
        for cut in 0..=whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let (mut record, found) = Record::open(&path, &settings).unwrap();
            for (name, number, id) in [("b", 1, "one"), ("a", 0, "two")] {
                if found.benchmark(name).is_none_or(|it| !it.contains_key(&number)) {
                    record.add(name, number, &result(id)).unwrap();
                }
            }
            assert_eq!(std::fs::read(&path).unwrap(), whole, "{cut}");
        }
        let names: Vec<String> =
            Recorded::read(&path).unwrap().benchmarks.into_iter().map(|it| it.0).collect();
        assert_eq!(names, ["b", "a"]);
        let other = Record::open(&path, &json!({ "model": "m", "k": 4 })).unwrap_err();
        assert!(other.to_string().ends_with("other settings: k was 2, is 4"), "{other}");
        for text in ["{\"id\":1}\n", "hello"] {
            std::fs::write(&path, text).unwrap();
            let refusal = Record::open(&path, &settings).unwrap_err();
            assert!(refusal.to_string().contains("expected the settings of an evaluation"));
            assert!(matches!(refusal.how_to_mend(), Some(Hint::Text(_))), "{text}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn other_weights_at_the_same_path_are_other_settings() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.jsonl");
        let of = |weights: &str| json!({ "model": "run/best", "weights": weights });
        Record::open(&path, &of("a")).unwrap().0.add("b", 0, &result("one")).unwrap();
        assert_eq!(Record::open(&path, &of("a")).unwrap().1.benchmarks.len(), 1);
        let other = Record::open(&path, &of("b")).unwrap_err().to_string();
        assert!(other.ends_with(r#"other settings: weights was "a", is "b""#), "{other}");
    }
}
