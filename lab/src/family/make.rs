//! A study: its runs, several at a time, and its tables.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::Result;
use hapo_cli::failure::bad_input;
use hapo_data::task::Split;
use hapo_run::write_atomically;

use crate::family::arm::{Base, Section};
use crate::family::arms::{ONLY_NAMED, SECTIONS, find};
use crate::family::job::Job;
use crate::family::plan::{Cost, RunDone, StudyObserver, StudyPlan};
use crate::family::tables::StudyResults;
use crate::family::{ladder, rates, real};

/// The outcome of a study.
#[derive(Debug)]
pub(crate) struct StudyOutcome {
    /// Its tables, which are in its folder too.
    pub(crate) results: StudyResults,
    /// Runs of the tables.
    pub(crate) runs: usize,
    /// Those of them that are missing.
    pub(crate) missing: usize,
}

/// The tables of those names; for no names all but [`ONLY_NAMED`]. The pretrained model's are its own.
pub(crate) fn sections(only: &[String], pretrained: bool) -> Result<Vec<&'static Section>> {
    let known = || SECTIONS.iter().filter(|section| (section.name == real::TABLE) == pretrained);
    if let Some(name) = only.iter().find(|name| known().all(|section| section.name != **name)) {
        let names: Vec<&str> = known().map(|section| section.name.as_str()).collect();
        return Err(bad_input(
            format!("expected a table of the family, got `{name}`"),
            format!("tables are {}", names.join(", ")),
        ));
    }
    let wanted = |section: &&Section| match only {
        [] => !ONLY_NAMED.contains(&section.name.as_str()),
        _ => only.contains(&section.name),
    };
    Ok(known().filter(wanted).collect())
}

/// Refuses an arm that is in none of the tables.
pub(crate) fn require_arms(arms: &[String], sections: &[&Section]) -> Result<()> {
    let rows = sections.iter().flat_map(|section| &section.rows);
    let names: BTreeSet<&str> = rows.map(|row| row.arm.as_str()).collect();
    match arms.iter().find(|name| !names.contains(name.as_str())) {
        None => Ok(()),
        Some(name) => Err(bad_input(
            format!("expected an arm of the tables, got `{name}`"),
            format!("arms are {}", names.into_iter().collect::<Vec<_>>().join(", ")),
        )),
    }
}

/// Drops tables from the end until the missing runs fit into the hours. Their names.
pub(crate) fn drop_to(plan: &mut StudyPlan, hours: f64) -> Result<Vec<&'static str>> {
    let mut dropped = Vec::new();
    while plan.sections.len() > 1 && cost(plan)?.hours > hours {
        dropped.extend(plan.sections.pop().map(|section| section.name.as_str()));
    }
    Ok(dropped)
}

/// Makes the runs of a study that are missing, and its tables from those that are done.
pub(crate) fn study(plan: &StudyPlan, observer: &dyn StudyObserver) -> Result<StudyOutcome> {
    rates::require_known(plan)?;
    hapo_run::create_folder(&plan.out)?;
    let continues = || plan.train && !observer.stop_requested();
    if plan.train {
        observer.begins(&cost(plan)?);
        make_bases(plan, observer)?;
    }
    let mut rates = plan.rates.clone();
    if plan.search {
        if continues() {
            work(plan, &with_base(plan, rates::jobs(plan)), observer)?;
        }
        rates = rates::best(plan)?;
        rates.extend(plan.rates.clone());
        if continues() {
            let json = serde_json::to_vec_pretty(&rates).expect("rates are plain data");
            write_atomically(&plan.out.join("learning-rates.json"), &json)?;
        }
    }
    let jobs = table_jobs(plan, &rates);
    let runs = jobs.len();
    // Another process may be about the rest of a search, or a base.
    let is_chosen =
        |it: &Job| !plan.search || it.arm.search.is_empty() || rates.contains_key(&it.arm.search);
    let jobs: Vec<Job> = jobs.into_iter().filter(is_chosen).collect();
    if continues() {
        work(plan, &with_base(plan, jobs.clone()), observer)?;
    }
    let (mut done, mut record) = (BTreeMap::new(), plan.record.clone());
    for job in &jobs {
        if let Some(it) = job.scores(plan)? {
            record.add(job.name(plan), it.clone());
            done.insert((job.arm.name.clone(), job.seed), it);
        }
    }
    if plan.search {
        for job in rates::jobs(plan) {
            if let Some(it) = job.scores(plan)? {
                record.add(job.name(plan), it);
            }
        }
    }
    let missing = runs - done.len();
    let results = StudyResults::of(&plan.sections, plan.seeds, &rates, &done)?;
    results.write(&plan.out)?;
    let path = plan.out.join("family.runs.jsonl");
    // Rows of tables that this call does not make stay.
    let asked: BTreeSet<String> = jobs.iter().map(|it| it.name(plan)).collect();
    record.add_others(&path, |it| !asked.contains(it))?;
    record.write(&path)?;
    Ok(StudyOutcome { results, runs, missing })
}

/// Those whose base is there.
fn with_base(plan: &StudyPlan, jobs: Vec<Job>) -> Vec<Job> {
    let missing = missing_bases(plan);
    let is_there = |it: &Job| !matches!(it.arm.base, Base::Rung(rung) if missing.contains(&rung));
    jobs.into_iter().filter(is_there).collect()
}

/// The rungs whose bases runs that are missing need and that are not there.
fn missing_bases(plan: &StudyPlan) -> BTreeSet<usize> {
    let mut jobs = table_jobs(plan, &BTreeMap::new());
    jobs.extend(if plan.search { rates::jobs(plan) } else { Vec::new() });
    let missing = jobs.iter().filter(|it| it.took(plan).is_none());
    let rungs = missing.filter_map(|it| match it.arm.base {
        Base::Rung(rung) => Some(rung),
        Base::Shipped | Base::Pretrained => None,
    });
    rungs.filter(|it| !ladder::folder_of(&plan.out, *it).join("config.json").exists()).collect()
}

fn make_bases(plan: &StudyPlan, observer: &dyn StudyObserver) -> Result<()> {
    for rung in missing_bases(plan) {
        let observe = |arm: &str, steps| observer.observe(arm, steps);
        if observer.stop_requested() {
            break;
        }
        ladder::make(&plan.out, rung, plan.threads, &observe)?;
    }
    Ok(())
}

/// Cost of the missing runs.
fn cost(plan: &StudyPlan) -> Result<Cost> {
    let bases = missing_bases(plan).len();
    // The rates do not matter for the time.
    let tables = table_jobs(plan, &BTreeMap::new());
    let searches = if plan.search { rates::jobs(plan) } else { Vec::new() };
    let (mut expected, mut measured) = (0.0, 0.0);
    let mut count = 0;
    let mut missing = |jobs: &[Job]| -> Result<(usize, f64)> {
        let (mut runs, mut seconds) = (0, 0.0);
        for job in jobs {
            let takes = job.expected_seconds(plan)?;
            if let Some(took) = job.took(plan) {
                (expected, measured, count) = (expected + takes, measured + took, count + 1);
            } else {
                (runs, seconds) = (runs + 1, seconds + takes + job.expected_scoring_seconds(plan));
            }
        }
        Ok((runs, seconds))
    };
    let (searches, search_seconds) = missing(&searches)?;
    let (runs, run_seconds) = missing(&tables)?;
    let scale = if expected > 0.0 { measured / expected } else { 1.0 };
    let at_once = plan.jobs.min(plan.threads) as f64;
    let of_bases =
        if bases > 0 { ladder::seconds(bases) / plan.threads.min(2) as f64 } else { 0.0 };
    let seconds = scale * ((search_seconds + run_seconds) / at_once + of_bases);
    Ok(Cost { bases, searches, runs, hours: seconds / 3600.0, measured: count })
}

/// The runs of the tables, table by table, since a missing table is dropped as a whole, and never a seed.
fn table_jobs(plan: &StudyPlan, rates: &BTreeMap<String, f64>) -> Vec<Job> {
    let mut jobs: Vec<Job> = Vec::new();
    for section in &plan.sections {
        for seed in 0..plan.seeds_of(section) {
            for row in section.rows.iter().filter(|row| plan.wants(&row.arm)) {
                let arm = find(&row.arm);
                if jobs.iter().all(|job| job.arm.name != arm.name || job.seed != seed) {
                    jobs.push(Job {
                        arm,
                        seed,
                        value: rates.get(&arm.search).copied(),
                        folder: Job::folder_of(&plan.out, &arm.name, seed),
                        split: Split::HeldOut,
                    });
                }
            }
        }
    }
    jobs
}

/// Makes the runs that are missing, `plan.jobs` at a time.
fn work(plan: &StudyPlan, jobs: &[Job], observer: &dyn StudyObserver) -> Result<()> {
    let mut waiting = VecDeque::new();
    for job in jobs {
        if job.scores(plan)?.is_none() {
            waiting.push_back(job);
        }
    }
    let total = waiting.len();
    let (waiting, done) = (Mutex::new(waiting), Mutex::new(0));
    let failed = AtomicBool::new(false);
    let lock = "no worker panics with the lock";
    let worker = || -> Result<()> {
        loop {
            let next = waiting.lock().expect(lock).pop_front();
            let stops = observer.stop_requested() || failed.load(Ordering::Relaxed);
            let Some(job) = next.filter(|_| !stops) else {
                return Ok(());
            };
            let started = Instant::now();
            let scores =
                job.make(plan, observer).inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
            let mut done = done.lock().expect(lock);
            *done += 1;
            observer.run_done(&RunDone {
                done: *done,
                total,
                arm: &job.arm.name,
                seed: job.seed,
                success: scores.map(|it| it.mean()),
                took: started.elapsed(),
            });
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..plan.jobs).map(|_| scope.spawn(worker)).collect();
        let results = workers.into_iter().map(|it| it.join().expect("a worker does not panic"));
        results.collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan_of(only: &[&str]) -> StudyPlan {
        let only: Vec<String> = only.iter().map(|it| (*it).to_owned()).collect();
        StudyPlan::of_tests(sections(&only, false).unwrap())
    }

    #[test]
    fn cells_share_runs_and_what_does_not_fit_is_dropped_from_the_end() {
        let core = cost(&plan_of(&["0-exact", "0-repeated"])).unwrap();
        // 20 seeds of twelve arms and of the ten that a trace enters; three values for each arm.
        assert_eq!((core.bases, core.searches, core.runs), (2, 36, 440));
        let mut plan = plan_of(&[]);
        let all = cost(&plan).unwrap();
        assert!(all.hours > core.hours + 1.0 && plan.sections.len() == 11, "{all:?}");
        let dropped = drop_to(&mut plan, core.hours + 0.5).unwrap();
        assert_eq!(dropped[..2], ["budgets", "others"]);
        assert!(cost(&plan).unwrap().hours <= core.hours + 0.5);
    }

    #[test]
    fn a_table_that_is_none_is_refused_with_those_that_are() {
        let error = sections(&["table1".to_owned()], false).unwrap_err();
        assert_eq!(error.to_string(), "expected a table of the family, got `table1`");
        let tables = sections(&["0-exact".to_owned()], false).unwrap();
        let error = require_arms(&["0-repeated-trapo".to_owned()], &tables).unwrap_err();
        assert_eq!(error.to_string(), "expected an arm of the tables, got `0-repeated-trapo`");
    }

    #[test]
    fn arms_that_are_named_are_run_alone() {
        let all = plan_of(&["0-repeated"]);
        let plan = StudyPlan { arms: vec!["0-repeated-trapo".to_owned()], ..all };
        let jobs = table_jobs(&plan, &BTreeMap::new());
        assert_eq!(jobs.len(), 20);
        assert!(jobs.iter().all(|job| job.arm.name == "0-repeated-trapo"));
        let searched: Vec<Job> = rates::jobs(&plan);
        assert!(
            searched.len() == 3 && searched.iter().all(|job| job.arm.name == "0.1-exact-trapo")
        );
    }
}
