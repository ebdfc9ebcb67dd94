//! The training system: recipes, the step, the optimiser, checkpoints, metrics.
//!
//! [`train`] runs a recipe into a run folder. The step itself is one screen, in `step.rs`.

mod builtin;
pub mod checkpoint;
mod error;
mod files;
pub mod grading;
mod memory;
mod metrics;
pub mod pack;
mod prompts;
mod raw_recipe;
mod recipe;
pub mod replay;
mod run;
mod step;
mod trainer;
mod update;

pub use error::{Error, Result};
pub use metrics::{Metrics, MetricsFile, is_clock};
pub use prompts::{Limits, Order, Prompt, PromptTable, load_file};
pub use raw_recipe::*;
pub use recipe::{LearningRateSchedule, ModelSource, Recipe};
pub use run::{BUILTIN_BASE, Observer, Outcome, Run, clear_run, levels, open_model, train};
pub use trainer::{Batching, Sums, Trainer};
