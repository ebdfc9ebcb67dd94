//! The choice of learning rates on the development split.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use hapo_cli::failure::bad_input;
use hapo_data::task::Split;

use crate::study::arm::Search;
use crate::study::arms::{SEARCH_SEED, SEARCHES, find};
use crate::study::job::Job;
use crate::study::plan::StudyPlan;

/// The runs of the searches that the tables need.
pub(crate) fn jobs(plan: &StudyPlan) -> Vec<Job> {
    needed(plan).flat_map(|it| runs_of(plan, it)).collect()
}

fn needed(plan: &StudyPlan) -> impl Iterator<Item = &'static Search> + '_ {
    SEARCHES.iter().filter(|it| {
        let mut arms = plan.sections.iter().flat_map(|it| &it.arms);
        !plan.rates.contains_key(&it.name) && arms.any(|arm| find(arm).search == it.name)
    })
}

/// A rate that is given must be of a search that a table has.
pub(crate) fn require_known(plan: &StudyPlan) -> Result<()> {
    let arms = plan.sections.iter().flat_map(|it| &it.arms);
    let known: BTreeSet<&str> =
        arms.map(|it| &*find(it).search).filter(|it| !it.is_empty()).collect();
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
    search.rates.iter().flat_map(move |rate| {
        search.arms.iter().map(move |arm| Job {
            arm: find(arm),
            seed: SEARCH_SEED,
            rate: Some(*rate),
            folder: plan.out.join("search").join(format!("{arm}-{rate:e}")),
            split: Split::Development,
        })
    })
}

/// The rate of each search with the best mean over its arms, the lower one on ties; searches with a missing run are
/// left out.
pub(crate) fn best(plan: &StudyPlan) -> Result<BTreeMap<String, f64>> {
    let mut best = BTreeMap::new();
    for search in needed(plan) {
        let runs = runs_of(plan, search).map(|it| Ok(it.scores(plan)?.map(|scores| (it, scores))));
        let Some(runs) = runs.collect::<Result<Option<Vec<_>>>>()? else {
            continue;
        };
        let sum_of = |rate: f64| -> f64 {
            let of_rate = runs.iter().filter(|it| it.0.rate == Some(rate));
            of_rate.map(|it| it.1.mean()).sum()
        };
        let mut chosen = (search.rates[0], sum_of(search.rates[0]));
        for rate in &search.rates[1..] {
            // Sums of equal counts may differ in their last bits.
            let sum = sum_of(*rate);
            if sum > chosen.1 + 1e-9 {
                chosen = (*rate, sum);
            }
        }
        best.insert(search.name.clone(), chosen.0);
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::arm::StudyName;
    use crate::study::make::sections;

    /// Of two rates that are level the lower; no rate before the last run of a search is there.
    #[test]
    fn a_rate_is_chosen_when_every_run_of_its_search_is_there() {
        let of_study = sections(StudyName::Teachers, &["exact".to_owned()]).unwrap();
        let mut plan = StudyPlan::of_tests(of_study);
        let search = SEARCHES.iter().find(|it| it.name == "teachers-grpo").unwrap();
        let runs: Vec<Job> = runs_of(&plan, search).collect();
        assert_eq!(runs.len(), 3);
        let mut chosen = Vec::new();
        for (run, success) in runs.iter().zip([0.5, 0.75, 0.75]) {
            plan.record.add(run.name(&plan), run.scores_of_tests(&plan, success));
            chosen.push(best(&plan).unwrap().get("teachers-grpo").copied());
        }
        assert_eq!(chosen, [None, None, Some(1e-4)]);
        plan.rates.insert("teachers-grpo".to_owned(), 3e-5);
        assert!(jobs(&plan).iter().all(|it| it.arm.search != "teachers-grpo"), "it is given");
        require_known(&plan).unwrap();
        plan.rates.insert("ladder-grpo".to_owned(), 3e-5);
        let message = require_known(&plan).unwrap_err().to_string();
        assert_eq!(message, "expected the name of a search, got `ladder-grpo`");
    }
}
