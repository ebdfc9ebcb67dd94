//! A run of verl: the file logger's JSON lines, dumps of rollouts, and Hydra's YAML, as verl 0.9 writes them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hapo_core::Refusal;
use saphyr_parser::{Event, Parser};
use serde_json::{Map, Value};

use super::console;
use super::record::{Answer, Framework, Record, Steps, answers, name, thinned};

/// A run in a folder; `None` where no file of it has verl's lines.
pub(super) fn folder(path: &Path, files: &[PathBuf]) -> Option<Record> {
    let mut record = Record { path: path.to_owned(), ..Record::new(Framework::Verl) };
    let (mut logs, mut dumps) = (Vec::new(), Vec::new());
    for file in files.iter().filter(|it| it.extension().is_some_and(|it| it == "jsonl")) {
        let first = hapo_data::json_rows(file).ok().and_then(|mut it| it.next()?.ok()?.ok());
        match first.unwrap_or_default() {
            it if it.contains_key("step") && it.contains_key("data") => logs.push(file),
            it if it.contains_key("output") && it.contains_key("score") => dumps.push(file),
            _ => {}
        }
    }
    let no_dump = "completions: none are kept (trainer.rollout_data_dir keeps them)";
    record.open.extend(dumps.is_empty().then(|| no_dump.to_owned()));
    match (logs.last(), dumps.is_empty()) {
        (Some(file), _) => {
            let read = log(file);
            let read = record.take(read).unwrap_or_default();
            (record.columns, record.start) = (read.columns, read.start);
        }
        (None, true) => return None,
        (None, false) => {
            record.open.push("numbers: no JSON lines of trainer.logger=[file]".to_owned());
        }
    }
    match files.iter().rfind(|it| name(it) == "config.yaml") {
        Some(config) => record.settings = record.take(settings(config)).unwrap_or_default(),
        None => record.open.push("settings: no .hydra/config.yaml".to_owned()),
    }
    // verl counts the longest response of each batch as cut off; below the limit none is.
    let limit = record.number("sampling.max_new_tokens").unwrap_or(0.0);
    let longest = record.columns.get("response_length/max").unwrap_or_default();
    let cut = record.columns.get("response_length/truncated").unwrap_or_default();
    let below = longest.iter().zip(cut).map(|(it, cut)| if *it < limit { 0.0 } else { *cut });
    let below: Vec<f64> = below.collect();
    record.columns.set("response_length/truncated", below);
    // By their steps: 2 before 10.
    dumps.sort_by_key(|it| (it.parent(), name(it).len(), name(it)));
    let named = record.setting("trainer.validation_data_dir").map(|it| name(Path::new(it)));
    let is_validation = |it: &&PathBuf| {
        let folder = it.parent().map(name).unwrap_or_default();
        named.as_ref().map_or(folder.contains("val"), |it| *it == folder)
    };
    let (held_out, trained): (Vec<_>, Vec<_>) = dumps.into_iter().partition(is_validation);
    for dump in thinned(trained) {
        let rows = read_dump(dump, &mut record);
        record.answers.extend(rows);
    }
    record.held_out = held_out.first().map(|it| read_dump(it, &mut record)).unwrap_or_default();
    record.model = beside(&mut record, "model.path");
    record.data = Vec::from_iter(beside(&mut record, "data.train"));
    record.eval_data = Vec::from_iter(beside(&mut record, "eval.data"));
    Some(record)
}

/// A path of the settings, or what has its name in the run's folder: runs are looked at on other machines.
fn beside(record: &mut Record, key: &str) -> Option<PathBuf> {
    let named = PathBuf::from(record.setting(key)?);
    let here = record.path.join(named.file_name()?);
    record.existing(named).or_else(|| record.existing(here))
}

pub(super) fn log(path: &Path) -> Result<Record, Refusal> {
    let mut record = Record { path: path.to_owned(), ..Record::new(Framework::Verl) };
    let mut steps = Steps::default();
    let text = std::fs::read(path).map_err(Refusal::io("read", path))?;
    for line in String::from_utf8_lossy(&text).lines() {
        // The last line of a killed run may be cut.
        let row = serde_json::from_str::<Value>(line).unwrap_or_default();
        let logged = row["step"].as_u64().zip(row["data"].as_object().cloned());
        let Some((step, numbers)) = logged.or_else(|| console::verl(line)) else { continue };
        let look =
            numbers.iter().find(|it| it.0.starts_with("val-core/") && it.0.contains("mean@"));
        let look = look.map(|it| ("eval/reward".to_owned(), it.1.clone()));
        // HAPO's trainer for verl puts our names behind its own.
        let ours =
            |it: (&String, &Value)| Some((it.0.strip_prefix("hapo/")?.to_owned(), it.1.clone()));
        let more: Vec<(String, Value)> = numbers.iter().filter_map(ours).chain(look).collect();
        steps.add(step, numbers.into_iter().chain(more).collect(), Framework::Verl);
    }
    // The validation of the start is logged as step 0.
    let start = steps.0.remove(&0).unwrap_or_default().into_iter();
    record.start = start.filter_map(|(name, it)| Some((name, it.as_f64()?))).collect();
    if steps.0.is_empty() {
        return Err(Refusal::machine(format!("{} holds no step of verl", path.display())));
    }
    record.columns = steps.columns();
    Ok(record)
}

fn read_dump(dump: &Path, record: &mut Record) -> Vec<Answer> {
    let paid = |it: &Value| it.as_f64().unwrap_or(f64::NAN);
    let reward = |row: &Map<String, Value>| row.get("score").map(paid);
    let rows = answers(dump, ["input", "output"], &["gts"], reward);
    record.take(rows).unwrap_or_default()
}

/// The scalars of a YAML file by their paths; of a list the last one. Aliases are not followed.
fn settings(path: &Path) -> Result<BTreeMap<String, String>, Refusal> {
    let text = std::fs::read(path).map_err(Refusal::io("read", path))?;
    let text = String::from_utf8_lossy(&text);
    // The path of each open mapping or list, and whether it is a list.
    let mut open: Vec<(String, bool)> = Vec::new();
    let (mut found, mut key) = (BTreeMap::new(), None::<String>);
    for event in Parser::new_from_str(&text) {
        let bad = |it| Refusal::input(format!("{}: no YAML: {it}", path.display()));
        let (inside, is_list) = open.last().cloned().unwrap_or_default();
        match event.map_err(bad)?.0 {
            Event::MappingStart(..) => open.push((key.take().unwrap_or(inside), false)),
            Event::SequenceStart(..) => open.push((key.take().unwrap_or(inside), true)),
            Event::MappingEnd | Event::SequenceEnd => drop(open.pop()),
            Event::Alias(_) => key = None,
            Event::Scalar(value, ..) => match key.take() {
                _ if is_list => drop(found.insert(inside, value.into_owned())),
                Some(key) => drop(found.insert(key, value.into_owned())),
                None if inside.is_empty() => key = Some(value.into_owned()),
                None => key = Some(format!("{inside}.{value}")),
            },
            _ => {}
        }
    }
    Ok(found)
}
