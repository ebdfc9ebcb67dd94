//! Models on sets of problems, as the study and the demonstration score them.

use std::path::Path;

use hapo_data::{Dataset, TemplateChoice};
use hapo_eval::{EvalModel, EvalSettings, Judge, ProblemResult, Truncated, evaluate};
use hapo_sampler::{ChatFormat, Decoding, KvMemory, Truncation};
use hapo_verify::{Extracting, Extraction, MATH};

use crate::error::{Error, Result};

/// Completions of each problem.
pub(crate) const COMPLETIONS: usize = 2;
/// Their temperature.
pub(crate) const TEMPERATURE: f32 = 0.6;
/// Longest prompt in tokens, template included.
const PROMPT_TOKENS: usize = 4096;

/// Whose random numbers the sets of an evaluation draw.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DrawKeys<'a> {
    /// Each set those of its name.
    OfNames(&'a [String]),
    /// All sets the same: what the demonstration's published table is of.
    Shared,
}

/// How problems are asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EvalFormat {
    pub(crate) template: TemplateChoice<'static>,
    /// Completions of each problem.
    pub(crate) completions: usize,
    /// What a completion that was cut off is worth.
    pub(crate) truncated: Truncated,
}

impl EvalFormat {
    /// Those of the built-in task. A completion that was cut off is graded: a few in a thousand hold an answer.
    pub(crate) const BUILT_IN: Self = Self {
        template: TemplateChoice { name: "chatml", system: None, suffix: None },
        completions: COMPLETIONS,
        truncated: Truncated::Grade,
    };
}

/// Grades answers that are announced or in the last box.
pub(crate) fn grader() -> Extracting<'static> {
    Extracting::new(&MATH, Extraction::Announced)
}

/// A model's results on each of the sets.
pub(crate) fn evaluate_sets(
    (model, asked): (&str, EvalFormat),
    (sets, draws): (&[Dataset], DrawKeys<'_>),
    max_new_tokens: usize,
    seed: u64,
    threads: usize,
) -> Result<Vec<Vec<ProblemResult>>> {
    let mut loaded = hapo_train::open_model(model, PROMPT_TOKENS + max_new_tokens, threads)?;
    let template = hapo_sampler::choose_template(asked.template, model, &loaded.tokenizer_files)
        .map_err(hapo_eval::Error::from)?;
    loaded.model.quicken().map_err(hapo_train::Error::from)?;
    let chat_format = ChatFormat::new(loaded.tokenizer, template, &loaded.model.config().eos)
        .map_err(hapo_eval::Error::from)?;
    let settings = EvalSettings {
        completions: asked.completions,
        decoding: Decoding::Sample { temperature: TEMPERATURE, truncation: Truncation::NONE },
        max_new_tokens,
        max_sequences: 256,
        kv_memory: KvMemory::Auto,
        seed,
        draws: 0,
    };
    let model = EvalModel { model: &loaded.model, chat_format: &chat_format };
    let grader = grader();
    let results = sets.iter().enumerate().map(|(n, it)| {
        let draws = match draws {
            DrawKeys::OfNames(names) => hapo_eval::draws_of(&names[n]),
            DrawKeys::Shared => 0,
        };
        let judge = Judge::new(it, &grader, None)?.with_truncated(asked.truncated);
        evaluate(model, &judge, EvalSettings { draws, ..settings })
    });
    Ok(results.collect::<std::result::Result<_, _>>()?)
}

/// A path as the loader of models takes it.
pub(crate) fn model_name(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| Error::Path { path: path.to_owned() })
}
