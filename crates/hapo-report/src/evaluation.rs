//! Tables of evaluations in or beside a run folder.
//!
//! Sources are the output of `hapo eval --json`, saved as `eval*.json` in the run folder, and `table.json` of `hapo
//! quickstart` in the folder above. Any JSON list of objects becomes a table.

use std::{io::ErrorKind::NotFound, io::Read, path::Path};

use hapo_core::Refusal;
use hapo_run::held_out_metric;
use serde::Serialize;
use serde_json::Value;

use crate::folder::Run;

const MAX_BYTES: u64 = 4 << 20;
const MAX_ROWS: usize = 500;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<Cell>>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Cell {
    Estimate { mean: f64, low: f64, high: f64 },
    Number(f64),
    Text(String),
}

/// The tables that belong to the runs; errors go into their notes.
pub(crate) fn tables(runs: &mut [Run]) -> Vec<Table> {
    let mut all: Vec<Table> = of_runs(runs).into_iter().collect();
    let mut seen = std::collections::BTreeSet::new();
    for run in runs.iter_mut() {
        let Some(parent) = run.path.parent().map(Path::to_owned) else { continue };
        let path = parent.join("table.json");
        // On EIO the file is opened, and named in the notes.
        let is_file = path.metadata().map_or_else(|it| it.kind() != NotFound, |it| it.is_file());
        if seen.insert(path.clone()) && is_file {
            add(&path, "Held-out problems", run, &mut all);
        }
    }
    for run in runs {
        let files = hapo_run::entries(&run.path);
        let left_out = |it: &Refusal| run.notes.push(format!("Left out: {it}."));
        let Ok(mut files) = files.inspect_err(left_out) else { continue };
        files.retain(|it| {
            it.file_name().and_then(|it| it.to_str()).unwrap_or("").starts_with("eval")
                && it.extension().is_some_and(|it| it.eq_ignore_ascii_case("json"))
        });
        files.sort();
        for path in files {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            add(&path, &format!("{}: {file}", run.name), run, &mut all);
        }
    }
    all
}

/// The evaluations that runs made themselves, a row each; `None` where none did.
fn of_runs(runs: &[Run]) -> Option<Table> {
    let row = |run: &Run| {
        let (looks, metric) = (run.evaluations(), held_out_metric(&run.columns));
        let (first, last) = (looks.first()?, looks.last()?);
        let best = looks.iter().rev().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let numbers = [first.1, last.1, best.1, best.0].map(Cell::Number);
        Some([&run.name, metric].map(|it| Cell::Text(it.to_owned())).into_iter().chain(numbers))
    };
    let rows: Vec<Vec<Cell>> = runs.iter().filter_map(row).map(Iterator::collect).collect();
    let columns = ["run", "metric", "first", "last", "best", "after step"].map(str::to_owned);
    let title = "[eval], held-out problems".to_owned();
    (!rows.is_empty()).then(|| Table { title, columns: columns.to_vec(), rows })
}

fn add(path: &Path, title: &str, run: &mut Run, all: &mut Vec<Table>) {
    let mut text = Vec::new();
    let read = std::fs::File::open(path).and_then(|it| it.take(MAX_BYTES).read_to_end(&mut text));
    let json: Option<Value> = serde_json::from_slice(&text).ok();
    match (read, json.as_ref().and_then(|it| table_of(title, it))) {
        (Ok(_), Some(it)) => all.push(it),
        (Ok(_), None) => {
            run.notes.push(format!("{} is no table of an evaluation.", path.display()));
        }
        (Err(it), _) => run.notes.push(format!("Left out: {}: {it}.", path.display())),
    }
}

fn table_of(title: &str, json: &Value) -> Option<Table> {
    let (rows, levels) = match json {
        Value::Array(rows) => (rows, Vec::new()),
        Value::Object(it) => {
            let levels = it.get("levels").and_then(Value::as_array).into_iter().flatten();
            let levels = levels.map(|it| it.as_str().unwrap_or("?").to_owned()).collect();
            (it.get("rows")?.as_array()?, levels)
        }
        _ => return None,
    };
    let mut table = Table { title: title.to_owned(), columns: Vec::new(), rows: Vec::new() };
    for row in rows.iter().take(MAX_ROWS) {
        let mut cells: Vec<(String, Cell)> = Vec::new();
        for (key, value) in row.as_object()? {
            match value {
                // The place of a checkpoint says nothing to a reader of the page.
                _ if key == "checkpoint" => {}
                Value::Array(values) if key == "by_level" && values.len() == levels.len() => {
                    cells.extend(levels.iter().zip(values).map(|it| (it.0.clone(), cell(it.1))));
                }
                other => cells.push((key.replace('_', " "), cell(other))),
            }
        }
        for (name, _) in &cells {
            if !table.columns.contains(name) {
                table.columns.push(name.clone());
            }
        }
        let of = |name: &String| cells.iter().find(|it| it.0 == *name).map(|it| it.1.clone());
        let empty = || Cell::Text(String::new());
        table.rows.push(table.columns.iter().map(|it| of(it).unwrap_or_else(empty)).collect());
    }
    let width = table.columns.len();
    for it in &mut table.rows {
        it.resize(width, Cell::Text(String::new()));
    }
    Some(table)
}

fn cell(value: &Value) -> Cell {
    let number = |key: &str| value.get(key).and_then(Value::as_f64);
    match (number("mean"), number("low"), number("high"), value) {
        (Some(mean), Some(low), Some(high), _) => Cell::Estimate { mean, low, high },
        (.., Value::Number(it)) => {
            it.as_f64().map_or_else(|| Cell::Text(it.to_string()), Cell::Number)
        }
        (.., Value::String(it)) => Cell::Text(it.clone()),
        (.., Value::Null) => Cell::Text(String::new()),
        (.., other) => Cell::Text(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demonstrations_table_has_a_column_for_each_level() {
        let json = serde_json::json!({ "levels": ["add:5"], "rows": [
            { "model": "base", "checkpoint": "x", "by_level": [0.25], "average": { "mean": 0.5, "low": 0.25, "high": 0.75 }, "over_grpo": null },
        ] });
        let it = table_of("t", &json).unwrap();
        let of = |name: &str| {
            let at = it.columns.iter().position(|it| it == name).unwrap();
            it.rows[0][at].clone()
        };
        assert_eq!(it.columns.len(), 4);
        assert_eq!(of("add:5"), Cell::Number(0.25));
        let average = Cell::Estimate { mean: 0.5, low: 0.25, high: 0.75 };
        assert_eq!(of("average"), average);
    }

    #[test]
    fn what_is_no_list_of_objects_is_no_table() {
        assert_eq!(table_of("t", &serde_json::json!([1, 2])), None);
        assert_eq!(table_of("t", &serde_json::json!("text")), None);
    }
}
