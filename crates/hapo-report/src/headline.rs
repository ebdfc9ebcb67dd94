//! The sentence on top of a page: the result of its runs.

use hapo_run::{Change, nothing_learned};

use crate::evaluation::{Cell, Table};
use crate::folder::Run;

const NAMED: usize = 6;

/// The result of the runs: success on held-out problems where they were evaluated, else the reward; and when the teacher
/// left. Empty where nothing is logged.
pub(crate) fn headline(runs: &[Run], tables: &[Table]) -> String {
    let mut sentences = Vec::new();
    // A stage that another continues has no result of its own.
    let is_last = |at: usize| runs.iter().all(|it| it.continues != Some(at));
    let last: Vec<&Run> = (0..runs.len()).filter(|it| is_last(*it)).map(|it| &runs[it]).collect();
    if let Some(models) = tables.iter().find_map(averages) {
        let percent = |share| format!("{:.0} %", share * 100.0);
        sentences.push(format!("Held-out problems solved: {}.", ranked(models, percent)));
    } else if let [run] = last.as_slice() {
        sentences.extend(change(run));
    } else if let Some((name, ends)) = last_of_all(&last) {
        sentences
            .push(format!("{name} at the end: {}.", ranked(ends, |reward| format!("{reward:.3}"))));
    }
    let left: Vec<_> = runs.iter().filter_map(|run| Some((&*run.name, left(run)?))).collect();
    match left.as_slice() {
        [] => {}
        [(_, step)] if runs.len() == 1 => {
            sentences.push(format!("The teacher left at step {step}."));
        }
        some => {
            let steps = some.iter().map(|(name, step)| format!("{name} at step {step}"));
            let steps: Vec<String> = steps.take(NAMED).collect();
            sentences.push(format!("The teacher left {}.", steps.join(", ")));
        }
    }
    sentences.join(" ")
}

fn change(run: &Run) -> Option<String> {
    if let Some(why) = nothing_learned(&run.columns) {
        return Some(format!("Nothing was learned: {why}."));
    }
    let change = run.changes().into_iter().next()?;
    Some(format!("{} {}.", capital(change.name), change.text()))
}

fn capital(name: &str) -> String {
    let (first, rest) = name.split_at(1);
    first.to_uppercase() + rest
}

/// Each model's mean over the problems of an evaluation.
fn averages(table: &Table) -> Option<Vec<(String, f64)>> {
    let column = |name: &str| table.columns.iter().position(|it| it == name);
    let (model, average) = (column("model")?, column("average")?);
    let of = |row: &Vec<Cell>| match (&row[model], &row[average]) {
        (Cell::Text(model), Cell::Estimate { mean, .. }) => Some((model.clone(), *mean)),
        _ => None,
    };
    table.rows.iter().map(of).collect()
}

/// The first of these numbers that every run has, and its last value in each.
fn last_of_all(runs: &[&Run]) -> Option<(String, Vec<(String, f64)>)> {
    ["held-out success", "held-out reward", "reward"].into_iter().find_map(|name| {
        let last = |run: &&Run| {
            // Where every reward is 0 or 1 the mean reward is the success.
            let is_it = |it: &Change| it.name == name || name == "held-out reward" && it.steps == 0;
            Some((run.name.clone(), run.changes().into_iter().find(is_it)?.last?))
        };
        let all: Vec<_> = runs.iter().map(last).collect::<Option<_>>()?;
        (!all.is_empty()).then(|| (capital(name), all))
    })
}

fn ranked(mut all: Vec<(String, f64)>, text: fn(f64) -> String) -> String {
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    let named = all.iter().take(NAMED).map(|(name, value)| format!("{name} {}", text(*value)));
    let mut parts: Vec<String> = named.collect();
    if all.len() > NAMED {
        parts.push(format!("and {} more", all.len() - NAMED));
    }
    parts.join(", ")
}

/// The step at which the gate had closed for good, once the run is there.
fn left(run: &Run) -> Option<u64> {
    let step = run.gate.as_ref()?.extinct_at_step?.0;
    (run.columns.steps().last().copied()? >= step as f64).then_some(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_models_is_told_the_highest_first() {
        let row = |model: &str, mean: f64| {
            vec![Cell::Text(model.to_owned()), Cell::Estimate { mean, low: 0.0, high: 1.0 }]
        };
        let columns = vec!["model".to_owned(), "average".to_owned()];
        let rows = vec![row("GRPO", 0.561), row("TRAPO-HAPO", 0.871)];
        let table = Table { title: String::new(), columns, rows };
        assert_eq!(
            headline(&[], &[table]),
            "Held-out problems solved: TRAPO-HAPO 87 %, GRPO 56 %."
        );
        assert_eq!(headline(&[], &[]), "");
    }
}
