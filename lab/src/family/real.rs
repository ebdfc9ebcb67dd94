//! A pretrained model on problems of the user's file, whose solutions are the teacher's: a real cold start.
//!
//! The last problems of the file are held out, some before them are the development split, and the rest are trained on, in
//! the order of the file, so that every arm and every call has the same split. Numbers of a step are set for a small model
//! on one machine.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use hapo_cli::failure::bad_input;
use hapo_cli::scoring::{EvalFormat, grader, model_name};
use hapo_core::Truncated;
use hapo_data::task::{Split, TeacherSteps};
use hapo_data::{CHAT, Dataset, TemplateChoice, write_row};
use hapo_eval::Judge;
use sha2::{Digest, Sha256};

use crate::family::arm::{Arm, Base, RowName, Search, Section, recipe};

/// The text after a problem in the user's turn.
const SUFFIX: &str = "\nPlease reason step by step, and put your final answer within \\boxed{}.";
/// The model's own template, in training and in scoring.
const TEMPLATE: TemplateChoice<'static> =
    TemplateChoice { name: CHAT, system: None, suffix: Some(SUFFIX) };
/// How it is scored: a completion that was cut off is graded, as in training, since a model that was not trained for the
/// limit seldom ends within it.
pub(crate) const FORMAT: EvalFormat =
    EvalFormat { template: TEMPLATE, completions: COMPLETIONS, truncated: Truncated::Grade };
/// Completions of each held-out problem.
pub(crate) const COMPLETIONS: usize = 4;
/// Problems of the development split.
const DEVELOPMENT: usize = 60;
/// Prompts of a step.
const PROMPTS: usize = 8;
/// The rate of every arm where none is searched; imitation before a method has twice that.
pub(crate) const RATE: f64 = 5e-6;
const RATES: &[f64] = &[1e-6, 5e-6, 2e-5];
/// Seconds of a step: of rollouts, and of imitation. Of a model of 135M on one thread.
pub(crate) const STEP_SECONDS: (f64, f64) = (72.0, 18.0);
/// Seconds of a completion that is scored, of the same.
pub(crate) const SCORE_SECONDS: f64 = 0.35;

/// The table's name.
pub(crate) const TABLE: &str = "pretrained";

/// Name, label, recipe.
const METHODS: [(&str, &str, &str); 5] = [
    ("pretrained-sft", "SFT", recipe!("sft")),
    ("pretrained-grpo", "GRPO", recipe!("grpo")),
    ("pretrained-sft-grpo", "SFT, then GRPO", recipe!("sft-grpo")),
    ("pretrained-trapo", "TRAPO", recipe!("trapo")),
    ("pretrained-hapo", "HAPO", recipe!("hapo-method")),
];
const BASE: (&str, &str) = ("pretrained-base", "as it is");

/// A pretrained model and the problems of its study.
#[derive(Clone, Debug)]
pub(crate) struct Real {
    model: String,
    train: PathBuf,
    development: Dataset,
    held_out: Dataset,
    /// Of the problems and answers of both.
    checksum: String,
    steps: u64,
    /// Steps of an epoch.
    epoch: u64,
}

impl Real {
    /// The study of a model, in runs of `steps` steps, on the problems of a file. The last `held_out` problems are for
    /// the tables. The training problems go into the study's folder, into a file named by its contents.
    pub(crate) fn prepare(
        model: String,
        steps: u64,
        mut dataset: Dataset,
        held_out: usize,
        out: &Path,
    ) -> Result<Self> {
        let got = dataset.examples.len();
        let expected = held_out.saturating_add(DEVELOPMENT + PROMPTS);
        if got < expected {
            return Err(bad_input(
                format!("expected at least {expected} problems, got {got}"),
                "hold out fewer, or give a larger file",
            ));
        }
        let held_out = Dataset { examples: dataset.examples.split_off(got - held_out) };
        let first = dataset.examples.len() - DEVELOPMENT;
        let development = Dataset { examples: dataset.examples.split_off(first) };
        let grader = grader();
        Judge::new(&held_out, &grader, None, FORMAT.truncated)?;
        Judge::new(&development, &grader, None, FORMAT.truncated)?;
        require_apart(&[
            ("held out", &held_out),
            ("of the development split", &development),
            ("trained on", &dataset),
        ])?;
        let rows = rows_of(&dataset);
        let train = out.join(format!("train-{}.jsonl", checksum(&[&rows])));
        hapo_run::create_folder(out)?;
        if !train.exists() {
            hapo_run::write_atomically(&train, &rows)?;
        }
        let checksum = checksum(&[&rows_of(&development), &rows_of(&held_out)]);
        // Prompts that do not fit are an error, so all of them are visited.
        let epoch = (dataset.examples.len() / PROMPTS) as u64;
        Ok(Self { model, train, development, held_out, checksum, steps, epoch })
    }

    /// Runs of 60 steps in epochs of 100, from the shipped base.
    #[cfg(test)]
    pub(crate) fn of_tests() -> Self {
        let none = || Dataset { examples: Vec::new() };
        let (train, model) = (PathBuf::from("train.jsonl"), hapo_train::BUILTIN_BASE.to_owned());
        let one = || Dataset { examples: vec![hapo_data::Example::default()] };
        let checksum = String::new();
        Self { model, train, development: one(), held_out: none(), checksum, steps: 60, epoch: 100 }
    }

    /// The model that all arms start from.
    pub(crate) fn model(&self) -> &str {
        &self.model
    }

    /// The problems of a split.
    pub(crate) fn problems(&self, split: Split) -> &Dataset {
        match split {
            Split::Development => &self.development,
            _ => &self.held_out,
        }
    }

    /// The checksum of its problems and their answers.
    pub(crate) fn checksum(&self) -> &str {
        &self.checksum
    }

    /// Splits the steps among a recipe's stages: the same shares, the rest in the last.
    pub(crate) fn steps(&self, of_recipe: &[u64]) -> Vec<u64> {
        let all: u64 = of_recipe.iter().sum();
        let mut steps: Vec<u64> =
            of_recipe.iter().map(|it| ((it * self.steps + all / 2) / all).max(1)).collect();
        if let Some((last, others)) = steps.split_last_mut() {
            *last = (self.steps - others.iter().sum::<u64>()).max(1);
        }
        steps
    }

    /// The study's settings of an arm: its data, and for an annealed gate a close after half of the steps.
    pub(crate) fn sets(&self, arm: &Arm) -> Result<Vec<String>> {
        let mut sets = vec![format!("data.train={}", model_name(&self.train)?)];
        if arm.recipe.is_some_and(|it| it.contains("turn_off_epoch")) {
            let turn_off = self.steps as f64 / 2.0 / self.epoch as f64;
            sets.push(format!("hapo.turn_off_epoch={turn_off:.6}"));
        }
        Ok(sets)
    }
}

/// Refuses a problem that is in two parts: it would be measured after training on it.
fn require_apart(parts: &[(&'static str, &Dataset)]) -> Result<()> {
    let mut known: HashMap<String, (&'static str, &str)> = HashMap::new();
    for (part, dataset) in parts {
        for it in &dataset.examples {
            let text = it.problem.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ");
            match known.get(&text) {
                Some((other, id)) if other != part => {
                    let problem = format!(
                        "problem {id} is {other}, and {}, which says the same, is {part}",
                        it.id
                    );
                    return Err(bad_input(problem, "leave one of them out of the file"));
                }
                _ => known.insert(text, (part, &it.id)),
            };
        }
    }
    Ok(())
}

/// Problems, answers and solutions, a row each.
fn rows_of(dataset: &Dataset) -> Vec<u8> {
    let mut rows = Vec::new();
    for it in &dataset.examples {
        write_row(&mut rows, it).expect("memory takes all that is written");
    }
    rows
}

/// The first 16 hexadecimal digits of a SHA-256.
fn checksum(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for it in parts {
        hash.update((it.len() as u64).to_le_bytes());
        hash.update(it);
    }
    let head = hash.finalize();
    let head = head.first_chunk().expect("a SHA-256 digest has 32 bytes");
    format!("{:016x}", u64::from_be_bytes(*head))
}

pub(crate) fn arms() -> impl Iterator<Item = Arm> {
    let sets = [
        "data.template=chat",
        &format!("data.template_suffix={SUFFIX:?}"),
        "data.max_prompt_tokens=256",
        "data.overlong=error",
        "data.truncated=grade",
        "sampling.group_size=8",
        &format!("sampling.prompts_per_step={PROMPTS}"),
        "sampling.max_new_tokens=128",
        &format!("optim.mini_batch_prompts={PROMPTS}"),
    ]
    .map(str::to_owned);
    let unset = ["data.prompts", "data.teacher_coverage", "data.levels"].map(str::to_owned);
    let of_method = move |name: &str, text: &'static str| Arm {
        name: name.to_owned(),
        recipe: Some(text),
        sets: sets.to_vec(),
        unset: unset.to_vec(),
        search: name.to_owned(),
        tuned: None,
        base: Base::Pretrained,
        levels: &[],
        teacher: TeacherSteps::Exact,
    };
    // A base's recipe supplies the settings of its evaluation.
    let base = of_method(BASE.0, "");
    let base = Arm { recipe: None, search: String::new(), ..base };
    std::iter::once(base)
        .chain(METHODS.into_iter().map(move |(name, _, text)| of_method(name, text)))
}

pub(crate) fn searches() -> impl Iterator<Item = Search> {
    METHODS.into_iter().map(|(name, ..)| Search {
        name: name.to_owned(),
        arm: name.to_owned(),
        values: RATES,
    })
}

pub(crate) fn sections() -> impl Iterator<Item = Section> {
    let row = |arm: &str, label: &str| RowName { arm: arm.to_owned(), label: label.to_owned() };
    let over = |baseline: &str| ("pretrained-hapo".to_owned(), format!("pretrained-{baseline}"));
    let methods = METHODS.into_iter().map(|(name, label, _)| row(name, label));
    std::iter::once(Section {
        name: TABLE.to_owned(),
        title: "A pretrained model".to_owned(),
        rows: std::iter::once(row(BASE.0, BASE.1)).chain(methods).collect(),
        pairs: ["grpo", "sft", "sft-grpo", "trapo"].map(over).to_vec(),
        seeds: 3,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stages_of_a_recipe_have_all_steps_together() {
        let of = |steps| Real { steps, ..Real::of_tests() };
        assert_eq!(of(60).steps(&[20, 40]), [20, 40]);
        assert_eq!(of(50).steps(&[20, 40]), [17, 33]);
        assert_eq!(of(59).steps(&[20, 40]), [20, 39]);
        assert_eq!(of(4).steps(&[20, 40]), [1, 3]);
        assert_eq!(of(4).steps(&[60]), [4]);
    }
}
