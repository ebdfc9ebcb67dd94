//! One training step on one screen: sample → score → intervene → advantages → pack → loss → update
//! → report, each taking one type and returning the next.

mod hints;

use std::time::Instant;

use hapo_core::Method;
use hapo_core::{
    BatchStatistics, MixedGroup, RngCounter, RngStream, Rollout, ScoredGroup, Slot, Step, Verdict,
    apply_gate, drop_short_groups, rollouts_to_sample, uniform,
};
use hapo_kernels::Device;
use hapo_sampler::{GroupRequest, SampleSettings, Sampled};
use rayon::prelude::*;

use crate::error::Result;
use crate::pack::{TokenGroup, token_group};
use crate::prompts::Order;
use crate::run::Run;
use crate::stats::Stats;
use crate::trainer::loss_of;
use crate::update;
use crate::{grading, memory};
use hapo_run::Metrics;

/// Algorithm 1, lines 5–19: one batch of rollouts and the updates made from it.
pub(crate) fn rollout_step<D: Device>(
    run: &mut Run<D>,
    order: Order,
    step: Step,
) -> Result<Metrics> {
    let mut clock = Clock::start();
    let mut prompts = order.of_step(step.0);
    let mut batch = collect(run, &prompts, step, &mut clock)?;
    let mut refilled = 0;
    for round in 1..=run.recipe.raw.sampling.refill as u64 {
        let without_signal = batch.without_signal();
        let fresh = order.refill(step.0, round, without_signal.len(), &prompts);
        if fresh.is_empty() {
            break;
        }
        let more = collect(run, &fresh, step, &mut clock)?;
        refilled += more.groups.len();
        batch.replace(&without_signal, more);
        prompts.extend(fresh);
    }
    let statistics = BatchStatistics::of(&batch.groups, batch.dropped);
    let groups: Vec<TokenGroup> = batch.groups.iter().map(|it| tokens_of(run, it)).collect();
    run.keep_rollouts(&batch.groups, step)?;
    clock.lap("other");
    let kl_every = run.recipe.raw.metrics.kl_every;
    let kl = if kl_every > 0 && step.0.is_multiple_of(kl_every) {
        run.trainer.kl_to_initial(&groups, run.batching())?
    } else {
        None
    };
    clock.lap("kl");
    let report = update::update(run, &groups, step.0)?;
    clock.lap("train");

    let mut metrics = Metrics::default();
    metrics.set("step", step.0 as f64);
    metrics.set("epoch", step.0 as f64 / run.steps_per_epoch() as f64);
    report_groups(&mut metrics, &statistics, run.method.as_ref(), step);
    report_responses(&mut metrics, &batch.tokens);
    metrics.set("loss", loss_of(&report));
    for (name, value) in report.iter() {
        metrics.set(name, value);
    }
    let sampled: usize = batch.tokens.lengths.iter().sum();
    report_entropies(&mut metrics, batch.tokens.entropy, sampled, &report);
    if run.recipe.raw.sampling.refill > 0 {
        metrics.set("groups/refilled", refilled as f64);
    }
    if let Some(it) = kl {
        metrics.set("policy/kl_to_initial", it);
    }
    metrics.set("verify/correct", statistics.correct as f64);
    metrics.set("verify/wrong", statistics.wrong as f64);
    metrics.set("verify/unparsable", statistics.unparsable as f64);
    metrics.set("verify/ms", clock.seconds("verify") * 1e3);
    report_clock(&mut metrics, &clock, sampled, report.tokens);
    Ok(metrics)
}

/// Prompts to groups that have met the gate: sample → score → intervene.
fn collect<D: Device>(
    run: &Run<D>,
    prompts: &[usize],
    step: Step,
    clock: &mut Clock,
) -> Result<Batch> {
    if run.recipe.hints {
        return hints::collect(run, prompts, step, clock);
    }
    let sampled = sample(run, prompts, step)?;
    let tokens = SampledTokens::of(&sampled);
    clock.lap("sample");
    let scored = score(run, prompts, sampled, step)?;
    clock.lap("verify");
    Ok(gate(run, step, scored, tokens))
}

/// Scored groups through the gate.
fn gate<D: Device>(
    run: &Run<D>,
    step: Step,
    scored: Vec<ScoredGroup>,
    tokens: SampledTokens,
) -> Batch {
    let (scored, dropped) = drop_short_groups(scored);
    let groups = scored.into_iter().map(|it| mix(run, it, step)).collect();
    Batch {
        groups,
        dropped,
        tokens,
    }
}

/// The groups of a step after the gate, and what the logs want to know of all that was sampled.
struct Batch {
    groups: Vec<MixedGroup>,
    dropped: usize,
    tokens: SampledTokens,
}

impl Batch {
    /// Positions of the groups that cannot move the weights (D20).
    fn without_signal(&self) -> Vec<usize> {
        let groups = self.groups.iter().enumerate();
        let dull = groups.filter(|it| !it.1.has_signal());
        dull.map(|it| it.0).collect()
    }

    /// Puts the groups of `more` in the places `at`, one each.
    fn replace(&mut self, at: &[usize], more: Self) {
        for (place, group) in at.iter().zip(more.groups) {
            self.groups[*place] = group;
        }
        self.dropped += more.dropped;
        self.tokens.add(more.tokens);
    }
}

/// A step of imitation: the demonstrations of a batch and the update made from them.
pub(crate) fn imitation_step<D: Device>(
    run: &mut Run<D>,
    groups: &[TokenGroup],
    step: Step,
) -> Result<Metrics> {
    let mut clock = Clock::start();
    let report = update::update(run, groups, step.0)?;
    clock.lap("train");
    let mut metrics = Metrics::default();
    metrics.set("step", step.0 as f64);
    metrics.set("epoch", step.0 as f64 / run.steps_per_epoch() as f64);
    metrics.set("loss", loss_of(&report));
    for name in ["teacher/mean_prob", "grad_norm", "lr"] {
        metrics.set(name, report.value(name));
    }
    report_clock(&mut metrics, &clock, 0, report.tokens);
    Ok(metrics)
}

/// What the logs want to know of sampled tokens.
#[derive(Default)]
struct SampledTokens {
    /// Length of each response.
    lengths: Vec<usize>,
    /// Responses without an end token.
    truncated: usize,
    /// Σ H over the tokens, at temperature 1.
    entropy: f64,
}

impl SampledTokens {
    fn of(sampled: &[Sampled]) -> Self {
        let all = || sampled.iter().flat_map(Sampled::completions);
        Self {
            lengths: all().map(|it| it.0.tokens.len()).collect(),
            truncated: all().filter(|it| !it.0.ended).count(),
            entropy: all()
                .flat_map(|it| &it.1.entropies)
                .map(|it| f64::from(*it))
                .sum::<f64>(),
        }
    }

    fn add(&mut self, more: Self) {
        self.lengths.extend(more.lengths);
        self.truncated += more.truncated;
        self.entropy += more.entropy;
    }
}

fn sample<D: Device>(run: &Run<D>, prompts: &[usize], step: Step) -> Result<Vec<Sampled>> {
    let sampling = &run.recipe.raw.sampling;
    let requests: Vec<GroupRequest<'_>> = prompts
        .iter()
        .map(|it| {
            let prompt = &run.prompts()[*it];
            let completions = rollouts_to_sample(
                run.method.slot(),
                sampling.group_size,
                prompt.teacher.as_ref(),
            );
            GroupRequest {
                prompt: prompt.id,
                tokens: &prompt.tokens,
                completions,
            }
        })
        .collect();
    complete(run, &requests, RngStream::Sample, step)
}

/// The completions of every request, as the recipe samples them.
fn complete<D: Device>(
    run: &Run<D>,
    requests: &[GroupRequest<'_>],
    rng_stream: RngStream,
    step: Step,
) -> Result<Vec<Sampled>> {
    let sampling = &run.recipe.raw.sampling;
    let settings = SampleSettings {
        decoding: run.recipe.decoding,
        stop: &run.chat_format.stop,
        max_new_tokens: sampling.max_new_tokens,
        max_sequences: sampling.max_sequences,
        usable_vocab: run.chat_format.tokenizer.vocab_size(),
        seed: run.recipe.raw.seed,
        rng_stream,
        step: step.0,
    };
    Ok(hapo_sampler::sample_until(
        &run.trainer.model,
        requests,
        &settings,
        &run.chat_format.tokenizer,
        &sampling.stop,
    )?)
}

fn score<D: Device>(
    run: &Run<D>,
    prompts: &[usize],
    sampled: Vec<Sampled>,
    step: Step,
) -> Result<Vec<ScoredGroup>> {
    prompts
        .par_iter()
        .zip(sampled)
        .map(|(index, it)| {
            let verdicts = verdicts(run, *index, it.group.rollouts(), (step, 0))?;
            Ok(it.group.score(verdicts))
        })
        .collect()
}

/// What the verifier says of responses to the prompt at `index`; the first is rollout `first` of the
/// prompt's group. A recipe may make the verifier unreliable.
fn verdicts<D: Device>(
    run: &Run<D>,
    index: usize,
    rollouts: &[Rollout],
    (step, first): (Step, usize),
) -> Result<Vec<Verdict>> {
    let prompt = &run.prompts()[index];
    let flipped = run.recipe.raw.data.flip_verdicts;
    rollouts
        .iter()
        .zip(first as u64..)
        .map(|(it, rollout)| {
            let verdict = grading::verdict_of(&prompt.gold, &run.chat_format.text(&it.tokens)?);
            let counter = RngCounter {
                step: step.0,
                prompt: prompt.id.0,
                rollout,
                position: 0,
            };
            if flipped > 0.0 && uniform(run.recipe.raw.seed, RngStream::Flip, counter) < flipped {
                return Ok(match verdict {
                    Verdict::Correct => Verdict::Wrong,
                    Verdict::Wrong | Verdict::Unparsable(_) => Verdict::Correct,
                });
            }
            Ok(verdict)
        })
        .collect()
}

pub(crate) fn mix<D: Device>(run: &Run<D>, group: ScoredGroup, step: Step) -> MixedGroup {
    let teacher = run.prompt(group.prompt()).teacher.as_ref();
    let slot = Slot {
        rule: run.method.slot(),
        seed: run.recipe.raw.seed,
        step,
    };
    apply_gate(group, teacher, run.method.success_limit(step), slot)
}

pub(crate) fn tokens_of<D: Device>(run: &Run<D>, group: &MixedGroup) -> TokenGroup {
    let prompt = run.prompt(group.prompt()).tokens.clone();
    token_group(
        group,
        prompt,
        run.method.objective(),
        run.method.initial_threshold(),
    )
}

fn report_groups(metrics: &mut Metrics, it: &BatchStatistics, method: &dyn Method, step: Step) {
    metrics.set("reward/mean", it.reward_mean);
    metrics.set("reward/policy_only", it.reward_policy_only);
    metrics.set("groups/all_fail", it.all_fail as f64);
    metrics.set("groups/all_solved", it.all_solved as f64);
    metrics.set("groups/mixed", it.partially_solved as f64);
    metrics.set("groups/without_signal", it.without_signal as f64);
    metrics.set("groups/dropped", it.dropped as f64);
    metrics.set("gate/threshold", method.threshold(step));
    metrics.set(
        "gate/open_up_to",
        f64::from(method.success_limit(step).get()),
    );
    metrics.set("gate/beta", it.beta);
    metrics.set("gate/beta_trajectories", it.teacher_trajectories);
    metrics.set("gate/open_no_teacher", it.open_no_teacher as f64);
}

fn report_responses(metrics: &mut Metrics, tokens: &SampledTokens) {
    let mut sorted = tokens.lengths.clone();
    sorted.sort_unstable();
    let n = sorted.len().max(1);
    metrics.set(
        "response_length/mean",
        sorted.iter().sum::<usize>() as f64 / n as f64,
    );
    let p95 = sorted
        .get((sorted.len() * 95).div_ceil(100).saturating_sub(1))
        .copied()
        .unwrap_or(0);
    metrics.set("response_length/p95", p95 as f64);
    metrics.set(
        "response_length/truncated",
        tokens.truncated as f64 / n as f64,
    );
}

/// Entropies at temperature 1: of everything sampled, of the teacher's tokens under the weights that
/// sampled or the mini-batches after them, and of all of these.
fn report_entropies(metrics: &mut Metrics, sum: f64, sampled: usize, report: &Stats) {
    let mean = |sum: f64, tokens: usize| sum / tokens.max(1) as f64;
    let tokens = report.count("teacher/entropy");
    let teacher = report.value("teacher/entropy") * tokens as f64;
    metrics.set("policy/entropy", mean(sum, sampled));
    metrics.set("entropy/all", mean(sum + teacher, sampled + tokens));
}

fn report_clock(
    metrics: &mut Metrics,
    clock: &Clock,
    sampled_tokens: usize,
    trained_tokens: usize,
) {
    let (sample, train) = (clock.seconds("sample"), clock.seconds("train"));
    metrics.set("time/sample", sample);
    metrics.set("time/verify", clock.seconds("verify"));
    metrics.set("time/train", train);
    metrics.set("time/step", clock.total());
    metrics.set("tokens_per_second/sample", sampled_tokens as f64 / sample);
    metrics.set("tokens_per_second/train", trained_tokens as f64 / train);
    metrics.set(
        "memory/rss",
        memory::resident_bytes().map_or(f64::NAN, |it| it as f64),
    );
}

/// Seconds spent in each part of a step.
struct Clock {
    started: Instant,
    last: Instant,
    laps: Vec<(&'static str, f64)>,
}

impl Clock {
    fn start() -> Self {
        let now = Instant::now();
        Self {
            started: now,
            last: now,
            laps: Vec::new(),
        }
    }

    fn lap(&mut self, name: &'static str) {
        self.laps.push((name, self.last.elapsed().as_secs_f64()));
        self.last = Instant::now();
    }

    fn seconds(&self, name: &str) -> f64 {
        let laps = self.laps.iter().filter(|it| it.0 == name);
        laps.map(|it| it.1).sum()
    }

    fn total(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }
}
