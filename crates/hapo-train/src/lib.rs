//! The training system: recipes, the step, the optimiser, checkpoints, metrics.
//!
//! A [`Recipe`] is what was written, a [`RunPlan`] is that recipe settled, and [`train`] makes its run in a folder. The
//! step itself is one screen, in `step/mod.rs`.
//!
//! The rooms, each importing only from those below it: `run`; `step`; `plan`; `model`; `checkpoint`; `problems` and
//! `engine`; `grading` and `observe`; `recipe`; `pack`.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod checkpoint;
mod engine;
pub mod grading;
mod model;
mod observe;
pub mod pack;
pub mod plan;
mod problems;
pub mod recipe;
mod run;
mod step;
#[cfg(test)]
mod tests;

/// A result of the trainer: what fails, a person reads.
pub type Result<T, E = hapo_core::Refusal> = std::result::Result<T, E>;

pub use checkpoint::resume::{ResumePolicy, changed_keys};
pub use engine::scorer::ScoreRequest;
pub use engine::trainer::{Trainer, Weights, loss_of};
pub use engine::{LocalSampler, Sampler};
pub use hapo_net::reward::Answers;
pub use hapo_run::{Metrics, MetricsFile, Preflight, is_clock};
pub use model::template::{ChosenTemplate, template_of, trained_grading, trained_template};
pub use model::{BUILTIN_BASE, base_folder};
pub use observe::stats::{Over, Stats};
pub use observe::{Meter, memory};
pub use pack::Batching;
pub use plan::run_plan::{RunPlan, Sources};
pub use problems::prompts::{
    Order, Prompt, PromptIndex, PromptLimits, PromptTable, check_columns, load_file,
};
pub use problems::{duplicates::plain_problem, inputs::Inputs, source::builtin_prompts};
pub use recipe::{
    EvalSet, LearningRateSchedule, ModelSource, Overrides, Recipe, RecipeProblem, StageCheckpoint,
    levels,
};
pub use run::train::{
    Observer, Outcome, keep_stages, require_no_run, require_run, require_same_run, stage_folder,
    train, train_on,
};
pub use run::{Run, open_frozen_on, open_model, open_model_on, replay_run, schedule_of};
