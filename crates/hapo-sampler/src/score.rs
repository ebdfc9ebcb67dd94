//! Log-probabilities of a text that is there already.

use hapo_core::Refusal;
use hapo_kernels::{Device, log_prob, row_stats};
use hapo_model::{Model, Reading, Tape};
use rayon::prelude::*;

use crate::engine::top;

/// A token of a text, given those before it.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoredToken {
    pub token: u32,
    /// Its log-probability at temperature 1, under the whole distribution; the first token has none.
    pub log_prob: Option<f32>,
    /// The most likely tokens in its place, as in [`NewToken::top`](crate::NewToken::top).
    pub top: Vec<(u32, f32)>,
}

/// Scores a sequence, with the `most_likely` likeliest tokens of each place.
pub fn score<D: Device>(
    model: &Model<D>,
    tape: &mut Tape<D>,
    tokens: &[u32],
    most_likely: usize,
) -> Result<Vec<ScoredToken>, Refusal> {
    let mut scoring = Scoring::begin(model, tape, tokens, most_likely)?;
    loop {
        if let Some(it) = scoring.advance(model, tape)? {
            return Ok(it);
        }
    }
}

/// A sequence that is scored by one forward pass, a piece at a time. The logits are held in chunks, so memory grows with
/// the sequence by its activations alone.
#[derive(Debug)]
pub struct Scoring<D: Device> {
    tokens: Vec<u32>,
    most_likely: usize,
    reading: Reading<D>,
    scored: Vec<ScoredToken>,
}

impl<D: Device> Scoring<D> {
    /// Begins with a tape that reads nothing else until this is done or given up.
    pub fn begin(
        model: &Model<D>,
        tape: &mut Tape<D>,
        tokens: &[u32],
        most_likely: usize,
    ) -> Result<Self, Refusal> {
        let reading = tape.begin(model, tokens)?;
        let first = tokens.first();
        let first = first.map(|it| ScoredToken { token: *it, log_prob: None, top: Vec::new() });
        let mut scored = Vec::with_capacity(tokens.len() + 1);
        scored.extend(first);
        Ok(Self { tokens: tokens.to_vec(), most_likely, reading, scored })
    }

    /// Computes the next piece; all tokens, once it was the last.
    pub fn advance(
        &mut self,
        model: &Model<D>,
        tape: &mut Tape<D>,
    ) -> Result<Option<Vec<ScoredToken>>, Refusal> {
        let vocabulary = model.config().vocab_size;
        let Self { tokens, most_likely, reading, scored } = self;
        let more = tape.advance(model, reading, |chunk| {
            // The row of a token predicts the next one, and the last row none that is there.
            let next = &tokens[scored.len()..];
            let one = |(row, token): (&[f32], &u32)| ScoredToken {
                token: *token,
                log_prob: Some(log_prob(row_stats(row, 1.0), 1.0, row[*token as usize])),
                top: top(row, *most_likely),
            };
            let rows: Vec<&[f32]> = chunk.chunks_exact(vocabulary).collect();
            let mut now: Vec<ScoredToken> = rows.into_par_iter().zip(next).map(one).collect();
            scored.append(&mut now);
        })?;
        Ok((!more).then(|| std::mem::take(scored)))
    }
}
