//! Sampling in this process, on the weights that are being trained.

use std::collections::VecDeque;

use hapo_core::{Draws, Place, PromptId, Purpose, Rollout, SampledGroup};
use hapo_model::{Decoder, KvCache, PromptSlot, SequenceSlot};
use rayon::prelude::*;

use crate::{Decoding, Drawn, Error, draw};

/// A prompt and how many completions of it are wanted.
#[derive(Clone, Copy, Debug)]
pub struct GroupRequest<'a> {
    /// Identity of the prompt: part of the key of every draw.
    pub prompt: PromptId,
    /// The rendered prompt.
    pub tokens: &'a [u32],
    /// N: completions wanted.
    pub completions: usize,
}

/// How to sample.
#[derive(Clone, Debug)]
pub struct SampleSettings<'a> {
    /// How a token is chosen.
    pub decoding: Decoding,
    /// Tokens that end a completion; the one that did is its last token.
    pub stop: &'a [u32],
    /// Longest completion in tokens, the end token included.
    pub max_new_tokens: usize,
    /// Sequences decoded at once.
    pub max_sequences: usize,
    /// Ids below this may be drawn; the model's vocabulary may be padded beyond it.
    pub usable_vocab: usize,
    /// Seed of the draws.
    pub seed: u64,
    /// What the draws are for.
    pub purpose: Purpose,
    /// Training step, or 0.
    pub step: u64,
}

/// One completion with both of its log-probabilities.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    /// The completion, with its end token if it ended.
    pub tokens: Vec<u32>,
    /// Log-probability of each token at the sampling temperature.
    pub log_probs: Vec<f32>,
    /// Log-probability of each token at temperature 1.
    pub log_probs_t1: Vec<f32>,
    /// Whether a stop token ended it.
    pub ended: bool,
}

impl Completion {
    fn new() -> Self {
        Self { tokens: Vec::new(), log_probs: Vec::new(), log_probs_t1: Vec::new(), ended: false }
    }
}

/// Groups of completions as the training step takes them.
pub fn into_groups(requests: &[GroupRequest<'_>], completions: Vec<Vec<Completion>>) -> Vec<SampledGroup> {
    requests
        .iter()
        .zip(completions)
        .map(|(request, group)| {
            let rollouts = group
                .into_iter()
                .map(|it| Rollout { tokens: it.tokens, log_probs: it.log_probs, ended: it.ended })
                .collect();
            SampledGroup::new(request.prompt, request.completions, rollouts)
        })
        .collect()
}

/// A completion under way.
struct Active {
    group: usize,
    rollout: usize,
    slot: SequenceSlot,
    completion: Completion,
}

/// Samples every request's completions; the result is in the order of the requests.
pub fn sample(
    decoder: &Decoder,
    requests: &[GroupRequest<'_>],
    settings: &SampleSettings<'_>,
) -> Result<Vec<Vec<Completion>>, Error> {
    check(requests, settings)?;
    let longest_prompt = requests.iter().map(|it| it.tokens.len()).max().unwrap_or(0);
    let mut cache = KvCache::new(decoder, settings.max_sequences, longest_prompt, settings.max_new_tokens)?;
    let mut done: Vec<Vec<Completion>> =
        requests.iter().map(|it| vec![Completion::new(); it.completions]).collect();
    let mut waiting: VecDeque<usize> = (0..requests.len()).filter(|it| requests[*it].completions > 0).collect();
    let mut active: Vec<Active> = Vec::new();
    let mut logits = Vec::new();
    loop {
        admit(decoder, requests, settings, &mut cache, &mut waiting, &mut active, &mut done)?;
        if active.is_empty() {
            return Ok(done);
        }
        let batch: Vec<(SequenceSlot, u32)> = active
            .iter()
            .map(|it| (it.slot, *it.completion.tokens.last().expect("an active completion has its first token")))
            .collect();
        decoder.decode(&mut cache, &batch, &mut logits)?;
        let vocab = decoder.config().vocab_size;
        let drawn: Vec<Drawn> = active
            .par_iter()
            .zip(logits.par_chunks_exact(vocab))
            .map(|(it, row)| {
                let position = it.completion.tokens.len();
                next_token(row, settings, requests[it.group].prompt, it.rollout, position)
            })
            .collect();
        for (it, drawn) in active.iter_mut().zip(&drawn) {
            push(&mut it.completion, *drawn, settings);
        }
        let mut i = 0;
        while i < active.len() {
            if is_over(&active[i].completion, settings) {
                let it = active.swap_remove(i);
                cache.release(it.slot);
                done[it.group][it.rollout] = it.completion;
            } else {
                i += 1;
            }
        }
    }
}
