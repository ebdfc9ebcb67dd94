//! Answers of a model to a set of problems, graded.

use hapo_core::{PromptId, Purpose};
use hapo_data::Dataset;
use hapo_kernels::Cpu;
use hapo_model::Model;
use hapo_sampler::{Decoding, Dialogue, GroupRequest, SampleSettings};
use hapo_verify::{Gold, GoldError, Grader};
use serde::Serialize;

use crate::statistics::{Estimate, estimate};

/// How to ask.
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
    /// Seed of the draws and of the intervals.
    pub seed: u64,
}

/// What a model said to one problem.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answers {
    /// Id of the problem.
    pub id: String,
    /// The gold answer.
    pub gold: String,
    /// The completions.
    pub completions: Vec<Answer>,
}

/// One completion, graded.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// Its text.
    pub text: String,
    /// `correct`, `wrong` or `unparsable`.
    pub verdict: &'static str,
    /// Its length in tokens.
    pub tokens: usize,
    /// Whether it ended by itself.
    pub ended: bool,
}

impl Answers {
    /// Share of the completions that are correct: the problem's part of avg@k.
    pub fn success(&self) -> f64 {
        let correct = self
            .completions
            .iter()
            .filter(|it| it.verdict == "correct")
            .count();
        correct as f64 / self.completions.len().max(1) as f64
    }
}

/// Why an evaluation cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The sampler could not go on.
    #[error(transparent)]
    Sampler(#[from] hapo_sampler::Error),
    /// Problems that cannot be read or made.
    #[error(transparent)]
    Data(#[from] hapo_data::Error),
    /// A gold answer that the grader cannot read.
    #[error("the grader cannot read the gold answer `{gold}` of problem {id}: {reason}")]
    Gold {
        /// Id of the problem.
        id: String,
        /// Its gold answer.
        gold: String,
        /// The grader's reason.
        reason: GoldError,
    },
}

/// Asks a model every problem of a data set and grades what it says.
pub fn evaluate(
    model: &Model<Cpu>,
    dialogue: &Dialogue,
    grader: &Grader,
    dataset: &Dataset,
    settings: EvalSettings,
) -> Result<Vec<Answers>, Error> {
    let golds = dataset
        .examples
        .iter()
        .map(|it| {
            Gold::new(grader, &it.answer).map_err(|reason| Error::Gold {
                id: it.id.clone(),
                gold: it.answer.clone(),
                reason,
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    let prompts = dataset
        .examples
        .iter()
        .map(|it| dialogue.prompt_of(it))
        .collect::<Result<Vec<_>, _>>()?;
    let requests: Vec<GroupRequest<'_>> = prompts
        .iter()
        .zip(0..)
        .map(|(tokens, id)| GroupRequest {
            prompt: PromptId(id),
            tokens,
            completions: settings.completions,
        })
        .collect();
    let sampling = SampleSettings {
        decoding: settings.decoding,
        stop: &dialogue.stop,
        max_new_tokens: settings.max_new_tokens,
        max_sequences: settings.max_sequences,
        usable_vocab: dialogue.tokenizer.vocab_size(),
        seed: settings.seed,
        purpose: Purpose::Evaluate,
        step: 0,
    };
    let sampled = hapo_sampler::sample(model, &requests, &sampling)?;
    dataset
        .examples
        .iter()
        .zip(&golds)
        .zip(sampled)
        .map(|((example, gold), completions)| {
            let graded = completions.into_iter().map(|it| {
                let text = dialogue.text(&it.tokens)?;
                let verdict = gold.judge(&text).verdict.name();
                Ok(Answer {
                    text,
                    verdict,
                    tokens: it.tokens.len(),
                    ended: it.ended,
                })
            });
            Ok(Answers {
                id: example.id.clone(),
                gold: example.answer.clone(),
                completions: graded.collect::<Result<_, hapo_sampler::Error>>()?,
            })
        })
        .collect()
}

/// avg@k with its interval over problems; `None` for no problems.
pub fn average(answers: &[Answers], seed: u64) -> Option<Estimate> {
    let values: Vec<f64> = answers.iter().map(Answers::success).collect();
    estimate(&values, seed)
}
