//! Expectations of a run from a look at its first prompts before its first step: how often it
//! succeeds, fails whole groups, misses the box or the end token, and what a step will cost.
//!
//! The price is at most two steps' time: the sampling of one, and the training of a quarter of one, which is run whole
//! where a step would pass groups over. Its draws are of the stream that `hapo generate` and the like draw
//! from, so the run's are not moved.

use std::time::Instant;

use hapo_core::{BatchStatistics, RngStream, ScoredGroup, Step};
use hapo_kernels::Device;
use hapo_run::{Preflight, ResponseShares};
use hapo_verify::Extraction;

use crate::problems::prompts::Prompt;
use crate::step::{SampledTokens, Task, credited, mix, requests, score};
use crate::{Result, grading::AnswerCounts, observe::memory, pack::TokenGroup, run::Run};

/// As [`Run::preflight`], and `None` for a run that grades nothing. `begins` is told how many prompts and responses before
/// it starts.
pub(crate) fn preflight<D: Device>(
    run: &mut Run<D>,
    prompts: usize,
    begins: impl FnOnce(usize, usize),
) -> Result<Option<Preflight>> {
    let (wants_teacher, seeks_answers) = (run.wants_teacher(), run.grader.grader.reads_answers());
    let found = run.task(Step(1)).filter(|it| prompts > 0 && it.0.table.is_graded());
    let Some((task, mut engines, _)) = found else { return Ok(None) };
    let Task { table, order, plan, .. } = task;
    let recipe = plan.recipe();
    let visited = (1..=order.steps_per_epoch()).flat_map(|it| order.of_step(it));
    let chosen = table.at(&visited.take(prompts.min(order.per_step)).collect::<Vec<_>>());
    begins(chosen.len(), chosen.len() * task.group_size());
    let verifier = task.verifier.reliable();
    // An answer counts only in a box or behind words that announce it.
    let is_marked = matches!(recipe.data.extraction, Extraction::Boxed | Extraction::Announced);
    let seeks_answers = seeks_answers && is_marked;
    let started = Instant::now();
    // Every slot is sampled behind the plain prompt: neither the gate nor the method is asked yet.
    let requests = requests(&chosen, task.group_size());
    let sampling = Task { step: Step(0), ..task }.sampling(RngStream::Generate);
    let sampled = engines.sample(&requests, &sampling)?;
    let sampling = started.elapsed().as_secs_f64();

    let mut tokens = SampledTokens::default();
    tokens.add(&sampled);
    let mut answers = AnswerCounts::default();
    let scored = score(&chosen, sampled, &verifier, Step(0), &mut answers)?;
    let rewards: Vec<Vec<f64>> = scored.iter().map(ScoredGroup::rewards).collect();
    let equal = rewards.iter().filter(|it| it.windows(2).all(|pair| pair[0] == pair[1])).count();
    let all: Vec<f64> = rewards.concat();
    let is_graded = all.iter().any(|it| *it != 0.0 && *it != 1.0);
    let (mixed, dropped) = mix(task, engines.learner, scored)?;
    let mixed = credited(task, &mut engines, mixed)?;
    let statistics = BatchStatistics::of(mixed.iter().map(|it| (&it.group, &it.credit)), dropped);

    // Some groups are run forward and backward, signal or not: that is what a step costs at most.
    let first = mixed.into_iter().take((chosen.len() / 4).clamp(1, 8));
    let groups: Vec<_> = first.map(|it| TokenGroup { has_signal: true, ..it.tokens }).collect();
    let started = Instant::now();
    let learner = engines.learner;
    learner.gradient(recipe.loss(), &groups, plan.batching())?;
    let training = started.elapsed().as_secs_f64();

    let per_step = order.per_step as f64;
    let share = |part: usize, whole: usize| part as f64 / whole.max(1) as f64;
    let teachers = table.prompts.iter().filter_map(Prompt::teacher);
    let teachers: Vec<usize> = teachers.map(|it| it.tokens().len()).collect();
    let longest = teachers.iter().copied().max().unwrap_or(0);
    let responses = tokens.lengths.len();
    let ended = responses - tokens.truncated;
    Ok(Some(Preflight {
        prompts: chosen.len(),
        group_size: task.group_size(),
        success: share(statistics.correct, responses),
        all_fail: share(statistics.all_fail, chosen.len()),
        mean_reward: is_graded.then(|| all.iter().sum::<f64>() / all.len() as f64),
        shares: ResponseShares {
            truncated: 1.0 - share(ended, responses),
            boxed: share(answers.boxed, responses),
            announced: share(answers.announced, responses),
            read: share(responses - statistics.unparsable, responses),
            without_signal: share(equal, rewards.len()),
            all_solved: share(statistics.all_solved, chosen.len()),
            seeks_answers,
            limit: recipe.sampling.max_new_tokens,
            ..ResponseShares::default()
        },
        ended: share(ended, responses),
        response_tokens: share(tokens.lengths.iter().sum(), responses),
        teacher_coverage: share(teachers.len(), table.prompts.len()),
        teacher_tokens: (share(teachers.iter().sum(), teachers.len()), longest),
        step_seconds: sampling * per_step / chosen.len().max(1) as f64
            + training * per_step * recipe.optim.passes as f64 / groups.len().max(1) as f64,
        steps: recipe.steps,
        state_bytes: learner.state_bytes(),
        resident_bytes: memory::resident_bytes().unwrap_or(0),
        wants_teacher,
    }))
}
