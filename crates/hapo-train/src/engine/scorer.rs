//! Log-probabilities of given tokens: the third place where a step meets a machine, beside a sampler and a learner.
//!
//! A [`Scorer`] is another model than the one in training. It runs the forward pass of training, so that the same weights
//! give the same bits. The price is a tape of its own with the reference's activations.

use hapo_core::TokenScores;
use hapo_kernels::Device;
use hapo_model::{ActivationCheckpointing, Model, PackedBatch, Tape};

use crate::Result;

#[derive(Clone, Copy, Debug)]
pub struct ScoreRequest<'a> {
    /// The prompt that it is read behind; never empty.
    pub prompt: &'a [u32],
    pub response: &'a [u32],
    /// 1 ÷ the temperature of the log-probabilities: that of what they are compared with (D38).
    pub inverse_temperature: f32,
    /// Number of likeliest tokens in each place, with their log-probabilities at temperature 1; 0 for none.
    pub top: usize,
}

impl<'a> ScoreRequest<'a> {
    /// A request without likeliest tokens.
    pub fn new(prompt: &'a [u32], response: &'a [u32], inverse_temperature: f32) -> Self {
        Self { prompt, response, inverse_temperature, top: 0 }
    }
}

#[derive(Debug)]
pub(crate) struct Scorer<D: Device> {
    model: Model<D>,
    tape: Tape<D>,
    micro_batch_tokens: usize,
}

impl<D: Device> Scorer<D> {
    /// Scores with a model, at most `micro_batch_tokens` tokens at once (one request may exceed it alone).
    pub(crate) fn new(model: Model<D>, micro_batch_tokens: usize) -> Self {
        let tape = Tape::new(ActivationCheckpointing::Layers);
        Self { model, tape, micro_batch_tokens }
    }

    pub(crate) fn score(&mut self, requests: &[ScoreRequest]) -> Result<Vec<TokenScores>> {
        score_with(&self.model, &mut self.tape, requests, self.micro_batch_tokens)
    }
}

/// Scores requests with a model. Requests of one prompt that follow each other share it while they fit.
pub(crate) fn score_with<D: Device>(
    model: &Model<D>,
    tape: &mut Tape<D>,
    requests: &[ScoreRequest],
    micro_batch_tokens: usize,
) -> Result<Vec<TokenScores>> {
    let mut scores = Vec::with_capacity(requests.len());
    let mut left = requests;
    while !left.is_empty() {
        let (packed, taken) = pack_first(left, micro_batch_tokens);
        let outputs = tape.forward(model, &packed)?;
        let mut first = 0;
        for request in &left[..taken] {
            let targets = first..first + request.response.len();
            first = targets.end;
            let mut top = Vec::new();
            if request.top > 0 {
                let tokens = [request.prompt, request.response].concat();
                let scored = hapo_sampler::score(model, tape, &tokens, request.top)?;
                top.extend(scored.into_iter().skip(request.prompt.len()).map(|it| it.top));
            }
            scores.push(TokenScores {
                log_probs: outputs.log_probs[targets.clone()].to_vec(),
                entropies: outputs.entropies[targets].to_vec(),
                top,
            });
        }
        left = &left[taken..];
    }
    Ok(scores)
}

/// The first requests that fit, at least one, and their number.
fn pack_first(requests: &[ScoreRequest], micro_batch_tokens: usize) -> (PackedBatch, usize) {
    let mut packed = PackedBatch::default();
    let mut prompt: Option<(&[u32], usize)> = None;
    for (index, request) in requests.iter().enumerate() {
        let shared = prompt.filter(|it| it.0 == request.prompt);
        let read = if shared.is_some() { 0 } else { request.prompt.len() };
        let tokens = packed.tokens.len() + read + request.response.len().saturating_sub(1);
        if index > 0 && tokens > micro_batch_tokens {
            return (packed, index);
        }
        let segment = shared.map_or_else(|| packed.push(request.prompt, None), |it| it.1);
        prompt = Some((request.prompt, segment));
        packed.push_response(segment, request.response, request.inverse_temperature);
    }
    (packed, requests.len())
}
