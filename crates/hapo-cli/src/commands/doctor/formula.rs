//! `--formula`: the loss that the settings name, under lossproof's cases, by the framework in the user's environment.

use std::{path::Path, process::Command};

use hapo_core::{Refusal, counted};
use serde_json::Value;

use super::record::{Record, rows};
use super::{Diagnosis, settings::is_met};
use crate::support::machine;

pub(super) const FORMULAS: &str = include_str!("formula.tsv");

pub(super) fn examine(record: &Record, found: &mut Diagnosis) -> Result<(), Refusal> {
    let named = rows(FORMULAS).filter(|row| row[0] == record.framework.name());
    let named: Vec<_> = named.filter(|row| is_met(record, row[1])).collect();
    let Some(adapter) = named.first().map(|row| row[2]) else {
        found.skip("formula: lossproof has no case of the loss that the settings name");
        return Ok(());
    };
    let python = machine::python();
    let folder = tempfile::tempdir().map_err(|it| Refusal::machine(it.to_string()))?;
    let file = folder.path().join("records.json");
    let mut command = Command::new(&python);
    command.args(["-m", "lossproof", "run", "--adapter", adapter, "--json"]).arg(&file);
    command.args(named.iter().flat_map(|row| ["--case", row[3]]));
    let told = command.output().map_err(Refusal::io("start", Path::new(&python)))?;
    let Some(records) = hapo_run::read_json::<Value>(&file)? else {
        let (python, said) = (python.display(), String::from_utf8_lossy(&told.stderr));
        let last = said.lines().next_back().unwrap_or("it said nothing");
        return Err(Refusal::machine(format!(
            "lossproof gave no records of the adapter `{adapter}` in {python}: {last}"
        ))
        .hint("install lossproof beside the framework; HAPO_PYTHON names another Python"));
    };
    let engine = format!("{} {}", said(&records["engine"]), said(&records["engine_version"]));
    let all = records["records"].as_array().map(Vec::as_slice).unwrap_or_default();
    let asked: Vec<&Value> = all.iter().filter(|it| it["verdict"] != "n/a").collect();
    for (name, of_cuts) in [("accumulation", true), ("formula", false)] {
        let is_bad =
            |it: &&&Value| it["passed"] != true && (it["verdict"] == "cut-dependent") == of_cuts;
        let words = |it: &&Value| format!("{} ({})", said(&it["id"]), said(&it["verdict"]));
        let bad: Vec<String> = asked.iter().filter(is_bad).map(words).collect();
        if let n @ 1.. = bad.len() {
            let (all, bad) = (counted(asked.len(), "case", "cases"), bad.join(", "));
            found.add(name, format!("{engine} fails {n} of {all} of its loss: {bad}."));
        }
    }
    if asked.is_empty() {
        found.skip(format!("formula: {engine} has none of the cases of its loss"));
    } else if asked.iter().all(|it| it["passed"] == true) {
        let ids: Vec<&str> = asked.iter().map(|it| said(&it["id"])).collect();
        found.held.push(format!("formula: {engine} gives loss and gradient of {}", ids.join(", ")));
    }
    Ok(())
}

fn said(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
