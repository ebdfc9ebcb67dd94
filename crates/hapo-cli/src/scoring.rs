//! Models on sets of problems, as the demonstration and `hapo-lab` score them.

use anyhow::Result;
use hapo_core::Truncated;
use hapo_data::{Dataset, TemplateChoice};
use hapo_eval::{Completions, LocalModel, Plan, ProblemResult, ProblemSet, PromptForm, Sampling};
use hapo_kernels::Cpu;
use hapo_verify::{Extracting, Extraction, MATH};

use crate::support::model::{self, Named};

pub const COMPLETIONS: usize = 2;
pub const TEMPERATURE: f32 = 0.6;

/// Whose random numbers the sets of an evaluation draw.
#[derive(Clone, Copy, Debug)]
pub enum DrawKeys<'a> {
    /// Each set those of its name.
    OfNames(&'a [String]),
    /// All sets the same: what the demonstration's published table is of.
    Shared,
}

#[derive(Clone, Copy, Debug)]
pub struct EvalFormat {
    pub template: TemplateChoice<'static>,
    pub completions: usize,
    /// The grading of a completion that was cut off.
    pub truncated: Truncated,
}

impl EvalFormat {
    /// Those of the built-in task. A completion that was cut off is graded: a few in a thousand hold an answer.
    pub const BUILT_IN: Self = Self {
        template: TemplateChoice { name: "chatml", system: None, suffix: None },
        completions: COMPLETIONS,
        truncated: Truncated::Grade,
    };
}

#[derive(Clone, Copy, Debug)]
pub struct ScoringLimits {
    pub max_new_tokens: usize,
    pub seed: u64,
    pub threads: usize,
}

/// Grades answers that are announced or in the last box.
pub fn grader() -> Extracting<'static> {
    Extracting::new(&MATH, Extraction::Announced)
}

pub fn evaluate_sets(
    model: &str,
    format: EvalFormat,
    sets: &[Dataset],
    draws: DrawKeys<'_>,
    limits: ScoringLimits,
) -> Result<Vec<Vec<ProblemResult>>> {
    let ScoringLimits { max_new_tokens, seed, threads } = limits;
    let named = Named { model, adapter: None };
    let opened = model::open(named, format.template, max_new_tokens, Cpu::new(threads)?)?;
    let set = |(n, dataset): (usize, &Dataset)| {
        let (name, draws) = match draws {
            DrawKeys::OfNames(names) => (names[n].clone(), hapo_eval::draws_of(&names[n])),
            DrawKeys::Shared => (String::new(), 0),
        };
        ProblemSet { name, dataset: dataset.clone(), completions: format.completions, draws }
    };
    let sampling = Sampling {
        temperature: f64::from(TEMPERATURE),
        max_tokens: Some(max_new_tokens),
        seed,
        ..Sampling::new(model, PromptForm::Template(format.template.name.to_owned()))
    };
    let sets = sets.iter().enumerate().map(set).collect();
    let plan = Plan { truncated: format.truncated, ..Plan::new(sets, sampling, grader()) };
    let mut completions = Completions::of_evaluation(&plan, None)?;
    completions.sample(LocalModel { model: &opened.model, chat_format: &opened.chat_format })?;
    Ok(completions.results())
}

/// A path as the loader of models takes it.
pub fn model_name(path: &std::path::Path) -> Result<&str> {
    path.to_str().ok_or_else(|| {
        let problem = format!("the path of {} is not UTF-8", path.display());
        crate::failure::bad_input(problem, "move it into another folder")
    })
}
