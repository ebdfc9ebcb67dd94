//! The training system: recipes, the step, the optimiser, checkpoints, metrics.
//!
//! [`train`] runs a recipe into a run folder. The step itself is one screen, in `step.rs`.

mod builtin;
pub mod checkpoint;
mod duplicates;
mod early_stopping;
mod engines;
mod error;
pub mod grading;
mod guard;
mod init;
mod inputs;
#[cfg(test)]
mod invariance;
mod lora;
pub mod memory;
mod meter;
pub mod pack;
pub mod plan;
mod preflight;
mod prompts;
pub mod recipe;
pub mod replay;
pub mod replay_run;
mod resume;
mod rollouts;
mod run;
mod run_plan;
mod score;
mod source;
mod stats;
mod step;
mod template;
mod tensorboard;
mod train;
mod trainer;
mod trainer_files;
mod update;
mod validation;
mod verifier;

pub use builtin::{BUILTIN_BASE, base_folder};
pub use engines::{Batching, Learner, LocalSampler, ModelFiles, Sampler, Weights};
pub use error::{Error, Result};
pub use hapo_run::{Metrics, MetricsFile, Preflight, is_clock};
pub use inputs::Inputs;
pub use meter::Meter;
pub use prompts::{Order, Prompt, PromptIndex, PromptLimits, PromptTable, ReadAs, load_file};
pub use recipe::{EvalSet, LearningRateSchedule, ModelSource, Overrides, Recipe, levels};
pub use resume::{ResumePolicy, changed_keys};
pub use run::{Run, open_model, open_model_on};
pub use run_plan::{RunPlan, Sources};
pub use source::builtin_prompts;
pub use stats::{Over, Stats};
pub use template::{ChosenTemplate, TemplateRequest, template_of};
pub use train::{Observer, Outcome, require_no_run, stage_folder, train, train_on};
pub use trainer::{Trainer, loss_of};
