//! The choice of each method's value, a learning rate or a number of steps, on the development split.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use hapo_cli::failure::bad_input;
use hapo_data::task::Split;

use crate::family::arm::Search;
use crate::family::arms::{SEARCH_SEED, SEARCHES, find};
use crate::family::job::Job;
use crate::family::plan::StudyPlan;

/// The runs of the searches that the tables need.
pub(crate) fn jobs(plan: &StudyPlan) -> Vec<Job> {
    needed(plan).flat_map(|it| runs_of(plan, it)).collect()
}

fn needed(plan: &StudyPlan) -> impl Iterator<Item = &'static Search> + '_ {
    SEARCHES.iter().filter(|it| {
        let rows = plan.sections.iter().flat_map(|section| &section.rows);
        let mut wanted = rows.filter(|row| plan.wants(&row.arm));
        !plan.rates.contains_key(&it.name) && wanted.any(|row| find(&row.arm).search == it.name)
    })
}

/// A rate that is given must be of a search that a table has.
pub(crate) fn require_known(plan: &StudyPlan) -> Result<()> {
    let rows = plan.sections.iter().flat_map(|section| &section.rows);
    let known: BTreeSet<&str> =
        rows.map(|row| &*find(&row.arm).search).filter(|it| !it.is_empty()).collect();
    match plan.rates.keys().find(|it| !known.contains(&***it)) {
        None => Ok(()),
        Some(name) => {
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            Err(bad_input(
                format!("expected the name of a search, got `{name}`"),
                format!("those of these tables are {known}"),
            ))
        }
    }
}

fn runs_of<'a>(plan: &'a StudyPlan, search: &'a Search) -> impl Iterator<Item = Job> + 'a {
    search.values.iter().map(|value| Job {
        arm: find(&search.arm),
        seed: SEARCH_SEED,
        value: Some(*value),
        folder: plan.out.join("search").join(format!("{}-{value:e}", search.arm)),
        split: Split::Development,
    })
}

/// The value of each search with the best success, the lower one on ties; searches with a missing run are left out.
pub(crate) fn best(plan: &StudyPlan) -> Result<BTreeMap<String, f64>> {
    let mut best = BTreeMap::new();
    for search in needed(plan) {
        let runs = runs_of(plan, search).map(|job| job.scores(plan));
        let Some(runs) = runs.collect::<Result<Option<Vec<_>>>>()? else {
            continue;
        };
        let mut chosen = (search.values[0], runs[0].mean());
        for (value, run) in search.values.iter().zip(&runs) {
            // Means of equal counts may differ in their last bits.
            if run.mean() > chosen.1 + 1e-9 {
                chosen = (*value, run.mean());
            }
        }
        best.insert(search.name.clone(), chosen.0);
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::make::sections;

    /// Of two values that are level the lower; none before the last run of a search is there.
    #[test]
    fn a_value_is_chosen_when_every_run_of_its_search_is_there() {
        let mut plan = StudyPlan::of_tests(sections(&["0-exact".to_owned()], false).unwrap());
        let search = SEARCHES.iter().find(|search| search.name == "sft-grpo").unwrap();
        let runs: Vec<Job> = runs_of(&plan, search).collect();
        assert_eq!(runs.len(), 3);
        let mut chosen = Vec::new();
        for (run, success) in runs.iter().zip([0.5, 0.75, 0.75]) {
            plan.record.add(run.name(&plan), run.scores_of_tests(&plan, success));
            chosen.push(best(&plan).unwrap().get("sft-grpo").copied());
        }
        assert_eq!(chosen, [None, None, Some(20.0)]);
        plan.rates.insert("sft-grpo".to_owned(), 7.0);
        assert!(jobs(&plan).iter().all(|job| job.arm.search != "sft-grpo"), "it is given");
        require_known(&plan).unwrap();
        plan.rates.insert("ladder-grpo".to_owned(), 3e-5);
        let message = require_known(&plan).unwrap_err().to_string();
        assert_eq!(message, "expected the name of a search, got `ladder-grpo`");
    }
}
