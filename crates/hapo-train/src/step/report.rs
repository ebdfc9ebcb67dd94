//! A step's metrics beside the numbers of its updates, which name themselves (`stats.rs`).

use hapo_core::{BatchStatistics, Gated, Intervention, Member, Mismatch, Step};
use hapo_run::{Metrics, REWARD_BELOW_WRONG, REWARD_FAILED, REWARD_PARTS};

use super::group::{Batch, SampledTokens, Task};
use crate::observe::{Clock, memory, unix_seconds};
use crate::{engine::trainer::loss_of, observe::stats::Stats, pack::is_moved};

pub(super) fn step(task: Task, batch: &Batch, stats: &Stats, kl: Option<f64>) -> Metrics {
    let (mut metrics, step) = (Metrics::default(), task.step);
    metrics.set("step", step.0 as f64);
    metrics.set("epoch", step.0 as f64 / task.order.steps_per_epoch() as f64);
    let mut statistics = BatchStatistics::of(batch.sampled(), batch.dropped);
    // The objective knows what cannot move the weights.
    statistics.without_signal = batch.sampled.iter().filter(|it| !it.has_terms).count();
    statistics.entries().for_each(|(name, value)| metrics.set(name, value));
    metrics.set("verify/boxed", batch.answers.boxed as f64);
    metrics.set("verify/announced", batch.answers.announced as f64);
    let (answers, some) = (&batch.answers, |it: usize| (it > 0).then_some(it as f64));
    metrics.set(REWARD_FAILED, some(answers.failed));
    metrics.set(REWARD_BELOW_WRONG, some(answers.below_wrong));
    for (name, (sum, n)) in &answers.parts {
        metrics.set(format!("{REWARD_PARTS}{name}"), sum / *n as f64);
    }
    gate(&mut metrics, batch, task.method, step);
    responses(&mut metrics, &batch.tokens);
    updates(&mut metrics, stats, &batch.tokens);
    if let Some(correction) = task.plan.recipe().rollouts.correction() {
        // How far sampler and trainer are apart, over all sampled rollouts (D41).
        let mut mismatch = Mismatch::default();
        for it in batch.sampled().flat_map(|(group, _)| group.all_sampled()) {
            mismatch.add(correction, &it.rollout);
        }
        mismatch.entries().into_iter().for_each(|(name, value)| metrics.set(name, value));
    }
    if task.plan.recipe().sampling.dynamic_sampling > 0 {
        let it = BatchStatistics::of(batch.trained(), 0);
        metrics.set("groups/refilled", (batch.sampled.len() - batch.slots.len()) as f64);
        metrics.set("selected/without_signal", batch.without_signal() as f64);
        metrics.set("selected/reward_mean", it.reward_mean);
        metrics.set("selected/reward_policy_only", it.reward_policy_only);
        metrics.set("selected/beta", it.beta);
    }
    let moved = |member: &Member| is_moved(member, task.method.trained_behind(member));
    metrics.set("policy/kl_to_reference", batch.kl_to_reference(moved));
    metrics.set("policy/kl_to_initial", kl);
    let sampled = batch.tokens.lengths.iter().sum();
    metrics.set("verify/ms", batch.clock.seconds("verify") * 1e3);
    times(&mut metrics, &batch.clock, sampled, stats.tokens);
    if !task.table.is_graded() {
        metrics.retain(|name| !OF_GRADES.iter().any(|it| name.starts_with(it)));
    }
    metrics
}

/// Prefixes of metrics that are absent where a prompt has no gold answer (D38).
const OF_GRADES: [&str; 5] =
    ["reward/", "groups/all_", "groups/partially_solved", "selected/reward", "verify/"];

fn gate(metrics: &mut Metrics, batch: &Batch, method: &Gated, step: Step) {
    let interventions = batch.sampled().map(|it| it.0.intervention());
    let open = interventions.filter(|it| *it != Intervention::GateClosed).count();
    metrics.set("gate/open", open as f64);
    if method.rule.is_table {
        let limit = method.success_limit(step);
        metrics.set("gate/threshold", method.threshold(step));
        metrics.set("gate/success_limit", f64::from(limit.get()));
    }
}

fn responses(metrics: &mut Metrics, tokens: &SampledTokens) {
    let mut sorted = tokens.lengths.clone();
    sorted.sort_unstable();
    let n = sorted.len().max(1);
    let mean = sorted.iter().sum::<usize>() as f64 / n as f64;
    let p95 = (sorted.len() * 95).div_ceil(100).saturating_sub(1);
    let p95 = sorted.get(p95).copied().unwrap_or(0);
    let truncated = tokens.truncated as f64 / n as f64;
    metrics.set("response_length/mean", mean);
    metrics.set("response_length/p95", p95 as f64);
    metrics.set("response_length/truncated", truncated);
}

/// The numbers of the updates, and entropies at temperature 1: of everything sampled, of the teacher's tokens
/// under the weights that sampled or the mini-batches after them (a number of the updates), and of all of these.
fn updates(metrics: &mut Metrics, stats: &Stats, tokens: &SampledTokens) {
    metrics.set("loss", loss_of(stats));
    stats.iter().for_each(|(name, value)| metrics.set(name, value));
    let mean = |sum: f64, tokens: usize| sum / tokens.max(1) as f64;
    let (sum, sampled) = (tokens.entropy, tokens.lengths.iter().sum::<usize>());
    let taught = stats.count("teacher/entropy");
    let teacher = stats.value("teacher/entropy").unwrap_or(0.0) * taught as f64;
    metrics.set("policy/entropy", mean(sum, sampled));
    metrics.set("entropy/all", mean(sum + teacher, sampled + taught));
}

pub(super) fn times(metrics: &mut Metrics, clock: &Clock, sampled: usize, trained: usize) {
    let (sample, train) = (clock.seconds("sample"), clock.seconds("train"));
    metrics.set("time/sample", sample);
    metrics.set("time/verify", clock.seconds("verify"));
    metrics.set("time/train", train);
    metrics.set("time/step", clock.total());
    metrics.set("time/unix", unix_seconds());
    metrics.set("tokens_per_second/sample", sampled as f64 / sample);
    metrics.set("tokens_per_second/train", trained as f64 / train);
    metrics.set("memory/rss", memory::resident_bytes().map_or(f64::NAN, |it| it as f64));
}
