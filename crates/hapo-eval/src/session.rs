//! A resumable evaluation.
//!
//! Results are graded, recorded and counted as they come, so that a killed evaluation resumes where its record ends. The
//! price is that every completion stays in memory until the scores are computed.

use std::collections::BTreeMap;
use std::path::Path;

use hapo_kernels::Device;
use hapo_verify::Grader;

use crate::error::Error;
use crate::evaluate::{EvalModel, EvalSettings, sample_problems};
use crate::graded::{Judge, ProblemResult, RawCompletion};
use crate::plan::{EvalPlan, EvalSet};
use crate::record::Record;
use crate::score::{Score, score};

/// How far an evaluation is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EvalProgress {
    /// Problems with a result.
    pub problems: usize,
    /// Share of their completions that are correct, as a mean over problems.
    pub success: f64,
}

/// An evaluation and the results it has.
pub struct EvalSession<'a> {
    plan: &'a EvalPlan,
    judges: Vec<Judge<'a>>,
    record: Option<Record>,
    results: Vec<BTreeMap<usize, ProblemResult>>,
    observer: &'a dyn Fn(EvalProgress),
}

impl<'a> EvalSession<'a> {
    /// Opens an evaluation, with the results of its record if there is one. `observer` is called after each problem.
    ///
    /// # Errors
    /// [`Error::OtherProblems`] for the record of another evaluation; [`Error::Gold`]; those of [`Record::open`].
    pub fn open(
        plan: &'a EvalPlan,
        record: Option<&Path>,
        observer: &'a dyn Fn(EvalProgress),
    ) -> Result<Self, Error> {
        let mut results = vec![BTreeMap::new(); plan.sets.len()];
        let mut opened = None;
        if let Some(path) = record {
            let (record, mut found) = Record::open(path, &plan.settings())?;
            for (set, results) in plan.sets.iter().zip(&mut results) {
                if let Some(it) = found.take(&set.name) {
                    require_same_problems(path, set, &it)?;
                    *results = it;
                }
            }
            opened = Some(record);
        }
        let other = plan.other_grader();
        let other = other.as_ref().map(|it| it as &dyn Grader);
        let judge = |it: &'a EvalSet| Judge::new(&it.dataset, &plan.grader, other);
        Ok(Self {
            plan,
            judges: plan.sets.iter().map(judge).collect::<Result<_, _>>()?,
            record: opened,
            results,
            observer,
        })
    }

    /// The evaluation.
    pub fn plan(&self) -> &'a EvalPlan {
        self.plan
    }

    /// Samples the completions that are missing from a local model.
    ///
    /// # Errors
    /// Those of [`sample_problems`]; [`Error::Run`] of the record.
    pub fn sample<D: Device>(&mut self, model: EvalModel<'_, D>) -> Result<(), Error> {
        const PROBLEMS_AT_ONCE: usize = 64;
        let decoding = self.plan.decoding()?;
        for (index, set) in self.plan.sets.iter().enumerate() {
            let settings = EvalSettings {
                completions: set.completions,
                decoding,
                max_new_tokens: self.plan.max_tokens,
                max_sequences: 256,
                seed: self.plan.seed,
            };
            let missing = self.missing(index);
            // Completions do not depend on how the problems are cut; without a record nothing is gained by cutting.
            let at_once = match self.record {
                Some(_) => PROBLEMS_AT_ONCE,
                None => missing.len().max(1),
            };
            for problems in missing.chunks(at_once) {
                let sampled = sample_problems(model, &set.dataset, problems, settings)?;
                for (problem, completions) in problems.iter().zip(sampled) {
                    self.add(index, *problem, completions)?;
                }
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Problems of a set that have no result.
    pub(crate) fn missing(&self, set: usize) -> Vec<usize> {
        let all = 0..self.plan.sets[set].dataset.examples.len();
        all.filter(|it| !self.results[set].contains_key(it)).collect()
    }

    /// Grades and records the completions of a problem.
    pub(crate) fn add(
        &mut self,
        set: usize,
        problem: usize,
        completions: Vec<RawCompletion>,
    ) -> Result<(), Error> {
        let result = self.judges[set].grade(problem, completions);
        if let Some(record) = &mut self.record {
            record.add(&self.plan.sets[set].name, problem, &result)?;
        }
        self.results[set].insert(problem, result);
        let all = || self.results.iter().flat_map(BTreeMap::values);
        let problems = all().count();
        (self.observer)(EvalProgress {
            problems,
            success: all().map(ProblemResult::success).sum::<f64>() / problems as f64,
        });
        Ok(())
    }

    /// Flushes the record to the disk.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        self.record.as_mut().map_or(Ok(()), Record::flush)
    }

    /// The scores of the sets that have results.
    pub fn scores(self) -> Vec<Score> {
        let seed = self.plan.seed;
        let sets = self.plan.sets.iter().zip(self.results);
        sets.filter_map(|(set, results)| {
            let results: Vec<ProblemResult> = results.into_values().collect();
            score(&set.name, &results, seed)
        })
        .collect()
    }
}

/// Whether recorded results are results of these problems.
fn require_same_problems(
    path: &Path,
    set: &EvalSet,
    results: &BTreeMap<usize, ProblemResult>,
) -> Result<(), Error> {
    let is_same = |index: usize, it: &ProblemResult| {
        set.dataset.examples.get(index).is_some_and(|example| {
            example.id == it.id
                && example.answer == it.gold
                && it.completions.len() == set.completions
        })
    };
    match results.iter().find(|it| !is_same(*it.0, it.1)) {
        None => Ok(()),
        Some((index, it)) => Err(Error::OtherProblems {
            path: path.to_owned(),
            set: set.name.clone(),
            index: *index,
            id: it.id.clone(),
        }),
    }
}
