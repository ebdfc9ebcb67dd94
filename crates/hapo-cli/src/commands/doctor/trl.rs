//! A run of TRL: `trainer_state.json`, `completions/*.parquet` and `training_args.bin`, as TRL 1.16 writes them.

use std::path::{Path, PathBuf};
use std::{collections::BTreeMap, process::Command};

use hapo_core::Refusal;
use serde_json::{Map, Value};

use super::console;
use super::record::{Framework, GOLDS, Record, Steps, answers, name, thinned};
use crate::support::machine;

/// A run in a folder; `None` where there is no state of a trainer.
pub(super) fn folder(path: &Path, files: &[PathBuf]) -> Option<Record> {
    // The latest checkpoint has the whole history.
    let latest = |wanted: &str| {
        let all = files.iter().filter(|it| name(it) == wanted);
        all.max_by_key(|it| checkpoint(it))
    };
    let mut record = Record { path: path.to_owned(), ..Record::new(Framework::Trl) };
    let read = log(latest("trainer_state.json")?);
    record.columns = record.take(read).unwrap_or_default().columns;
    if let Some(file) = latest("training_args.bin") {
        record.settings = record.take(settings(file)).unwrap_or_default();
    } else {
        record.open.push("settings: no training_args.bin".to_owned());
    }
    record.model = latest("tokenizer_config.json").and_then(|it| Some(it.parent()?.to_owned()));
    let is_table =
        |it: &&PathBuf| name(it).starts_with("completions_") && name(it).ends_with(".parquet");
    let tables: Vec<&PathBuf> = files.iter().filter(is_table).collect();
    if tables.is_empty() {
        record.open.push("completions: none are kept (log_completions=True keeps them)".to_owned());
    }
    for table in thinned(tables) {
        read_table(table, &mut record);
    }
    let beside = |begins: &[&str]| -> Vec<PathBuf> {
        let here = files.iter().filter(|it| it.parent() == Some(path));
        here.filter(|it| begins.iter().any(|begin| name(it).starts_with(begin))).cloned().collect()
    };
    (record.data, record.eval_data) = (beside(&["train."]), beside(&["eval.", "val.", "test."]));
    Some(record)
}

/// The step of the checkpoint that a file is in; a file in none is the last.
fn checkpoint(file: &Path) -> u64 {
    let folder = file.parent().map(name).unwrap_or_default();
    folder.strip_prefix("checkpoint-").and_then(|it| it.parse().ok()).unwrap_or(u64::MAX)
}

/// The arguments, read by a Python without torch.
fn settings(path: &Path) -> Result<BTreeMap<String, String>, Refusal> {
    let python = machine::python();
    let mut command = Command::new(&python);
    command.args(["-I", "-c", include_str!("training_args.py")]).arg(path);
    let told = command.output().map_err(Refusal::io("start Python to read", path))?;
    serde_json::from_slice(&told.stdout).map_err(|_| {
        let said = String::from_utf8_lossy(&told.stderr);
        let last = said.lines().next_back().unwrap_or_default().to_owned();
        Refusal::input(format!("{}: no arguments of a trainer: {last}", path.display()))
    })
}

pub(super) fn log(path: &Path) -> Result<Record, Refusal> {
    let text = std::fs::read(path).map_err(Refusal::io("read", path))?;
    let text = String::from_utf8_lossy(&text);
    // Python writes what is no number so, which is no JSON.
    let plain =
        text.replace(": NaN", ": null").replace("Infinity", "null").replace("-null", "null");
    let state: Option<Value> = serde_json::from_str(&plain).ok();
    let mut steps = Steps::default();
    let history = state.as_ref().and_then(|it| it["log_history"].as_array());
    let logged = |line: &Map<String, Value>| {
        (line.get("step").and_then(Value::as_u64).unwrap_or_default(), line.clone())
    };
    let history = history.map(|it| it.iter().filter_map(Value::as_object).map(logged).collect());
    for (step, line) in history.unwrap_or_else(|| console::trl(&text)) {
        steps.add(step, line, Framework::Trl);
    }
    // The summary of a whole training is no step.
    steps.0.retain(|_, line| line.contains_key("loss") || line.contains_key("eval/reward"));
    if steps.0.is_empty() {
        return Err(Refusal::machine(format!("{} holds no step of TRL", path.display())));
    }
    let columns = steps.columns();
    Ok(Record { path: path.to_owned(), columns, ..Record::new(Framework::Trl) })
}

fn read_table(table: &Path, record: &mut Record) {
    let names = record.columns.names().iter();
    let functions = names.filter_map(|it| it.strip_prefix("rewards/")?.strip_suffix("/mean"));
    let functions: Vec<String> = functions.map(str::to_owned).collect();
    let mut plain = false;
    let reward = |row: &Map<String, Value>| {
        plain |= row.get("prompt").is_some_and(Value::is_string);
        let mut paid = functions.iter().filter_map(|it| row.get(it)).map(Value::as_f64).peekable();
        // A function that pays nothing is left out of the sum, as TRL does.
        paid.peek().is_some().then(|| paid.flatten().reduce(|a, b| a + b).unwrap_or(f64::NAN))
    };
    let rows = answers(table, ["prompt", "completion"], &GOLDS, reward);
    record.plain_prompts |= plain;
    let rows = record.take(rows).unwrap_or_default();
    record.answers.extend(rows);
}
