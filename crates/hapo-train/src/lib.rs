//! The training system: recipes, the step, the optimiser, checkpoints, metrics.
//!
//! [`train`] runs a recipe into a run folder. The step itself is one screen, in `step.rs`.

mod builtin;
pub mod checkpoint;
mod error;
pub mod grading;
mod guard;
mod init;
#[cfg(test)]
mod invariance;
mod memory;
pub mod pack;
pub mod plan;
mod preflight;
mod prompts;
mod raw_recipe;
mod recipe;
pub mod replay;
pub mod replay_run;
mod rollouts;
mod run;
mod stats;
mod step;
mod tensorboard;
mod train;
mod trainer;
mod update;

pub use error::{Error, Result};
pub use hapo_run::{Metrics, MetricsFile, Preflight, is_clock};
pub use prompts::{Limits, Order, Prompt, PromptTable, load_file};
pub use raw_recipe::*;
pub use recipe::{LearningRateSchedule, ModelSource, Recipe};
pub use run::{BUILTIN_BASE, Run, levels, open_model, open_model_on};
pub use stats::{Over, Stats};
pub use train::{Begin, Observer, Outcome, require_no_run, stage_folder, train, train_on};
pub use trainer::{Batching, Trainer, loss_of};
