//! A step of imitation: the demonstrations of a batch and the update made from them.

use hapo_core::Step;
use hapo_kernels::Device;
use hapo_run::Metrics;

use super::clock::Clock;
use super::report;
use crate::Result;
use crate::engine::trainer::{Trainer, loss_of};
use crate::pack::TokenGroup;
use crate::plan::run_plan::RunPlan;
use crate::step::update::update;

pub(crate) fn imitation_step<D: Device>(
    learner: &mut Trainer<D>,
    demonstrations: &mut [TokenGroup],
    plan: &RunPlan,
    step: Step,
    epoch: f64,
) -> Result<Metrics> {
    let mut clock = Clock::start();
    let stats = update(learner, demonstrations, plan, step)?;
    clock.lap("train");
    let mut metrics = Metrics::default();
    metrics.set("step", step.0 as f64);
    metrics.set("epoch", epoch);
    metrics.set("loss", loss_of(&stats));
    for name in ["teacher/mean_prob", "grad_norm", "lr"] {
        if let Some(it) = stats.value(name) {
            metrics.set(name, it);
        }
    }
    report::times(&mut metrics, &clock, 0, stats.tokens);
    Ok(metrics)
}
