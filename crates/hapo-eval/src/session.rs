//! A resumable evaluation.
//!
//! Results are graded, recorded and counted as they come, so a killed evaluation resumes where its record ends, and the
//! sequences decoded at once bound a local model's memory. The price: the text of every completion stays in memory
//! until the scores are computed.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use hapo_core::{Refusal, Remedy};
use hapo_kernels::Device;
use hapo_verify::Grader;

use crate::evaluate::{EvalModel, EvalSettings, of_problem, prompts_of, sample_problems};
use crate::graded::{Judge, ProblemResult, RawCompletion};
use crate::plan::{EvalPlan, EvalSet};
use crate::record::Record;
use crate::score::{Score, score};

/// How far an evaluation is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EvalProgress {
    /// Problems with a result.
    pub problems: usize,
    /// Their completions.
    pub completions: usize,
    /// Share of their completions that are correct, as a mean over problems.
    pub success: f64,
}

/// An evaluation and the results it has.
pub struct EvalSession<'a> {
    plan: &'a EvalPlan,
    judges: Vec<Judge<'a>>,
    record: Option<Record>,
    results: Vec<BTreeMap<usize, ProblemResult>>,
    /// The rendered prompts of each set, made on a local model's first use.
    prompts: Vec<OnceCell<Vec<Vec<u32>>>>,
    observer: &'a dyn Fn(EvalProgress),
}

impl<'a> EvalSession<'a> {
    /// Opens an evaluation, with the results of its record if there is one. `observer` is called after each problem.
    pub fn open(
        plan: &'a EvalPlan,
        record: Option<&Path>,
        observer: &'a dyn Fn(EvalProgress),
    ) -> Result<Self, Refusal> {
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
        let judge = |it: &'a EvalSet| {
            let judge = Judge::new(&it.dataset, &plan.grader, other);
            judge.map(|it| it.with_truncated(plan.truncated))
        };
        Ok(Self {
            plan,
            judges: plan.sets.iter().map(judge).collect::<Result<_, _>>()?,
            record: opened,
            results,
            prompts: vec![OnceCell::new(); plan.sets.len()],
            observer,
        })
    }

    /// The evaluation.
    pub fn plan(&self) -> &'a EvalPlan {
        self.plan
    }

    /// Samples the completions that are missing from a local model. Each problem is graded, recorded and counted as
    /// soon as its completions are there.
    pub fn sample<D: Device>(&mut self, model: EvalModel<'_, D>) -> Result<(), Refusal> {
        const FLUSH_EVERY: Duration = Duration::from_secs(1);
        let decoding = self.plan.decoding()?;
        for (index, set) in self.plan.sets.iter().enumerate() {
            let missing = self.missing(index);
            self.prompts_of(index, model)?;
            // No other set asks for them again.
            let prompts = self.prompts[index].take().unwrap_or_default();
            let settings = EvalSettings {
                completions: set.completions,
                decoding,
                max_new_tokens: self.plan.max_tokens,
                max_sequences: self.plan.max_sequences,
                kv_memory: self.plan.kv_memory,
                seed: self.plan.seed,
                draws: set.draws(),
            };
            let mut flushed = Instant::now();
            sample_problems(model, &prompts, &missing, settings, |problem, completions| {
                self.add(index, problem, completions)?;
                if flushed.elapsed() >= FLUSH_EVERY {
                    self.flush()?;
                    flushed = Instant::now();
                }
                Ok(())
            })
            .map_err(|refusal| of_problem(refusal, &set.dataset, &missing))?;
            self.flush()?;
        }
        Ok(())
    }

    /// A warning before a local model is sampled: sequences beyond its maximum position.
    pub fn warning<D: Device>(&self, model: EvalModel<'_, D>) -> Result<Option<String>, Refusal> {
        let mut longest = 0;
        for set in 0..self.plan.sets.len() {
            longest = longest.max(longest_prompt(self.prompts_of(set, model)?));
        }
        Ok(model.model.config().beyond_positions(longest + self.plan.max_tokens))
    }

    /// The prompts of a set, rendered once.
    fn prompts_of<D: Device>(
        &self,
        set: usize,
        model: EvalModel<'_, D>,
    ) -> Result<&[Vec<u32>], Refusal> {
        if let Some(it) = self.prompts[set].get() {
            return Ok(it);
        }
        let rendered = prompts_of(model.chat_format, &self.plan.sets[set].dataset)?;
        Ok(self.prompts[set].get_or_init(|| rendered))
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
    ) -> Result<(), Refusal> {
        let result = self.judges[set].grade(problem, completions)?;
        if let Some(record) = &mut self.record {
            record.add(&self.plan.sets[set].name, problem, &result)?;
        }
        self.results[set].insert(problem, result);
        let all = || self.results.iter().flat_map(BTreeMap::values);
        let problems = all().count();
        (self.observer)(EvalProgress {
            problems,
            completions: all().map(|it| it.completions.len()).sum(),
            success: all().map(ProblemResult::success).sum::<f64>() / problems as f64,
        });
        Ok(())
    }

    /// Flushes the record to the disk.
    pub(crate) fn flush(&mut self) -> Result<(), Refusal> {
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

fn longest_prompt(prompts: &[Vec<u32>]) -> usize {
    prompts.iter().map(Vec::len).max().unwrap_or(0)
}

/// Checks that recorded results belong to these problems.
fn require_same_problems(
    path: &Path,
    set: &EvalSet,
    results: &BTreeMap<usize, ProblemResult>,
) -> Result<(), Refusal> {
    let is_same = |index: usize, it: &ProblemResult| {
        set.dataset.examples.get(index).is_some_and(|example| {
            example.id == it.id
                && example.answer == it.gold
                && it.completions.len() == set.completions
        })
    };
    match results.iter().find(|it| !is_same(*it.0, it.1)) {
        None => Ok(()),
        Some((index, it)) => {
            let (path, set, id) = (path.display(), &set.name, &it.id);
            let problem =
                format!("{path} has answers to other problems of {set}: number {index} is {id}");
            Err(Refusal::input(problem).hint(Remedy::SameData))
        }
    }
}
