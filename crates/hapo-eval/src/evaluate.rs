//! Completions of a set of problems by a model, graded.

use std::collections::BTreeMap;

use hapo_core::{PromptId, Refusal, Remedy, RngStream};
use hapo_data::Dataset;
use hapo_kernels::Device;
use hapo_model::Model;
use hapo_sampler::{ChatFormat, Decoding, GroupRequest, InGroup, KvMemory, SampleSettings};

use crate::graded::{Judge, ProblemResult, RawCompletion};
use crate::statistics::{Estimate, estimate};

/// How completions are sampled.
#[derive(Clone, Copy, Debug)]
pub struct EvalSettings {
    /// k: completions of each problem.
    pub completions: usize,
    /// How tokens are drawn.
    pub decoding: Decoding,
    /// Longest completion in tokens.
    pub max_new_tokens: usize,
    /// Sequences decoded at once.
    pub max_sequences: usize,
    /// Memory of keys and values.
    pub kv_memory: KvMemory,
    /// Seed of the draws and of the intervals.
    pub seed: u64,
    /// Key of the draws beside the seed: sets of different keys share no random numbers.
    pub draws: u64,
}

/// A model under evaluation.
#[derive(Clone, Debug)]
pub struct EvalModel<'a, D: Device> {
    /// The model.
    pub model: &'a Model<D>,
    /// The format of its prompts.
    pub chat_format: &'a ChatFormat,
}

impl<D: Device> Copy for EvalModel<'_, D> {}

/// The rendered prompts of a data set.
pub(crate) fn prompts_of(
    chat_format: &ChatFormat,
    dataset: &Dataset,
) -> Result<Vec<Vec<u32>>, Refusal> {
    let prompts = dataset.examples.iter().map(|problem| chat_format.prompt_of(problem));
    Ok(prompts.collect::<Result<_, _>>()?)
}

/// Samples completions for the problems at `indices` of all `prompts`, and hands over each problem's completions as
/// soon as all are there. A completion depends on its problem's index and its own only.
///
pub(crate) fn sample_problems<D: Device>(
    model: EvalModel<'_, D>,
    prompts: &[Vec<u32>],
    indices: &[usize],
    settings: EvalSettings,
    mut finished: impl FnMut(usize, Vec<RawCompletion>) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let EvalModel { model, chat_format } = model;
    let request = |&index: &usize| {
        GroupRequest::new(PromptId(index as u64), &prompts[index], settings.completions)
    };
    let requests: Vec<GroupRequest<'_>> = indices.iter().map(request).collect();
    let sampling = SampleSettings {
        decoding: settings.decoding,
        stop: &chat_format.stop,
        max_new_tokens: settings.max_new_tokens,
        max_sequences: settings.max_sequences,
        kv_memory: settings.kv_memory,
        usable_vocab: chat_format.tokenizer.vocab_size(),
        seed: settings.seed,
        rng_stream: RngStream::Evaluate,
        step: settings.draws,
    };
    let text = |it: &hapo_core::Rollout| {
        Ok(RawCompletion {
            text: chat_format.text(&it.tokens)?,
            tokens: Some(it.tokens.len()),
            ended: it.ended,
        })
    };
    hapo_sampler::sample_each(model, &requests, &sampling, |index, sampled| {
        let completions =
            sampled.group.rollouts().iter().map(text).collect::<Result<_, Refusal>>()?;
        finished(indices[index], completions)
    })
}

/// Names the problem of `dataset` where the sampler refuses one of its groups.
pub(crate) fn of_problem(refusal: Refusal, dataset: &Dataset, indices: &[usize]) -> Refusal {
    match refusal.cause::<InGroup>() {
        Some(InGroup { index, source }) => {
            let problem = format!("problem {}: {source}", dataset.examples[indices[*index]].id);
            Refusal::input(problem).hint(Remedy::ShortenCompletions)
        }
        None => refusal,
    }
}

/// Samples completions for every problem of a judge's data set, who grades them.
pub fn evaluate<D: Device>(
    model: EvalModel<'_, D>,
    judge: &Judge<'_>,
    settings: EvalSettings,
) -> Result<Vec<ProblemResult>, Refusal> {
    let dataset = judge.dataset();
    let indices: Vec<usize> = (0..dataset.examples.len()).collect();
    let mut results = BTreeMap::new();
    let prompts = prompts_of(model.chat_format, dataset)?;
    sample_problems(model, &prompts, &indices, settings, |index, completions| {
        results.insert(index, judge.grade(index, completions)?);
        Ok(())
    })
    .map_err(|refusal| of_problem(refusal, dataset, &indices))?;
    Ok(results.into_values().collect())
}

/// avg@k with its interval over problems; `None` for no problems.
pub fn average(results: &[ProblemResult], seed: u64) -> Option<Estimate> {
    let values: Vec<f64> = results.iter().map(ProblemResult::success).collect();
    estimate(&values, seed)
}
