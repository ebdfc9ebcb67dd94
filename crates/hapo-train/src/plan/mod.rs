//! An estimate of a run's cost before it starts: memory by part, tokens, operations and time of a step, from
//! a recipe and a model's shape alone.
//!
//! Memory is counted by the code that takes it, on a device that only counts ([`hapo_kernels::Counting`]) and is told
//! the caps of the device that is planned for. Time is operations at a share of the device's peak, and after them the
//! bytes that decoding and the optimiser move, at a share of its bandwidth. The shares are stated with each device.

mod device;
mod memory;
pub(crate) mod run_plan;
mod work;

use hapo_kernels::DeviceCaps;
use hapo_model::{Config, Dtype};
use serde::Serialize;

pub use device::DeviceSpec;
pub(crate) use memory::{longest_sequences, micro_batch_tokens};

use crate::Result;
use crate::model::{BUILTIN_BASE, init, lora};
use crate::recipe::{EvalSet, LoraSection, ModelSource, Recipe, of_another_recipe};
use memory::{Sampling, at_once, changes, parts, total, trained_bytes};
use work::{SamplingWork, TrainingWork};

/// Mean lengths in tokens to reckon time with.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Lengths {
    pub prompt: f64,
    pub response: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    pub name: &'static str,
    pub bytes: u64,
    #[serde(skip)]
    pub phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Always,
    /// While something is trained, where idle memory is given back.
    Training,
    Sampling,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    pub set: String,
    pub total_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct Workload<'a> {
    pub recipe: &'a Recipe,
    /// The problems of its `[eval]`, where they were found.
    pub eval_sets: Option<&'a [EvalSet]>,
    pub config: &'a Config,
    pub device: &'a DeviceSpec,
}

impl<'a> Workload<'a> {
    pub fn new(recipe: &'a Recipe, config: &'a Config, device: &'a DeviceSpec) -> Self {
        Self { recipe, eval_sets: None, config, device }
    }

    /// Refuses a family of models or an adapter that does not run on the device.
    pub fn check(&self) -> Result<()> {
        let adapter = self.recipe.lora.as_ref().map(LoraSection::shape);
        hapo_model::check_run(self.config, self.device.caps(), adapter.as_ref())
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Estimate {
    pub name: String,
    pub device: DeviceSpec,
    pub parameters: u64,
    pub memory: Vec<Part>,
    /// All of it at the largest moment of a step.
    pub total_bytes: u64,
    pub fits: bool,
    pub checkpoint_bytes: u64,
    /// All checkpoints on the disk at once: those kept, the best, and the one that is being written.
    pub disk_bytes: u64,
    /// Changes that lower the memory, the largest saving first.
    pub changes: Vec<Change>,
    pub lengths: Lengths,
    /// Sequences of a step that the cache holds at once at these lengths, when none is preempted.
    pub sequences_at_once: usize,
    pub sampled_tokens: f64,
    /// Tokens run forward and backward in a step, prompts once per group.
    pub trained_tokens: f64,
    pub sampling_flops: f64,
    pub training_flops: f64,
    pub sampling_seconds: f64,
    pub training_seconds: f64,
    pub steps: u64,
    pub evaluation: Option<Evaluation>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evaluation {
    /// Evaluations of the run, if none ends it early.
    pub times: u64,
    pub completions: u64,
    pub tokens: f64,
    pub seconds: f64,
}

/// The shape of a recipe's model. A model on the disk needs `config.json` only.
pub fn config_of(recipe: &Recipe) -> Result<Config> {
    config_of_model(recipe, recipe.model())
}

/// The shape of a recipe's model where it was found.
pub fn config_of_model(recipe: &Recipe, model: &ModelSource) -> Result<Config> {
    let context = recipe.data.max_prompt_tokens + recipe.sampling.max_new_tokens;
    let config = match model {
        ModelSource::Init(it) => init::config_of(it, &init::tokenizer_of(it)?.0, context)?,
        ModelSource::Folder(path) => {
            let adapter = if path == BUILTIN_BASE { None } else { lora::adapter_of(path)? };
            let base = adapter.map(|it| lora::base_of(&it)).transpose()?;
            match base.as_deref().unwrap_or(path) {
                BUILTIN_BASE => crate::model::config()?,
                folder => hapo_model::folder::read_config(std::path::Path::new(folder))?.config,
            }
        }
        ModelSource::Stage(name, _) => return Err(of_another_recipe(name)),
    };
    config.check()?;
    if let Some(lora) = recipe.lora.as_ref() {
        let anywhere = DeviceCaps::cpu(recipe.compute, 1);
        hapo_model::check_run(&config, anywhere, Some(&lora.shape()))?;
    }
    Ok(config)
}

/// Estimates a workload: memory for the longest prompts and responses that the recipe allows, time for `lengths`.
pub fn estimate(of: Workload, lengths: Lengths) -> Estimate {
    let Workload { recipe, config, device, .. } = of;
    let memory = parts(of);
    let total_bytes = total(&memory, device);
    let mut changes = changes(of);
    changes.retain(|it| it.total_bytes < total_bytes);
    changes.sort_by_key(|it| it.total_bytes);
    let of_step = Sampling::of_step(recipe).into_iter().collect();
    let of_step = at_once(of_step, of, lengths).pop();
    let weights = memory::weight_bytes(of);
    let sampling = of_step.map(|it| SamplingWork::of(it, of, weights, lengths)).unwrap_or_default();
    let training = TrainingWork::of(of, lengths);
    // Weights in the recipe's format or an adapter in f32, and the f32 parameters and moments that a resume reads.
    let dtype = if recipe.lora.is_some() { Dtype::F32 } else { recipe.model.dtype };
    let checkpoint_bytes = trained_bytes(recipe, config) / 4 * (dtype.size() as u64 + 3 * 4);
    let it = &recipe.checkpoint;
    let made = if it.every == 0 { 1 } else { recipe.steps.div_ceil(it.every) };
    // The next one is written before an old one goes.
    let checkpoints = (it.keep as u64 + u64::from(!it.best.is_empty()) + 1).min(made);
    let sizes = config.tensors().into_iter().map(|it| it.shape.iter().product::<usize>());
    Estimate {
        name: recipe.name().to_owned(),
        device: device.clone(),
        parameters: sizes.map(|it| it as u64).sum(),
        memory,
        total_bytes,
        fits: total_bytes <= device.memory_bytes,
        checkpoint_bytes,
        disk_bytes: checkpoint_bytes * checkpoints,
        changes,
        lengths,
        sequences_at_once: of_step.map_or(0, |it| it.sequences),
        sampled_tokens: sampling.tokens,
        trained_tokens: training.tokens,
        sampling_flops: sampling.flops(),
        training_flops: training.flops.all,
        sampling_seconds: sampling.seconds(device),
        training_seconds: training.seconds(device),
        steps: recipe.steps,
        evaluation: evaluation(of, lengths),
    }
}

impl Estimate {
    pub fn step_seconds(&self) -> f64 {
        self.sampling_seconds + self.training_seconds
    }

    pub fn seconds(&self) -> f64 {
        let evaluation = self.evaluation.as_ref().map_or(0.0, |it| it.seconds * it.times as f64);
        self.step_seconds() * self.steps as f64 + evaluation
    }
}

fn evaluation(of: Workload, lengths: Lengths) -> Option<Evaluation> {
    let Workload { recipe, eval_sets, device, .. } = of;
    let eval = recipe.eval.as_ref()?;
    // A mean below the limit of a response is taken for completions too.
    let longest = recipe.sampling.max_new_tokens as f64;
    let limit = recipe.eval_max_tokens() as f64;
    let response = if lengths.response < longest { lengths.response.min(limit) } else { limit };
    let weights = memory::weight_bytes(of);
    let lengths = Lengths { response, ..lengths };
    let sets = at_once(Sampling::of_evaluation(recipe, eval_sets), of, lengths);
    let of_set = |it: &Sampling| SamplingWork::of(*it, of, weights, lengths);
    let work: Vec<SamplingWork> = sets.iter().map(of_set).collect();
    Some(Evaluation {
        // There is one after the last step as well.
        times: recipe.steps.div_ceil(eval.every),
        completions: sets.iter().map(|it| (it.prompts * it.completions) as u64).sum(),
        tokens: work.iter().map(|it| it.tokens).sum(),
        seconds: work.iter().map(|it| it.seconds(device)).sum(),
    })
}

#[cfg(test)]
mod tests;
