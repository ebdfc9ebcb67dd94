//! Models on the built-in task, as the demonstration and the study score them.

use anyhow::Result;
use hapo_data::Dataset;
use hapo_eval::{EvalModel, EvalSettings, ProblemResult, evaluate};

use crate::commands::generate::decoding;
use crate::model;

/// Completions of each problem.
pub(crate) const COMPLETIONS: usize = 2;
/// Their temperature.
pub(crate) const TEMPERATURE: f32 = 0.6;

/// A model's answers to each of the sets.
pub(crate) fn answers(
    model: &str,
    sets: &[Dataset],
    seed: u64,
    threads: usize,
) -> Result<Vec<Vec<ProblemResult>>> {
    let template = hapo_data::find_template("chatml")?;
    let max_new_tokens = hapo_data::task::RESPONSE_LIMIT;
    let (model, chat_format) = model::open(
        model,
        template,
        max_new_tokens,
        crate::device::cpu(threads)?,
    )?;
    let settings = EvalSettings {
        completions: COMPLETIONS,
        decoding: decoding(TEMPERATURE, hapo_sampler::Truncation::NONE)?,
        max_new_tokens,
        max_sequences: 256,
        seed,
    };
    sets.iter()
        .map(|it| {
            Ok(evaluate(
                EvalModel {
                    model: &model,
                    chat_format: &chat_format,
                },
                &hapo_verify::MATH,
                it,
                settings,
            )?)
        })
        .collect()
}
