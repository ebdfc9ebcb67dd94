//! `hapo doctor`: what is wrong with anybody's run, reward function or data, the worst first.
//!
//! A run of TRL or verl is read into the numbers and answers that a run of ours has (`record.rs`), so that one set of rules
//! speaks of all, in the words of `hapo report`. What a run has not kept leaves a question open, and is no error.

mod console;
mod data;
mod formula;
mod grading;
mod learning;
mod read;
mod record;
mod reward;
mod settings;
mod tokens;
mod trl;
mod verl;

use std::path::{Path, PathBuf};

use anyhow::Result;
use hapo_core::{Refusal, counted};
use serde::Serialize;

use record::{Framework, Record, rows};

/// Find what is wrong with a run, a reward function or a data set.
///
/// Reads a run folder of hapo, TRL or verl, or one log file of them; or asks a reward function about answers whose verdict
/// is known; or looks at data and a model's template before a run. Needs no network, and no framework but for --formula.
#[derive(clap::Args)]
#[command(
    before_help = "Examples: hapo doctor runs/try\n          hapo doctor trl-output/ --data train.jsonl --eval-data test.jsonl\n          hapo doctor reward.py:accuracy\n          hapo doctor --data train.jsonl --model DIR"
)]
pub(crate) struct Args {
    /// Run folder or log; or a reward: FILE.py:FUNCTION, command:PROGRAM, `http://HOST`
    #[arg(value_name = "RUN|REWARD", required_unless_present = "data")]
    target: Option<String>,
    /// Training data; repeatable
    #[arg(long, value_name = "FILE")]
    data: Vec<PathBuf>,
    /// Data of evaluations; repeatable
    #[arg(long, value_name = "FILE")]
    eval_data: Vec<PathBuf>,
    /// Folder with the tokenizer and its template
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Run lossproof's cases of the loss that the settings name, in the framework of `HAPO_PYTHON`
    #[arg(long)]
    formula: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Serialize)]
struct Finding {
    name: &'static str,
    what: String,
    why: &'static str,
    /// The key, in the words of the framework.
    change: &'static str,
    place: String,
}

#[derive(Debug, Default, Serialize)]
struct Diagnosis {
    framework: Framework,
    findings: Vec<Finding>,
    /// What was looked at and holds.
    held: Vec<String>,
    /// What could not be looked at, and why.
    open: Vec<String>,
    #[serde(skip)]
    at: String,
}

/// Names, the worst first, with their reasons and keys.
const FINDINGS: &str = include_str!("findings.tsv");
const MOST_SHOWN: usize = 10;

impl Diagnosis {
    /// Of two signs of one fault the first is the surer one.
    fn add(&mut self, name: &'static str, what: impl Into<String>) {
        if !self.has(name) {
            let row = rows(FINDINGS).find(|it| it[0] == name).expect("every finding has its row");
            let change = Some(row[2 + self.framework as usize]).filter(|it| !it.is_empty());
            let (what, change, place) = (what.into(), change.unwrap_or(row[2]), self.at.clone());
            self.findings.push(Finding { name, what, why: row[1], change, place });
        }
    }

    fn has(&self, name: &str) -> bool {
        self.findings.iter().any(|it| it.name == name)
    }

    fn skip(&mut self, what: impl Into<String>) {
        self.open.push(what.into());
    }

    fn take<T>(&mut self, read: Result<T, Refusal>) -> Option<T> {
        read.map_err(|it| self.skip(format!("left out: {it}"))).ok()
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let (subject, mut found) = match &args.target {
        Some(reward) if is_reward(reward) => (reward.clone(), reward::examine(reward)?),
        Some(run) => {
            // What keeps doctor from its work is no finding.
            let record = read::read(Path::new(run));
            let record = record.map_err(|it| Refusal::machine(it.to_string()))?;
            (run.clone(), of_record(record, args)?)
        }
        None => {
            let record = Record { path: args.data[0].clone(), ..Record::default() };
            (record.path.display().to_string(), of_record(record, args)?)
        }
    };
    let place = |it: &Finding| rows(FINDINGS).position(|row| row[0] == it.name);
    found.findings.sort_by_key(place);
    found.findings.truncate(MOST_SHOWN);
    found.open.dedup();
    print(&found, args.json)?;
    match found.findings.len() {
        0 => Ok(()),
        count => Err(crate::failure::bad_input(
            format!("{subject}: {}", counted(count, "finding", "findings")),
            "begin with the first: it may explain the others",
        )),
    }
}

fn is_reward(target: &str) -> bool {
    let is_function = target.split_once(".py:").is_some_and(|it| !it.1.is_empty());
    hapo_net::reward::is_own(target) || is_function
}

fn of_record(mut record: Record, args: &Args) -> Result<Diagnosis> {
    record.data.extend(args.data.iter().cloned());
    record.eval_data.extend(args.eval_data.iter().cloned());
    record.model = args.model.clone().or(record.model);
    let at = record.path.display().to_string();
    let mut found = Diagnosis { framework: record.framework, at, ..Diagnosis::default() };
    data::examine(&mut record, &mut found);
    tokens::examine(&record, &mut found);
    if args.formula {
        formula::examine(&record, &mut found)?;
    }
    if record.columns.rows() > 0 || !record.answers.is_empty() {
        grading::examine(&mut record, &mut found);
        settings::examine(&record, &mut found);
        learning::examine(&record, &mut found);
    }
    found.open.append(&mut record.open);
    Ok(found)
}

fn print(found: &Diagnosis, json: bool) -> Result<()> {
    if json {
        outln!("{}", serde_json::to_string(found)?);
        return Ok(());
    }
    for (number, it) in found.findings.iter().enumerate() {
        outln!("{:>2}. {}: {}", number + 1, it.name, it.what);
        outln!("    why     {}\n    change  {}\n    place   {}", it.why, it.change, it.place);
    }
    for (title, lines) in [("holds", &found.held), ("not looked at", &found.open)] {
        for it in lines {
            outln!("{title}: {it}");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_that_is_a_finding_has_its_reason() {
        let known: Vec<&str> = rows(FINDINGS).map(|it| it[0]).collect();
        assert!(rows(FINDINGS).all(|row| row.len() == 5), "{known:?}");
        for row in rows(settings::SETTINGS) {
            assert!(row.len() == 4 && (row[1].is_empty() || known.contains(&row[1])), "{row:?}");
        }
        assert!(rows(formula::FORMULAS).all(|row| row.len() == 4));
    }

    #[test]
    fn sentences_have_the_keys_of_their_framework() {
        let ours = "cut off at sampling.max_new_tokens = 8. Cut-off answers count as wrong (data.truncated).";
        assert_eq!(Framework::Hapo.says(ours), ours);
        assert_eq!(
            Framework::Verl.says(ours),
            "cut off at data.max_response_length = 8. Cut-off answers count as wrong."
        );
    }
}
