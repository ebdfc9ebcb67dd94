//! The choice of learning rates on the development split.

use std::collections::BTreeMap;

use hapo_data::task::Split;

use crate::arm::Search;
use crate::arms::{SEARCH_SEED, SEARCHES, find};
use crate::error::Result;
use crate::job::Job;
use crate::plan::StudyPlan;
use crate::scores::Scores;

/// The runs of the searches that the tables need.
pub(crate) fn jobs(plan: &StudyPlan) -> Vec<Job> {
    needed(plan).flat_map(|it| runs_of(plan, it)).collect()
}

fn needed(plan: &StudyPlan) -> impl Iterator<Item = &'static Search> + '_ {
    SEARCHES.iter().filter(|it| {
        let mut arms = plan.sections.iter().flat_map(|it| &it.arms);
        arms.any(|arm| find(arm).search == it.name)
    })
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

/// The rate of each search with the best mean over its arms, of those whose runs are all done.
pub(crate) fn best(plan: &StudyPlan) -> Result<BTreeMap<String, f64>> {
    let mut best: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for search in needed(plan) {
        for rate in search.rates {
            let of_rate = runs_of(plan, search).filter(|it| it.rate == Some(*rate));
            let scores = of_rate.map(|it| it.scores(plan)).collect::<Result<Option<Vec<_>>>>()?;
            let Some(scores) = scores else {
                continue;
            };
            let mean = scores.iter().map(Scores::mean).sum::<f64>() / scores.len() as f64;
            let entry = best.entry(search.name.clone()).or_insert((*rate, f64::NEG_INFINITY));
            if mean > entry.1 {
                *entry = (*rate, mean);
            }
        }
    }
    Ok(best.into_iter().map(|(name, it)| (name, it.0)).collect())
}
