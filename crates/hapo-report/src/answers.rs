//! Answers in a run's responses, by parts of the run: an early warning of accidental rewards.

use crate::evaluation::{Cell, Table};
use crate::folder::Run;

/// Parts of a run that are told apart.
const PARTS: usize = 3;

/// Shares of the responses that give a boxed or an announced answer, are truncated, and are correct, for each third of
/// the logged steps; `None` where a run logs no answers.
pub(crate) fn table(run: &Run) -> Option<Table> {
    let column = |name: &str| run.columns.get(name);
    let (boxed, announced) = (column("verify/boxed")?, column("verify/announced")?);
    let correct = column("verify/correct")?;
    let (wrong, unparsable) = (column("verify/wrong")?, column("verify/unparsable")?);
    let truncated = column("response_length/truncated");
    let steps = run.columns.steps();
    let responses: Vec<f64> =
        (0..steps.len()).map(|it| correct[it] + wrong[it] + unparsable[it]).collect();
    let logged: Vec<usize> = (0..steps.len()).filter(|it| responses[*it] > 0.0).collect();
    let part = logged.len().div_ceil(PARTS).max(1);
    let rows = logged.chunks(part).map(|rows| {
        let of = |value: &dyn Fn(usize) -> f64| rows.iter().map(|it| value(*it)).sum::<f64>();
        let all = of(&|it| responses[it]);
        let share = |values: &[f64]| Cell::Number(of(&|it| values[it]) / all);
        vec![
            Cell::Text(format!("{} to {}", steps[rows[0]], steps[rows[rows.len() - 1]])),
            Cell::Number(all),
            share(boxed),
            share(announced),
            match truncated {
                Some(share) => Cell::Number(of(&|it| share[it] * responses[it]) / all),
                None => Cell::Text(String::new()),
            },
            share(correct),
        ]
    });
    let rows: Vec<Vec<Cell>> = rows.collect();
    let columns = ["steps", "responses", "boxed", "announced", "truncated", "correct"];
    (!rows.is_empty()).then(|| Table {
        title: run.name.clone(),
        columns: columns.map(str::to_owned).to_vec(),
        rows,
    })
}
