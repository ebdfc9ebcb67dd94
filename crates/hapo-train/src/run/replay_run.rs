//! A step of a run, computed again from what the run kept.
//!
//! The weights before the step are those of the latest complete checkpoint before it, moved by the kept rollouts of the
//! steps between; nothing is sampled. The price is one update per step since that checkpoint.

use std::path::Path;

use hapo_core::{PromptId, Refusal, Rollout, SampledGroup, ScoredGroup, Step};
use hapo_kernels::{Cpu, Device};
use hapo_run::{Metrics, Role, RolloutLine, RunFolder, read_rollouts};
use serde::Serialize;

use crate::plan::run_plan::{RunPlan, Sources};
use crate::step::{Task, credited, mix};
use crate::{
    Result, checkpoint, engine::trainer::loss_of, grading::Verifier,
    problems::prompts::PromptTable, recipe::Recipe, run::Run, step::update::update,
};

/// A step as it was logged and as it is computed again.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplayedRunStep {
    pub step: u64,
    /// The step whose weights the replay began with.
    pub from_step: u64,
    pub logged_loss: f64,
    pub loss: f64,
    pub logged_grad_norm: f64,
    pub grad_norm: f64,
}

impl ReplayedRunStep {
    /// True if both numbers are those of the log, bit for bit.
    pub fn agrees(&self) -> bool {
        self.loss.to_bits() == self.logged_loss.to_bits()
            && self.grad_norm.to_bits() == self.logged_grad_norm.to_bits()
    }
}

pub fn recipe_of(run_dir: &Path) -> Result<Recipe> {
    let path = RunFolder(run_dir).recipe();
    Recipe::parse_resolved(&read(&path)?, &path.display().to_string())
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(Refusal::io("read", path))
}

/// Computes step `step` of the run in `run_dir` again, on the CPU.
pub fn replay_run(run_dir: &Path, step: u64, threads: usize) -> Result<ReplayedRunStep> {
    let plan = RunPlan::settle_in(run_dir, &recipe_of(run_dir)?, Sources::default())?;
    replay_run_on(Cpu::computing(threads, plan.recipe().compute)?, &plan, run_dir, step)
}

/// As [`replay_run`], on any device: another one than the run's agrees closely, not bit for bit. `plan` is of the recipe
/// of [`recipe_of`].
pub fn replay_run_on<D: Device>(
    device: D,
    plan: &RunPlan,
    run_dir: &Path,
    step: u64,
) -> Result<ReplayedRunStep> {
    let files = RunFolder(run_dir);
    let (logged_loss, logged_grad_norm) = logged(&read(&files.metrics())?, run_dir, step)?;

    let mut run = Run::on(device, plan)?;
    let mut from_step = 0;
    for (at, folder) in files.list_checkpoints()?.into_iter().filter(|it| it.0 < step) {
        match checkpoint::verify(&folder) {
            Ok(state) => {
                run.restore(&state, &folder)?;
                from_step = at;
                break;
            }
            Err(problem) if checkpoint::is_unread(&problem) => return Err(problem),
            // A damaged one: the step is computed from the one before.
            Err(_) => {}
        }
    }
    let mut report = None;
    for it in from_step + 1..=step {
        let lines = read_rollouts(&RunFolder(run_dir).rollouts_of(it))?;
        let (task, mut engines, _) =
            run.task(Step(it)).expect("rollouts are kept of what is sampled");
        // The kept trajectories as groups, through the gate again.
        let Task { table, verifier, .. } = task;
        let scored = lines.chunk_by(|a, b| a.prompt_id == b.prompt_id);
        let scored = scored.map(|it| scored_group(table, verifier, it)).collect::<Result<_>>()?;
        let (mixed, _) = mix(task, engines.learner, scored)?;
        let credited = credited(task, &mut engines, mixed)?;
        let (mixed, mut groups): (Vec<_>, Vec<_>) =
            credited.into_iter().map(|it| (it.group, it.tokens)).unzip();
        report = Some(update(engines.learner, &mut groups, plan, Step(it))?);
        run.remember(&mixed, Step(it), &mut Metrics::default())?;
    }
    let report = report.expect("the checkpoint is of a step before");
    Ok(ReplayedRunStep {
        step,
        from_step,
        logged_loss,
        loss: loss_of(&report),
        logged_grad_norm,
        grad_norm: report.value("grad_norm").unwrap_or(0.0),
    })
}

fn logged(metrics: &str, run_dir: &Path, step: u64) -> Result<(f64, f64)> {
    let lines = metrics.lines().filter_map(|it| serde_json::from_str::<serde_json::Value>(it).ok());
    let found = lines.into_iter().find(|it| it["step"].as_f64() == Some(step as f64));
    let number = |name: &str| found.as_ref()?.get(name)?.as_f64();
    number("loss").zip(number("grad_norm")).ok_or_else(|| {
        Refusal::input(format!("step {step} is not logged in {}", run_dir.display()))
            .hint("steps are counted from 1; metrics.jsonl has one line for each")
    })
}

fn scored_group(
    table: &PromptTable,
    verifier: &Verifier,
    lines: &[RolloutLine],
) -> Result<ScoredGroup> {
    let id = PromptId(lines[0].prompt_id);
    if table.find(id).is_none_or(|it| it.tokens != lines[0].prompt_tokens) {
        let problem = format!("the rollouts of prompt {} are of another data set", id.0);
        let hint = "the run's data and template must be those it was trained with";
        return Err(Refusal::input(problem).hint(hint));
    }
    let sampled = in_order_of_sampling(lines);
    let part_of = |part: usize| sampled.iter().filter(move |it| it.part == part);
    let mut group = ScoredGroup::empty(id);
    for part in 0..=sampled.iter().map(|it| it.part).max().unwrap_or(0) {
        let rollouts: Vec<Rollout> = part_of(part).map(|it| rollout_of(it)).collect();
        let graded = part_of(part).map(|it| (it.reward(), it.verdict.clone())).collect();
        let requested = part_of(part).find_map(|it| it.requested.filter(|_| part == 0));
        let sampled = SampledGroup::new(id, requested.unwrap_or(rollouts.len()), rollouts);
        group.join(sampled.score_with_rewards(graded, verifier.policy.success_at));
    }
    Ok(group)
}

/// The rollouts of a group as they came back: by their slots, but for those that say their number.
fn in_order_of_sampling(lines: &[RolloutLine]) -> Vec<&RolloutLine> {
    let sampled = lines.iter().filter(|it| !matches!(it.role, Role::Teacher | Role::Replayed));
    let (mut numbered, mut all): (Vec<_>, Vec<_>) = sampled.partition(|it| it.index.is_some());
    numbered.sort_by_key(|it| it.index);
    for it in numbered {
        all.insert(it.index.unwrap_or(all.len()).min(all.len()), it);
    }
    all
}

fn rollout_of(line: &RolloutLine) -> Rollout {
    Rollout {
        tokens: line.tokens.clone(),
        prefix: line.prefix,
        log_probs: line.log_probs.clone(),
        sampler_log_probs: line.sampler_log_probs.clone(),
        ended: line.ended,
        part: line.part,
        context: line.context.unwrap_or_default(),
        privileged: line.context_tokens.clone(),
    }
}
