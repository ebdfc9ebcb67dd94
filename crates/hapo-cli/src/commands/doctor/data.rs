//! Data files: what training and evaluation share, and what `hapo data check` finds.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use hapo_core::{counted, excerpt};
use hapo_data::{Example, Reading, Row};
use hapo_train::plain_problem;
use hapo_verify::{Extracting, Extraction, Grader, TRAINING};

use super::{Diagnosis, record::Record};
use crate::commands::data::{Solutions, judge};

const ROWS: usize = 200_000;

pub(super) fn examine(record: &mut Record, found: &mut Diagnosis) {
    let (data, eval_data) = (record.data.clone(), record.eval_data.clone());
    // A run of ours names its grader, which may be a custom reward; the default is tried on others' data.
    let grader = hapo_verify::grader(record.setting("data.grader").unwrap_or(TRAINING.name()));
    let rule = record.setting("data.extraction").and_then(Extraction::named).unwrap_or_default();
    let judged_by = grader.ok().map(|it| Extracting::new(it, rule));
    let trained = read(&data, judged_by, record, found);
    let held_out = read(&eval_data, None, record, found);
    record.first_problem = trained.first().map(|it| it.problem.clone());
    let problems = |all: &[Example]| all.iter().map(|it| it.problem.clone()).collect();
    let mut sets: [Vec<String>; 2] = [&trained, &held_out].map(|it| problems(it));
    if sets.iter().any(Vec::is_empty) {
        // Files that are not here may be told by what was sampled.
        let sampled = [&record.answers, &record.held_out];
        sets = sampled.map(|all| all.iter().map(|it| it.prompt.clone()).collect());
    }
    let [known, asked] = sets;
    overlap(&known, &asked, found);
    // Completions that are kept without theirs.
    let golds: HashMap<&str, &str> =
        trained.iter().map(|it| (it.problem.trim(), &*it.answer)).collect();
    for it in record.answers.iter_mut().filter(|it| it.gold.is_none()) {
        it.gold = golds.get(it.prompt.trim()).map(|it| (*it).to_owned());
    }
}

/// The good rows of files; the bad ones, and the solutions that are wrong, are findings.
fn read(
    files: &[PathBuf],
    judged_by: Option<Extracting<'static>>,
    record: &mut Record,
    found: &mut Diagnosis,
) -> Vec<Example> {
    let (mut examples, mut bad) = (Vec::new(), Vec::new());
    let grader = judged_by.map(|it| it.grader());
    let rule = judged_by.map_or_else(Extraction::default, |it| it.extraction());
    let mut solutions = Solutions::new(grader, rule);
    let opened = (!files.is_empty()).then(|| hapo_data::open_all(files, &Reading::default()));
    let Some(mut rows) = opened.and_then(|it| record.take(it)) else { return examples };
    while let Some(row) = rows.next().filter(|_| examples.len() < ROWS) {
        let Some(row) = record.take(row) else { break };
        match judge(&rows, &row, grader) {
            Some(it) => bad.push(it),
            // A grader of ours does not fail.
            None => drop(solutions.add(&row)),
        }
        if let Row::Good(it) = row {
            examples.push(it);
        }
    }
    let all = counted(examples.len(), "row", "rows");
    // Where most gold answers are no mathematics, another grader is meant.
    if let Some(first) = bad.first().filter(|_| 2 * bad.len() < examples.len()) {
        let name = if first.field == "answer" { "gold-unread" } else { "data" };
        let n = counted(bad.len(), "row is bad", "rows are bad");
        found.add(name, format!("{n} of {all}, the first: {first}."));
    }
    let (right, taught) = (solutions.correct(), solutions.all);
    if taught > 0 && right == 0 && record.setting("data.grader").is_none() {
        found.skip(format!(
            "{taught} solutions: our grader calls none of them right, so it is not theirs"
        ));
    } else if 20 * (taught - right) > taught {
        let what = format!("{right} of {taught} solutions are right by their gold answers.");
        found.add("gold-denied", what);
    } else if bad.is_empty() && grader.is_some() {
        found.held.push(format!("data: {all}, none bad; {right} of {taught} solutions are right"));
    }
    examples
}

fn overlap(known: &[String], asked: &[String], found: &mut Diagnosis) {
    let known: HashSet<String> = known.iter().map(|it| plain_problem(it)).collect();
    let shared = asked.iter().filter(|it| known.contains(&plain_problem(it)));
    let (shared, all): (Vec<&String>, usize) = (shared.collect(), asked.len());
    if let Some(first) = shared.first() {
        let (n, it) = (shared.len(), excerpt(first.trim(), 60));
        let what =
            format!("{n} of {all} problems of the evaluation are in training, such as {it}.");
        found.add("eval-in-train", what);
    } else if known.is_empty() || asked.is_empty() {
        found.skip("evaluation inside training: both sets are needed (--data, --eval-data)");
    } else {
        found.held.push(format!("training has none of the {all} problems of the evaluation"));
    }
}
