//! The updates of one batch: every pass visits every mini-batch of prompts once (D19).

use hapo_core::{Loss, Step};
use hapo_kernels::AdamW;

use crate::engines::Batching;
use crate::engines::Learner;
use crate::error::{Error, Result};
use crate::pack::TokenGroup;
use crate::recipe::LearningRateSchedule;
use crate::stats::{Over, Stats};
use crate::trainer::{SAMPLER_GAP, loss_of};

/// How the weights are moved.
#[derive(Clone, Debug)]
pub(crate) struct UpdateSettings {
    pub(crate) loss: Loss,
    pub(crate) batching: Batching,
    /// The optimiser at its peak rate.
    pub(crate) optimizer: AdamW,
    pub(crate) lr_schedule: LearningRateSchedule,
    /// Share of the updates over which the rate rises.
    pub(crate) warmup: f64,
    /// Updates of the whole run.
    pub(crate) total_updates: u64,
    pub(crate) max_grad_norm: f64,
    pub(crate) passes: usize,
    /// Prompts of a mini-batch; 0 for all of a step's.
    pub(crate) mini_batch_prompts: usize,
}

/// Makes the updates of one batch.
pub(crate) fn update<L: Learner>(
    learner: &mut L,
    groups: &[TokenGroup],
    settings: &UpdateSettings,
    (step, measures_gap): (Step, bool),
) -> Result<Stats> {
    let per_mini_batch = match settings.mini_batch_prompts {
        0 => groups.len().max(1),
        prompts => prompts,
    };
    let mut stats = Stats::default();
    let later = groups.get(per_mini_batch..).unwrap_or_default();
    let gap = match later.is_empty() {
        true => Some(0.0),
        false if measures_gap => learner.sampler_gap(later, settings.batching)?,
        false => None,
    };
    let (mut updates, mut learning_rate) = (0, 0.0);
    let meter = learner.meter();
    let parts = settings.passes * groups.len().div_ceil(per_mini_batch);
    for pass in 0..settings.passes {
        for mini_batch in groups.chunks(per_mini_batch) {
            meter.part(updates as u64, parts as u64);
            let mut numbers = learner.gradient(&settings.loss, mini_batch, settings.batching)?;
            let norm = learner.gradient_norm()?;
            for (what, value) in [("loss", loss_of(&numbers)), ("gradient norm", norm)] {
                if !value.is_finite() {
                    let step = step.0;
                    return Err(Error::NotFinite { what, value, step });
                }
            }
            numbers.total("grad_norm", Over::AllPasses, norm);
            let optimizer = settings.optimizer_of(learner.weights().version + 1);
            learning_rate = optimizer.learning_rate;
            learner.apply(optimizer, norm, settings.max_grad_norm)?;
            if !learner.weights_are_finite()? {
                return Err(Error::Overflow { step: step.0, learning_rate });
            }
            stats.merge_update(&numbers, pass, updates);
            updates += 1;
        }
    }
    meter.part(0, 1);
    let responses = groups.iter().flat_map(|it| &it.sequences);
    let response_tokens = responses.map(|it| it.response.len()).sum();
    match gap {
        Some(gap) if stats.value(SAMPLER_GAP).is_some() => {
            stats.max(SAMPLER_GAP, Over::FirstUpdate, gap);
        }
        Some(_) => {}
        None => stats.forget(SAMPLER_GAP),
    }
    let teacher_tokens = stats.count("teacher/mean_prob") as f64;
    let first_pass = Over::FirstPass;
    stats.mean("teacher/token_share", first_pass, teacher_tokens, response_tokens);
    stats.mean("lr", Over::AllPasses, learning_rate, 1);
    Ok(stats)
}

impl UpdateSettings {
    /// The optimiser of the run's update number `update`, from 1.
    fn optimizer_of(&self, update: u64) -> AdamW {
        let schedule = self.lr_schedule;
        let factor = schedule.factor(update, self.total_updates, self.warmup);
        AdamW { learning_rate: self.optimizer.learning_rate * factor, ..self.optimizer }
    }
}
