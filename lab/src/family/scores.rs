//! `scores.json`: the scores of a run with everything that they depend on, in its folder.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use hapo_cli::failure::bad_input;
use hapo_cli::scoring::{DrawKeys, EvalFormat, ScoringLimits, TEMPERATURE, evaluate_sets};
use hapo_data::Dataset;
use hapo_data::task::{Split, TaskSet, TeacherSteps, make_set};
use hapo_eval::ProblemResult;
use hapo_train::{Inputs, Recipe};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::family::real;

/// The scores of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Scores {
    pub(crate) arm: String,
    pub(crate) seed: u64,
    /// The facts they depend on; scores of other facts are not reused.
    pub(crate) made: Made,
    pub(crate) learning_rate: f64,
    pub(crate) build: String,
    /// The machine; empty where the record does not say it.
    pub(crate) cpu: String,
    /// Wall time of its steps and evaluations, over all calls.
    pub(crate) seconds: f64,
    /// The step whose checkpoint was best on the development split.
    pub(crate) step: u64,
    /// Success of the last checkpoint, and its share of completions without an end token.
    pub(crate) last: Last,
    /// The cost of all its stages. Nothing in records of the first round.
    #[serde(default)]
    pub(crate) cost: Option<Cost>,
    /// Its looks at the development split, the start included, over all stages. Nothing in records of the first round.
    #[serde(default)]
    pub(crate) looks: Vec<Look>,
    /// Metrics of its last stage, step by step.
    pub(crate) curves: Curves,
    pub(crate) benchmarks: Vec<BenchmarkScores>,
}

/// The cost of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cost {
    /// Gradient terms of a teacher's trajectory.
    pub(crate) exposures: f64,
    /// Distinct problems whose trace was shown, in the stage with the most. Nothing in records of runs that did not log it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) distinct: Option<f64>,
    /// Tokens sampled in training, discarded ones included.
    pub(crate) sampled: f64,
    /// Largest resident memory of the process at the end of a step, in bytes.
    pub(crate) memory: f64,
}

impl Cost {
    /// Adds the log of a stage of that method; a step without rollouts is one of imitation, of `prompts` traces.
    pub(crate) fn add(&mut self, log: &[Value], method: &str, prompts: usize) {
        for line in log {
            let value = |key: &str| line[key].as_f64().unwrap_or(0.0);
            self.memory = self.memory.max(value("memory/rss"));
            if let Some(distinct) = line["teacher/distinct"].as_f64() {
                self.distinct = Some(self.distinct.map_or(distinct, |most| most.max(distinct)));
            }
            if line.get("response_length/mean").is_none() {
                self.exposures += prompts as f64;
                continue;
            }
            let sum = |keys: [&str; 3]| keys.iter().map(|key| value(key)).sum::<f64>();
            let groups = sum(["groups/all_fail", "groups/all_solved", "groups/partially_solved"]);
            let rollouts = sum(["verify/correct", "verify/wrong", "verify/unparsable"]);
            self.exposures += match method {
                // Several traces may enter a group; a queue is imitated later.
                "ampo" => value("gate/beta_trajectories") * rollouts,
                "rlep" => {
                    let share = value("gate/beta_trajectories");
                    rollouts * share / (1.0 - share)
                }
                "relift" => value("demonstrations/prompts"),
                // A part of a trace, in one rollout of a group, or imitated once for all rollouts behind it.
                "prefix-rft" => value("growth/helped"),
                "uft" => value("growth/helped") * prompts as f64 / rollouts,
                // Their replayed members are the policy's own.
                "repo" | "exgrpo" => 0.0,
                _ => value("gate/beta") * groups,
            };
            self.sampled += value("response_length/mean") * rollouts;
            self.sampled += value("growth/discarded_tokens");
        }
    }
}

/// A look at the development split.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Look {
    /// Steps of all stages so far.
    pub(crate) step: u64,
    /// Success by level.
    pub(crate) levels: BTreeMap<String, f64>,
}

impl Look {
    /// Those of a stage that begins after `before` steps.
    pub(crate) fn of(log: &[Value], before: u64) -> Vec<Self> {
        let looks = log.iter().filter_map(|line| {
            let levels: BTreeMap<String, f64> = line
                .as_object()?
                .iter()
                .filter_map(|(key, value)| {
                    Some((
                        key.strip_prefix("eval/avg@k/")?.to_owned(),
                        four_digits(value.as_f64()?),
                    ))
                })
                .collect();
            let step = before + line["step"].as_u64()?;
            (!levels.is_empty()).then_some(Self { step, levels })
        });
        looks.collect()
    }
}

/// A run's metrics of [`CURVES`], step by step, to four digits.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Curves {
    /// In the order of [`CURVES`]; nothing in a step that logged none.
    steps: Vec<Vec<Option<f64>>>,
    /// Groups of the first step that fail entirely, that are solved entirely, and the others.
    pub(crate) first_groups: [f64; 3],
}

/// Metrics whose curves are recorded.
const CURVES: [&str; 8] = [
    "eval/avg@k",
    "reward/policy_only",
    "gate/beta",
    "policy/entropy",
    "entropy/all",
    "policy/kl_to_initial",
    "response_length/mean",
    "gate/threshold",
];

impl Curves {
    /// Those of a run's log.
    pub(crate) fn of(lines: &[Value]) -> Self {
        let value = |line: &Value, key: &str| line[key].as_f64().map(four_digits);
        let of_metric = |key: &str| lines.iter().map(|it| value(it, key)).collect();
        let count = |key: &str| lines.first().and_then(|it| it[key].as_f64()).unwrap_or(0.0);
        Self {
            steps: CURVES.map(of_metric).to_vec(),
            first_groups: ["groups/all_fail", "groups/all_solved", "groups/partially_solved"]
                .map(count),
        }
    }

    /// The values of a metric of [`CURVES`]; none of one that was not recorded yet.
    pub(crate) fn metric(&self, name: &str) -> &[Option<f64>] {
        let steps = CURVES.iter().zip(&self.steps).find(|(metric, _)| **metric == name);
        steps.map_or(&[], |(_, steps)| steps)
    }
}

fn four_digits(value: f64) -> f64 {
    format!("{value:.3e}").parse().expect("a number that was written")
}

/// The facts that a run's scores depend on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Made {
    /// Of each stage, with its rate.
    pub(crate) recipes: Vec<String>,
    pub(crate) overrides: Vec<String>,
    /// Problems of each benchmark, completions of each problem, their temperature, and the split.
    pub(crate) problems: usize,
    completions: usize,
    temperature: f64,
    split: Split,
    levels: Vec<String>,
    /// Hashes of base model, tokenizer, prompts, answers and traces. Nothing where the base is not here to be read: of a
    /// record of a ladder whose bases were made elsewhere.
    inputs: Option<Inputs>,
}

/// The end of a run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Last {
    pub(crate) success: f64,
    pub(crate) truncated: f64,
}

/// One benchmark of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BenchmarkScores {
    pub(crate) name: String,
    /// Share of correct completions of each problem.
    pub(crate) problems: Vec<f64>,
    /// Mean length of a completion in tokens.
    pub(crate) tokens: f64,
    /// Share of completions without an end token.
    pub(crate) truncated: f64,
    /// Share of completions in the teacher's style.
    pub(crate) teacher_style: f64,
    /// Of problems of a file, the first completion of each of the first ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) examples: Vec<String>,
}

impl Made {
    /// Steps of imitation before the last stage, by its recipes.
    pub(crate) fn imitation_steps(&self) -> u64 {
        let before = self.recipes.split_last().map_or(&[][..], |(_, before)| before);
        let steps = |recipe: &String| {
            hapo_run::recipe_entries(recipe).ok()?.get("steps")?.parse::<u64>().ok()
        };
        before.iter().filter_map(steps).sum()
    }

    /// The facts that scores of a run with these recipes and inputs depend on.
    pub(crate) fn of(
        recipes: Vec<String>,
        inputs: Option<Inputs>,
        overrides: &[String],
        target: &Target<'_>,
    ) -> Self {
        Self {
            recipes,
            overrides: overrides.to_vec(),
            problems: target.problems.count(),
            completions: target.problems.format().completions,
            temperature: f64::from(TEMPERATURE),
            split: target.split,
            levels: target.problems.names(),
            inputs,
        }
    }

    /// The differences from `now`, in words; empty if the scores may be reused.
    fn differences(&self, now: &Self) -> Vec<String> {
        let as_object = |it: &Self| match serde_json::to_value(it).expect("plain data") {
            Value::Object(it) => it,
            _ => unreachable!("a structure is an object"),
        };
        let (before, after) = (as_object(self), as_object(now));
        let mut all = Vec::new();
        for (key, value) in &before {
            if after.get(key) == Some(value) {
                continue;
            }
            match key.as_str() {
                "recipes" => all.extend(different_keys(&self.recipes, &now.recipes)),
                "inputs" => {
                    if let (Some(before), Some(now)) = (&self.inputs, &now.inputs) {
                        all.extend(before.differences(now));
                    }
                }
                _ => all.push(format!("{key} ({value}, now {})", after[key])),
            }
        }
        all
    }
}

/// The keys in which two lists of recipes differ. A key that a record does not have was made with its default.
fn different_keys(before: &[String], now: &[String]) -> Vec<String> {
    if before.len() != now.len() {
        return vec![format!("stages ({}, now {})", before.len(), now.len())];
    }
    let with_defaults = |text: &String| {
        Recipe::parse_resolved(text, "a record").map_or_else(|_| text.clone(), |it| it.resolved())
    };
    let of_stage =
        |(before, now): (&String, &String)| hapo_train::changed_keys(&with_defaults(before), now);
    let show = |it: hapo_run::RecipeDifference| {
        let [before, now] = it.values();
        format!("{} ({before}, now {now})", it.key)
    };
    before.iter().zip(now).flat_map(of_stage).map(show).collect()
}

/// Methods that show a trace as it is, at most one a group.
const ONE_TRACE: [&str; 6] = ["grpo", "maxrl", "luffy", "trapo", "superrl", "srft"];

impl Scores {
    /// The scores in a run's folder. `None` where there are none, or no readable ones: they are made again.
    pub(crate) fn read(folder: &Path, made: &Made) -> Result<Option<Self>> {
        let Ok(text) = std::fs::read_to_string(folder.join("scores.json")) else {
            return Ok(None);
        };
        let Ok(scores) = serde_json::from_str::<Self>(&text) else {
            return Ok(None);
        };
        scores.of(made, &folder.join("scores.json")).map(Some)
    }

    /// These scores, unless they were made from other facts than `made`.
    pub(crate) fn of(self, made: &Made, path: &Path) -> Result<Self> {
        let differences = self.made.differences(made);
        if differences.is_empty() {
            return Ok(self);
        }
        Err(bad_input(
            format!(
                "{} holds the scores of a run that differs in {}",
                path.display(),
                differences.join(", ")
            ),
            "give the settings that it was made with, or another folder or record; without the file the run is scored again",
        ))
    }

    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let json = serde_json::to_vec(self).expect("scores are plain data");
        Ok(hapo_run::write_atomically(&folder.join("scores.json"), &json)?)
    }

    /// The problems of each benchmark.
    pub(crate) fn sets(&self) -> Vec<Vec<f64>> {
        self.benchmarks.iter().map(|it| it.problems.clone()).collect()
    }

    pub(crate) fn mean(&self) -> f64 {
        success(&self.benchmarks)
    }

    /// Success at a level; `None` where the run is not scored on it.
    pub(crate) fn at_level(&self, level: &str) -> Option<f64> {
        let of_level = self.benchmarks.iter().find(|benchmark| benchmark.name == level)?;
        Some(mean(&of_level.problems))
    }

    /// Its cost. For the first round's records from the recipes and the curves: imitation as long as its recipe,
    /// no memory.
    pub(crate) fn took(&self) -> Cost {
        if let Some(cost) = self.cost {
            return cost;
        }
        let mut cost = Cost::default();
        for (n, recipe) in self.made.recipes.iter().enumerate() {
            let entries = hapo_run::recipe_entries(recipe).unwrap_or_default();
            let number = |key: &str| -> f64 {
                entries.get(key).and_then(|text| text.parse().ok()).unwrap_or(0.0)
            };
            let prompts = number("sampling.prompts_per_step");
            if entries.get("method").is_some_and(|method| method == "\"sft\"") {
                cost.exposures += prompts * number("steps");
            } else if n + 1 == self.made.recipes.len() {
                let sum = |metric: &str| self.curves.metric(metric).iter().flatten().sum::<f64>();
                cost.exposures += prompts * sum("gate/beta");
                cost.sampled +=
                    prompts * number("sampling.group_size") * sum("response_length/mean");
            }
        }
        cost
    }

    /// The least and the most distinct problems whose trace was shown. Where no count was logged, by the exposures of each
    /// epoch, which visits a prompt once; imitation repeats none before it has shown all. `None` where that does not tell.
    pub(crate) fn traces(&self) -> Option<[f64; 2]> {
        let cost = self.took();
        if let Some(distinct) = cost.distinct {
            return Some([distinct; 2]);
        }
        let recipe = hapo_run::recipe_entries(self.made.recipes.last()?).ok()?;
        let number = |key: &str| recipe.get(key)?.parse::<f64>().ok();
        let (prompts, a_step) = (number("data.prompts")?, number("sampling.prompts_per_step")?);
        let all = (prompts * number("data.teacher_coverage")?).round();
        let shares = self.curves.metric("gate/beta").iter().map(|share| share.unwrap_or(0.0));
        let shown: Vec<f64> = shares.map(|share| (share * a_step).round()).collect();
        let of_groups: f64 = shown.iter().sum();
        let imitated = (cost.exposures - of_groups).max(0.0);
        let is = |key: &str, names: &[&str]| {
            recipe.get(key).is_none_or(|text| names.contains(&text.trim_matches('"')))
        };
        if is("method", &["sft"]) || (of_groups == 0.0 && is("method", &["grpo"])) {
            return Some([imitated.min(all); 2]);
        }
        let epoch = (prompts / a_step).max(1.0) as usize;
        let least = shown.chunks(epoch).map(|epoch| epoch.iter().sum()).fold(0.0, f64::max);
        let tells = is("method", &ONE_TRACE) && is("hapo.injection", &["trace"]);
        let tells = tells && is("trapo.prefixes", &["off"]) && imitated < 0.5;
        (tells && least <= all).then(|| [least, of_groups.min(all)])
    }
}

/// Mean over problems, then over benchmarks.
pub(crate) fn success(benchmarks: &[BenchmarkScores]) -> f64 {
    let means = benchmarks.iter().map(|it| mean(&it.problems));
    means.sum::<f64>() / benchmarks.len().max(1) as f64
}

/// Share of completions without an end token.
pub(crate) fn truncated(benchmarks: &[BenchmarkScores]) -> f64 {
    let shares: Vec<f64> = benchmarks.iter().map(|it| it.truncated).collect();
    mean(&shares)
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Whose problems a model is scored on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Problems<'a> {
    /// `count` problems of each level of the built-in task.
    Levels { levels: &'a [(&'static str, u32)], count: usize },
    /// A part of a file, and a checksum of all that the file's problems are scored by.
    Of(&'a Dataset, &'a str),
}

impl Problems<'_> {
    /// Problems of each benchmark.
    fn count(self) -> usize {
        match self {
            Self::Levels { count, .. } => count,
            Self::Of(dataset, _) => dataset.examples.len(),
        }
    }

    /// Their names, for a record.
    fn names(self) -> Vec<String> {
        match self {
            Self::Levels { levels, .. } => {
                levels.iter().map(|it| format!("{}:{}", it.0, it.1)).collect()
            }
            Self::Of(_, checksum) => vec![checksum.to_owned()],
        }
    }

    /// Their prompt format.
    fn format(self) -> EvalFormat {
        match self {
            Self::Levels { .. } => EvalFormat::BUILT_IN,
            Self::Of(..) => real::FORMAT,
        }
    }

    /// The benchmarks.
    fn sets(self, split: Split) -> Result<Vec<(String, Dataset)>> {
        match self {
            Self::Levels { levels, count } => problem_sets(levels, count, split),
            Self::Of(dataset, _) => Ok(vec![("held-out".to_owned(), dataset.clone())]),
        }
    }
}

/// The problems that score a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) problems: Problems<'a>,
    pub(crate) split: Split,
    pub(crate) seed: u64,
    pub(crate) max_new_tokens: usize,
    pub(crate) teacher: TeacherSteps,
}

/// Problems of a file whose first completion is kept.
const EXAMPLES: usize = 3;

/// The problems of each level, by the names of their benchmarks.
pub(crate) fn problem_sets(
    levels: &[(&str, u32)],
    problems: usize,
    split: Split,
) -> Result<Vec<(String, Dataset)>> {
    let set = |(family, level): &(&str, u32)| {
        let dataset = make_set(&TaskSet {
            seed: 0,
            levels: vec![((*family).to_owned(), *level)],
            split,
            count: problems,
            teacher_coverage: 0.0,
            teacher_steps: TeacherSteps::Exact,
        })?;
        Ok((format!("{family}-{level}"), dataset))
    };
    levels.iter().map(set).collect()
}

/// A model on every level of its target. `DrawKey`s differ from benchmark to benchmark.
pub(crate) fn score(
    model: &str,
    target: &Target<'_>,
    threads: usize,
) -> Result<Vec<BenchmarkScores>> {
    let sets = target.problems.sets(target.split)?;
    let (names, sets): (Vec<String>, Vec<Dataset>) = sets.into_iter().unzip();
    let draws = DrawKeys::OfNames(&names);
    let results = evaluate_sets(
        model,
        target.problems.format(),
        &sets,
        draws,
        ScoringLimits { max_new_tokens: target.max_new_tokens, seed: target.seed, threads },
    )?;
    let is_text = matches!(target.problems, Problems::Of(..));
    let scores = names.into_iter().zip(results).map(|(name, results)| {
        let all = || results.iter().flat_map(|it| &it.completions);
        let n = all().count().max(1) as f64;
        let share = |count: usize| count as f64 / n;
        BenchmarkScores {
            name,
            problems: results.iter().map(ProblemResult::success).collect(),
            tokens: share(all().filter_map(|it| it.tokens).sum()),
            truncated: share(all().filter(|it| !it.ended).count()),
            teacher_style: share(all().filter(|it| target.teacher.wrote(&it.text)).count()),
            examples: results
                .iter()
                .take(if is_text { EXAMPLES } else { 0 })
                .filter_map(|it| Some(it.completions.first()?.text.clone()))
                .collect(),
        }
    });
    Ok(scores.collect())
}
