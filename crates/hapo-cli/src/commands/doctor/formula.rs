//! `--formula`: the loss that the settings name, under lossproof's cases, by the framework in the user's environment.

use std::path::Path;
use std::process::Command;

use hapo_core::{Refusal, counted};
use serde_json::Value;

use super::Diagnosis;
use super::record::{Record, rows};
use super::settings::is_met;

pub(super) const FORMULAS: &str = include_str!("formula.tsv");

pub(super) fn examine(record: &Record, found: &mut Diagnosis) -> Result<(), Refusal> {
    let named = rows(FORMULAS).filter(|row| row[0] == record.framework.name());
    let named: Vec<_> = named.filter(|row| is_met(record, row[1])).collect();
    let Some(adapter) = named.first().map(|row| row[2]) else {
        found.skip("formula: lossproof has no case of the loss that the settings name");
        return Ok(());
    };
    let python = std::env::var_os("HAPO_PYTHON").unwrap_or_else(|| "python3".into());
    let folder = tempfile::tempdir().map_err(|it| Refusal::machine(it.to_string()))?;
    let file = folder.path().join("records.json");
    let mut command = Command::new(&python);
    command.args(["-m", "lossproof", "run", "--adapter", adapter, "--json"]).arg(&file);
    command.args(named.iter().flat_map(|row| ["--case", row[3]]));
    let told = command.output().map_err(Refusal::io("start", Path::new(&python)))?;
    let Some(records) = hapo_run::read_json::<Value>(&file)? else {
        let said = String::from_utf8_lossy(&told.stderr);
        return Err(Refusal::machine(format!(
            "lossproof gave no records of the adapter `{adapter}` in {}: {}",
            python.display(),
            said.lines().next_back().unwrap_or("it said nothing")
        ))
        .hint("install lossproof beside the framework; HAPO_PYTHON names another Python"));
    };
    let engine = format!("{} {}", said(&records["engine"]), said(&records["engine_version"]));
    let all = records["records"].as_array().map(Vec::as_slice).unwrap_or_default();
    let asked: Vec<&Value> = all.iter().filter(|it| it["verdict"] != "n/a").collect();
    let failed = |cut: bool| {
        let bad = asked.iter().filter(|it| it["passed"] != true);
        let bad = bad.filter(|it| (it["verdict"] == "cut-dependent") == cut);
        bad.map(|it| format!("{} ({})", said(&it["id"]), said(&it["verdict"]))).collect::<Vec<_>>()
    };
    for (name, bad) in [("accumulation", failed(true)), ("formula", failed(false))] {
        if !bad.is_empty() {
            let cases = counted(asked.len(), "case", "cases");
            let what =
                format!("{engine} fails {} of {cases} of its loss: {}.", bad.len(), bad.join(", "));
            found.add(name, what);
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
