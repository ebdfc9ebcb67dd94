//! `metrics.jsonl` as columns.

use std::io::{BufRead, BufReader};
use std::path::Path;

use hapo_core::{Refusal, counted, if_there};
use serde_json::{Map, Value};

/// Most names that are read; a run has fewer than a hundred.
const NAMES: usize = 1024;

/// The numbers of a run, a column for each name; NaN where a step has none.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    names: Vec<String>,
    values: Vec<Vec<f64>>,
    rows: usize,
    /// Names beyond the bound, counted for each line that has them.
    left_out: usize,
}

impl Columns {
    /// Names in the order of their first appearance; `step` is the first.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn get(&self, name: &str) -> Option<&[f64]> {
        let at = self.names.iter().position(|it| it == name)?;
        Some(&self.values[at])
    }

    pub fn steps(&self) -> &[f64] {
        self.values.first().map_or(&[], Vec::as_slice)
    }

    /// The columns of steps and their numbers; a step that comes again replaces what followed it.
    pub fn of(lines: impl IntoIterator<Item = (f64, Map<String, Value>)>) -> Self {
        let mut columns = Self::default();
        for (step, line) in lines {
            columns.put(step, &line);
        }
        columns
    }

    /// Sets a column; steps beyond its values have none.
    pub fn set(&mut self, name: &str, mut values: Vec<f64>) {
        values.resize(self.rows, f64::NAN);
        if let Some(at) = self.names.iter().position(|it| it == name) {
            self.values[at] = values;
        } else {
            self.names.push(name.to_owned());
            self.values.push(values);
        }
    }

    pub fn finite(&self, name: &str) -> Vec<f64> {
        self.get(name).unwrap_or_default().iter().copied().filter(|it| it.is_finite()).collect()
    }

    /// Means of the first and the last tenth of a column's numbers, and how many each is of.
    pub fn ends(&self, name: &str) -> Option<([f64; 2], usize)> {
        let all = self.finite(name);
        let n = self.rows.div_ceil(10).clamp(1, all.len().max(1));
        let mean = |part: &[f64]| part.iter().sum::<f64>() / n as f64;
        Some(([mean(all.get(..n)?), mean(&all[all.len() - n..])], n))
    }

    /// Leaves out the steps behind `last`.
    pub fn end_at(&mut self, last: u64) {
        let kept = self.steps().partition_point(|it| *it <= last as f64);
        self.truncate(kept);
    }

    /// Mean of the last tenth of a column's steps; `None` where they have no number.
    pub fn last_tenth(&self, name: &str) -> Option<f64> {
        let values = self.get(name)?;
        let last = values[values.len() - values.len().div_ceil(10)..].iter();
        let finite: Vec<f64> = last.copied().filter(|it| it.is_finite()).collect();
        (!finite.is_empty()).then(|| finite.iter().sum::<f64>() / finite.len() as f64)
    }

    /// Every `k`th row, the first and the last among them.
    pub fn thinned(&self, k: usize) -> Self {
        let (every, last) = (k.max(1), self.rows.saturating_sub(1));
        let kept: Vec<usize> = (0..self.rows).filter(|it| it % every == 0 || *it == last).collect();
        let thin = |column: &Vec<f64>| kept.iter().map(|it| column[*it]).collect();
        let values = self.values.iter().map(thin).collect();
        Self { names: self.names.clone(), values, rows: kept.len(), left_out: self.left_out }
    }

    /// Reads `metrics.jsonl`; problems go to `notes`. A step that comes again replaces what followed: a run went back.
    pub fn read(path: &Path, notes: &mut Vec<String>) -> Result<Self, Refusal> {
        let mut columns = Self::default();
        let Some(file) = if_there(path, std::fs::File::open(path))? else {
            notes.push("metrics.jsonl is missing: no step is logged.".to_owned());
            return Ok(columns);
        };
        let (mut number, mut unreadable, mut went_back) = (0, Vec::new(), 0);
        let mut reader = BufReader::new(file);
        let mut line = Vec::new();
        loop {
            line.clear();
            let n = reader.read_until(b'\n', &mut line).map_err(Refusal::io("read", path))?;
            if n == 0 {
                break;
            }
            number += 1;
            match step_of(&line) {
                Some((step, object)) => went_back += usize::from(columns.put(step, &object)),
                None if line.last() == Some(&b'\n') => unreadable.push(number),
                None => notes.push(format!(
                    "The last line of metrics.jsonl ({number}) is incomplete and left out."
                )),
            }
        }
        if let Some(first) = unreadable.first() {
            notes.push(format!(
                "Left out of metrics.jsonl: {} without a step, the first is line {first}.",
                counted(unreadable.len(), "line", "lines")
            ));
        }
        if went_back > 0 {
            notes.push(format!(
                "metrics.jsonl goes back {went_back} times; of a step that is logged twice the later line counts."
            ));
        }
        if columns.left_out > 0 {
            notes.push(format!(
                "metrics.jsonl has more than {NAMES} names; {} numbers of the others are left out.",
                columns.left_out
            ));
        }
        if columns.rows() == 0 {
            notes.push("metrics.jsonl holds no step yet.".to_owned());
        }
        Ok(columns)
    }

    /// Adds a step in place of those from it on, and says whether there were any.
    fn put(&mut self, step: f64, line: &Map<String, Value>) -> bool {
        let kept = self.steps().partition_point(|it| *it < step);
        let goes_back = kept < self.rows;
        self.truncate(kept);
        if self.names.is_empty() {
            self.names.push("step".to_owned());
            self.values.push(Vec::new());
        }
        self.values[0].push(step);
        for (name, value) in line.iter().filter(|it| it.0 != "step") {
            let known = self.names.iter().position(|it| it == name);
            if known.is_none() && self.names.len() == NAMES {
                self.left_out += 1;
                continue;
            }
            let at = known.unwrap_or_else(|| {
                self.names.push(name.to_owned());
                self.values.push(vec![f64::NAN; self.rows]);
                self.names.len() - 1
            });
            self.values[at].push(value.as_f64().unwrap_or(f64::NAN));
        }
        self.rows += 1;
        for it in &mut self.values {
            it.resize(self.rows, f64::NAN);
        }
        goes_back
    }

    fn truncate(&mut self, rows: usize) {
        self.rows = rows;
        for it in &mut self.values {
            it.truncate(rows);
        }
    }
}

fn step_of(line: &[u8]) -> Option<(f64, Map<String, Value>)> {
    let Value::Object(line) = serde_json::from_slice(line).ok()? else { return None };
    Some((line.get("step")?.as_f64()?, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> (Columns, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        std::fs::write(&path, text).unwrap();
        let mut notes = Vec::new();
        let columns = Columns::read(&path, &mut notes).unwrap();
        (columns, notes)
    }

    #[test]
    fn columns_that_come_and_go_have_gaps() {
        let (it, notes) =
            check("{\"step\":1,\"a\":1}\n{\"step\":2,\"b\":null}\n{\"step\":3,\"a\":3,\"b\":4}\n");
        assert_eq!(it.names(), ["step", "a", "b"]);
        assert_eq!(it.steps(), [1.0, 2.0, 3.0]);
        assert!(it.get("a").unwrap()[1].is_nan());
        assert!(it.get("b").unwrap()[1].is_nan());
        assert_eq!(it.get("b").unwrap()[2], 4.0);
        assert!(notes.is_empty());
    }

    #[test]
    fn an_incomplete_last_line_is_left_out_with_a_note() {
        let (it, notes) = check("{\"step\":1,\"a\":1}\n{\"step\":2,\"a\":");
        assert_eq!(it.rows(), 1);
        assert_eq!(notes, ["The last line of metrics.jsonl (2) is incomplete and left out."]);
    }

    #[test]
    fn a_step_that_comes_again_replaces_what_followed_it() {
        let (it, notes) = check(
            "{\"step\":1,\"a\":1}\n{\"step\":2,\"a\":2}\n{\"step\":3,\"a\":3}\nnoise\n{\"step\":2,\"a\":20}\n",
        );
        assert_eq!(it.steps(), [1.0, 2.0]);
        assert_eq!(it.get("a").unwrap(), [1.0, 20.0]);
        assert_eq!(notes.len(), 2);
    }

    #[test]
    fn names_beyond_the_bound_are_counted_and_left_out() {
        let names: Vec<String> = (0..1100).map(|it| format!("\"n{it}\":1")).collect();
        let (it, notes) = check(&format!("{{\"step\":1,{}}}\n", names.join(",")));
        assert_eq!((it.names().len(), it.rows()), (1024, 1));
        assert_eq!(
            notes,
            ["metrics.jsonl has more than 1024 names; 77 numbers of the others are left out."]
        );
    }

    #[test]
    fn thinning_keeps_both_ends() {
        let lines: Vec<String> = (1..=10).map(|it| format!("{{\"step\":{it}}}")).collect();
        assert_eq!(check(&(lines.join("\n") + "\n")).0.thinned(4).steps(), [1.0, 5.0, 9.0, 10.0]);
    }
}
