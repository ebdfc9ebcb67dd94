//! The demonstration: GRPO, SFT and TRAPO-HAPO from the same base model, compared on held-out problems.

use std::path::PathBuf;

use anyhow::Result;
use hapo_data::Dataset;
use hapo_data::task::MINI6;
use hapo_eval::{Estimate, ProblemResult, average, benchmark, paired_difference};
use hapo_train::{BUILTIN_BASE, Observer, Overrides, Recipe, ResumePolicy, RunPlan, Sources};
use serde::Serialize;

use crate::scoring::{
    COMPLETIONS, DrawKeys, EvalFormat, ScoringLimits, TEMPERATURE, evaluate_sets, model_name,
};

/// A run of the demonstration.
struct Arm {
    name: &'static str,
    label: &'static str,
    recipe: &'static str,
}

const ARMS: &[Arm] = &[
    Arm { name: "grpo", label: "GRPO", recipe: include_str!("../../recipes/quickstart/grpo.toml") },
    Arm { name: "sft", label: "SFT", recipe: include_str!("../../recipes/quickstart/sft.toml") },
    Arm {
        name: "trapo-hapo",
        label: "TRAPO-HAPO",
        recipe: include_str!("../../recipes/quickstart/trapo-hapo.toml"),
    },
];

/// Minutes for which the recipes' own numbers of steps are made.
const NOMINAL_MINUTES: u64 = 5;
/// Held-out problems of each level.
const PROBLEMS: usize = 200;

/// The runs of a demonstration and their folder.
pub(crate) struct Demonstration {
    arms: Vec<(&'static Arm, Recipe)>,
    levels: Vec<(String, u32)>,
    /// The folder of the runs.
    pub(crate) folder: PathBuf,
    seed: u64,
    threads: usize,
}

/// A demonstration that was stopped in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stopped {
    /// The run.
    pub(crate) label: &'static str,
    /// Its last step.
    pub(crate) step: u64,
}

impl Demonstration {
    /// A demonstration of roughly `minutes` on two cores, with its runs in `folder`; `sets` are overrides of its
    /// recipes.
    pub(crate) fn new(
        folder: PathBuf,
        minutes: u64,
        seed: u64,
        threads: usize,
        sets: &[String],
    ) -> Result<Self> {
        let arms = ARMS
            .iter()
            .map(|arm| Ok((arm, recipe_of(arm, minutes, seed, sets)?)))
            .collect::<Result<Vec<_>>>()?;
        let levels = hapo_train::levels(&arms[0].1.data.levels)?;
        Ok(Self { arms, levels, folder, seed, threads })
    }

    /// Its runs, in words.
    pub(crate) fn plan(&self) -> String {
        let names: Vec<String> =
            self.levels.iter().map(|it| format!("{} with {} digits", it.0, it.1)).collect();
        let mut text = format!(
            "This trains a small model that is shipped with hapo on exact arithmetic ({}), on {} threads.\n\
             Most groups of 8 answers fail entirely at the start, so GRPO alone has little to learn from.\n",
            names.join(", "),
            self.threads
        );
        for (arm, recipe) in &self.arms {
            let what = match (turn_off_epoch(recipe), arm.name) {
                (Some(e_off), _) => {
                    format!("the teacher enters groups that fail entirely, until epoch {e_off}")
                }
                (None, "sft") => "imitates the traces that HAPO may inject".to_owned(),
                _ => "on-policy only".to_owned(),
            };
            text += &format!(
                "  {:<11} {:>4} steps of {} prompts: {what}\n",
                arm.label, recipe.steps, recipe.sampling.prompts_per_step
            );
        }
        text + &format!(
            "Every 4th prompt has a teacher trace. Runs go to {}.",
            self.folder.display()
        )
    }

    /// Trains and scores; a demonstration that was stopped resumes. The table is in the folder too. `observe` gives the
    /// observer of a run by its label and number of steps.
    pub(crate) fn run(
        &self,
        observe: &dyn Fn(&str, u64) -> Box<dyn Observer>,
    ) -> Result<std::result::Result<DemonstrationTable, Stopped>> {
        let sets = self.sets()?;
        let mut rows = vec![self.evaluate("base", BUILTIN_BASE, &sets)?];
        for (arm, recipe) in &self.arms {
            let run_dir = self.folder.join(arm.name);
            let mut observer = observe(arm.label, recipe.steps);
            let plan = RunPlan::settle_in(&run_dir, recipe, Sources::default())?;
            let outcome = hapo_train::train(
                &plan,
                &run_dir,
                ResumePolicy::Resume,
                self.threads,
                &mut *observer,
            )?;
            drop(observer);
            if !outcome.finished {
                return Ok(Err(Stopped { label: arm.label, step: outcome.steps }));
            }
            let checkpoint = outcome.checkpoint.expect("a resumable run is saved");
            rows.push(self.evaluate(arm.label, model_name(&checkpoint)?, &sets)?);
        }
        let table = self.table(&rows);
        let json = serde_json::to_vec_pretty(&table).expect("a table is plain data");
        hapo_run::write_atomically(&self.folder.join("table.json"), &json)?;
        Ok(Ok(table))
    }

    fn sets(&self) -> Result<Vec<Dataset>> {
        let set = |(family, level): &(String, u32)| {
            let set = MINI6.iter().find(|it| it.family == family && it.level == *level);
            let set = set
                .and_then(|it| benchmark(it.name))
                .expect("the built-in recipes train on levels of mini6");
            Ok(set.problems(PROBLEMS)?)
        };
        self.levels.iter().map(set).collect()
    }

    fn evaluate(&self, label: &str, path: &str, sets: &[Dataset]) -> Result<Evaluated> {
        Ok(Evaluated {
            label: label.to_owned(),
            model: path.to_owned(),
            results: evaluate_sets(
                path,
                EvalFormat::BUILT_IN,
                sets,
                DrawKeys::Shared,
                ScoringLimits {
                    max_new_tokens: hapo_data::task::RESPONSE_LIMIT,
                    seed: self.seed,
                    threads: self.threads,
                },
            )?,
        })
    }

    fn table(&self, rows: &[Evaluated]) -> DemonstrationTable {
        let grpo = rows.iter().find(|it| it.label == "GRPO");
        let grpo = grpo.map(Evaluated::successes);
        DemonstrationTable {
            problems_per_level: PROBLEMS,
            completions: COMPLETIONS,
            temperature: TEMPERATURE,
            levels: self.levels.iter().map(|it| format!("{}:{}", it.0, it.1)).collect(),
            rows: rows.iter().map(|it| it.row(grpo.as_deref(), self.seed)).collect(),
            runs: self.folder.display().to_string(),
        }
    }
}

/// The arm's recipe at the length and seed that were asked for. The gate closes at the same share of
/// the run, whatever its length.
fn recipe_of(arm: &Arm, minutes: u64, seed: u64, sets: &[String]) -> Result<Recipe> {
    let origin = format!("built-in recipe {}", arm.name);
    let nominal = Recipe::parse(arm.recipe, &origin, &Overrides::default())?;
    let scale = |it: u64| (it * minutes / NOMINAL_MINUTES).max(1);
    let steps = format!("steps={}", scale(nominal.steps));
    let mut sets = [sets, &[format!("seed={seed}"), steps]].concat();
    if let Some(e_off) = turn_off_epoch(&nominal) {
        let steps_per_epoch = nominal.data.prompts / nominal.sampling.prompts_per_step;
        let steps_per_epoch = steps_per_epoch as f64;
        let closes_at = scale((e_off * steps_per_epoch) as u64) as f64 / steps_per_epoch;
        sets.push(format!("hapo.turn_off_epoch={closes_at:?}"));
    }
    Ok(nominal.with(&Overrides::set(sets))?)
}

fn turn_off_epoch(recipe: &Recipe) -> Option<f64> {
    let hapo = recipe.hapo.as_ref()?;
    Some(hapo.turn_off_epoch?.to_f64())
}

/// One model's results, by level.
struct Evaluated {
    label: String,
    model: String,
    results: Vec<Vec<ProblemResult>>,
}

impl Evaluated {
    fn successes(&self) -> Vec<f64> {
        let all = self.results.iter().flatten();
        all.map(ProblemResult::success).collect()
    }

    fn row(&self, grpo: Option<&[f64]>, seed: u64) -> DemonstrationRow {
        let values = self.successes();
        let completions = self.results.iter().flatten().flat_map(|it| &it.completions);
        let lengths: Vec<usize> = completions.filter_map(|it| it.tokens).collect();
        let mean = |it: &Vec<ProblemResult>| average(it, seed).map_or(0.0, |it| it.mean);
        DemonstrationRow {
            model: self.label.clone(),
            checkpoint: self.model.clone(),
            by_level: self.results.iter().map(mean).collect(),
            average: hapo_eval::estimate(&values, seed).expect("there are held-out problems"),
            over_grpo: grpo
                .filter(|_| self.label != "GRPO")
                .and_then(|grpo| paired_difference(&values, grpo, seed)),
            response_length: lengths.iter().sum::<usize>() as f64 / lengths.len().max(1) as f64,
        }
    }
}

/// The table of a demonstration.
#[derive(Debug, Serialize)]
pub(crate) struct DemonstrationTable {
    problems_per_level: usize,
    completions: usize,
    temperature: f32,
    levels: Vec<String>,
    rows: Vec<DemonstrationRow>,
    /// As text: a path that is no UTF-8 has no JSON.
    runs: String,
}

#[derive(Debug, Serialize)]
struct DemonstrationRow {
    model: String,
    checkpoint: String,
    by_level: Vec<f64>,
    average: Estimate,
    over_grpo: Option<Estimate>,
    response_length: f64,
}

impl DemonstrationTable {
    /// The table for a terminal.
    pub(crate) fn render(&self) -> String {
        let mut text = format!(
            "\nSuccess on {} held-out problems, {} completions each at temperature {} (95 % interval over problems)\n\n{:<12}",
            self.problems_per_level * self.levels.len(),
            self.completions,
            self.temperature,
            "model"
        );
        for it in &self.levels {
            text += &format!(" {it:>11}");
        }
        text += &format!(" {:>22} {:>24} {:>7}\n", "average", "over GRPO", "tokens");
        for row in &self.rows {
            text += &format!("{:<12}", row.model);
            for it in &row.by_level {
                text += &format!(" {it:>11.3}");
            }
            let Estimate { mean, low, high } = row.average;
            let average = format!("{mean:.3} [{low:.3}, {high:.3}]");
            let over = row.over_grpo.map_or_else(String::new, |it| {
                format!("{:+.3} [{:+.3}, {:+.3}]", it.mean, it.low, it.high)
            });
            text += &format!(" {average:>22} {over:>24} {:>7.1}\n", row.response_length);
        }
        text
    }
}
