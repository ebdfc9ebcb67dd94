//! The ladder: bases whose second stage of pretraining holds more and more documents in the teacher's style at the hard
//! levels. All else equals the shipped base, so no rung is chosen by its result.

use std::path::{Path, PathBuf};

use anyhow::Result;
use hapo_cli::scoring::model_name;
use hapo_run::{Metrics, RunFolder};
use hapo_train::{Observer, Overrides, Recipe, Sources};

use crate::family::training::train;

/// Share of the second stage's documents at the hard levels that are in the teacher's style, in percent.
pub(crate) const RUNGS: [&str; 3] = ["0", "0.1", "5"];
/// Steps of the first stage, whose rate continues to fall until its recipe's end.
const FIRST_STEPS: u64 = 1100;
/// Steps of the second stage.
const SECOND_STEPS: u64 = 160;

const FIRST: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../recipes/base.toml"));
const SECOND: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../recipes/base-2.toml"));

/// Seconds of the first stage and of `bases` second ones, on one thread of an AMD EPYC with AVX-512.
pub(crate) fn seconds(bases: usize) -> f64 {
    const STEP: f64 = 0.9;
    STEP * (FIRST_STEPS + SECOND_STEPS * bases as u64) as f64
}

/// The checkpoint of a rung's base.
pub(crate) fn folder_of(out: &Path, rung: usize) -> PathBuf {
    RunFolder(&run_of(out, rung)).checkpoint_of(SECOND_STEPS)
}

/// The run that makes it.
fn run_of(out: &Path, rung: usize) -> PathBuf {
    out.join("bases").join(format!("rung-{}", RUNGS[rung]))
}

/// Makes a rung's base, or resumes it, unless another process makes it.
pub(crate) fn make<'a>(
    out: &Path,
    rung: usize,
    threads: usize,
    observe: &dyn Fn(&str, u64) -> Box<dyn Observer + 'a>,
) -> Result<()> {
    let first = out.join("bases").join("first");
    let started = RunFolder(&first).checkpoint_of(FIRST_STEPS);
    if !started.join("config.json").exists() {
        let recipe = Recipe::parse(FIRST, "family recipe base", &Overrides::default())?;
        let mut observer =
            Until { inner: observe("base, first stage", FIRST_STEPS), last: FIRST_STEPS, at: 0 };
        let outcome = train(&first, &recipe, Sources::default(), threads, &mut observer)?;
        if outcome.is_none_or(|it| it.steps < FIRST_STEPS) {
            return Ok(());
        }
    }
    let recipe = second_stage(rung, &started)?;
    let mut observer = observe(&format!("base, {} %", RUNGS[rung]), SECOND_STEPS);
    train(&run_of(out, rung), &recipe, Sources::default(), threads, &mut *observer)?;
    Ok(())
}

/// The shipped base's second stage up to the step that is shipped, with the rung's share.
fn second_stage(rung: usize, start: &Path) -> Result<Recipe> {
    let share = RUNGS[rung].parse::<f64>().expect("a rung is a number") / 100.0;
    let text = SECOND.replace("0.0]\n", &format!("{share:?}]\n"));
    let sets = Overrides::set([
        format!("model.path={}", model_name(start)?),
        format!("steps={SECOND_STEPS}"),
        // As many steps as a tenth of the recipe's own number.
        "optim.warmup=0.15".to_owned(),
        "checkpoint.keep=1".to_owned(),
        "checkpoint.best=".to_owned(),
    ]);
    Ok(Recipe::parse(&text, "family recipe base-2", &sets)?)
}

/// Ends a run after a step, as its user would.
struct Until<'a> {
    inner: Box<dyn Observer + 'a>,
    last: u64,
    at: u64,
}

impl Observer for Until<'_> {
    fn step(&mut self, step: u64, metrics: &Metrics) {
        self.at = step;
        self.inner.step(step, metrics);
    }

    fn build(&self) -> String {
        self.inner.build()
    }

    fn stop_requested(&self) -> bool {
        self.at >= self.last || self.inner.stop_requested()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rungs_differ_by_the_teachers_share_at_the_hard_levels_alone() {
        for (rung, share) in [0.0, 0.001, 0.05].into_iter().enumerate() {
            let recipe = second_stage(rung, Path::new("base")).unwrap();
            let mixture = recipe.data.mixture.as_ref().unwrap();
            let last = |it: &hapo_data::task::FamilyMixture| *it.teacher_shares.last().unwrap();
            assert_eq!(mixture.families.iter().map(last).collect::<Vec<_>>(), [share; 3]);
            let lengths: Vec<usize> =
                mixture.families.iter().map(|it| it.level_weights.len()).collect();
            assert_eq!(lengths, [6, 5, 4], "the hard levels are the last");
            // 24 steps of warm-up, as in 240 steps with a tenth.
            assert_eq!(recipe.steps as f64 * recipe.optim.warmup, 24.0);
        }
        assert_eq!(SECOND.matches("0.0]\n").count(), 3);
    }
}
