//! The updates of one batch: every pass visits every mini-batch of prompts once (D19).

use hapo_core::{Refusal, Step};
use hapo_kernels::{AdamW, Device};

use crate::engine::trainer::{SAMPLER_GAP, Trainer, loss_of};
use crate::observe::stats::{Over, Stats};
use crate::{Result, pack::TokenGroup, plan::run_plan::RunPlan};

pub(crate) fn update<D: Device>(
    learner: &mut Trainer<D>,
    groups: &mut [TokenGroup],
    plan: &RunPlan,
    step: Step,
) -> Result<Stats> {
    let (optim, batching) = (&plan.recipe().optim, plan.batching());
    let per_mini_batch = match optim.mini_batch_prompts {
        0 => groups.len().max(1),
        prompts => prompts,
    };
    let mut stats = Stats::default();
    let later = groups.get(per_mini_batch..).unwrap_or_default();
    let every = plan.recipe().metrics.gap_every;
    // The trainer's own numbers have no gap (D41).
    let is_sampled = plan.recipe().rollouts.correction().is_none();
    let is_measured = is_sampled && every > 0 && (step.0 - 1).is_multiple_of(every);
    // Of one mini-batch it is measured by the update itself.
    let measure = || learner.sampler_gap(later, batching);
    let gap = (later.is_empty() || is_measured).then(measure).transpose()?;
    learner.rescore(groups, batching)?;
    let (mut updates, mut learning_rate) = (0, 0.0);
    let meter = learner.meter.clone();
    let parts = optim.passes * groups.len().div_ceil(per_mini_batch);
    for pass in 0..optim.passes {
        for mini_batch in groups.chunks(per_mini_batch) {
            meter.part(updates as u64, parts as u64);
            let optimizer = plan.optimizer(step, updates as u64 + 1);
            learning_rate = optimizer.learning_rate;
            let numbers = update_once(learner, mini_batch, plan, step, optimizer)?;
            stats.merge_update(&numbers, pass, updates);
            updates += 1;
        }
    }
    meter.part(0, 1);
    let responses = groups.iter().flat_map(|it| &it.sequences);
    let response_tokens = responses.map(|it| it.response.len()).sum();
    // Else the recorded numbers are the trainer's own; the sampler's gap is one of the batch's numbers (D41).
    match gap.filter(|_| is_sampled) {
        Some(gap) if stats.value(SAMPLER_GAP).is_some() => {
            stats.max(SAMPLER_GAP, Over::FirstUpdate, gap);
        }
        Some(_) => {}
        None => stats.forget(SAMPLER_GAP),
    }
    let teacher_tokens = stats.count("teacher/mean_prob") as f64;
    stats.mean("teacher/token_share", Over::FirstPass, teacher_tokens, response_tokens);
    stats.mean("lr", Over::AllPasses, learning_rate, 1);
    Ok(stats)
}

const LOWER_RATE: &str = "resume with a lower optim.lr: --resume --force-recipe --set optim.lr=…";

/// Makes one update from a mini-batch, and returns its numbers. A loss, gradient or weight that is no number ends the run (D23).
pub(crate) fn update_once<D: Device>(
    learner: &mut Trainer<D>,
    mini_batch: &[TokenGroup],
    plan: &RunPlan,
    step: Step,
    optimizer: AdamW,
) -> Result<Stats> {
    let mut numbers = learner.gradient(plan.recipe().loss(), mini_batch, plan.batching())?;
    let norm = learner.gradient_norm()?;
    for (what, value) in [("loss", loss_of(&numbers)), ("gradient norm", norm)] {
        if !value.is_finite() {
            let problem = format!("{what} is {value} at step {}", step.0);
            return Err(Refusal::machine(problem).hint(LOWER_RATE));
        }
    }
    numbers.total("grad_norm", Over::AllPasses, norm);
    let learning_rate = optimizer.learning_rate;
    learner.apply(optimizer, norm, plan.recipe().optim.max_grad_norm)?;
    if !learner.weights_are_finite()? {
        let problem = format!(
            "the weights overflow in an update of step {}, at a learning rate of {learning_rate:e}",
            step.0
        );
        return Err(Refusal::machine(problem).hint(LOWER_RATE));
    }
    Ok(numbers)
}
