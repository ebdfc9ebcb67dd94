//! Any sampler as a teacher: the same prompts, rules and journal as a server's, without requests.

use std::time::{Instant, SystemTime};

use crate::error::Error;
use crate::journal::Attempt;
use crate::judgement::Outcome;
use crate::session::Session;

/// A prompt to sample completions for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalRequest {
    /// Its index.
    pub prompt: usize,
    /// The user's turn.
    pub question: String,
    /// How many completions are needed, those that are known included.
    pub completions: usize,
}

/// A completion of a [`LocalRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalCompletion {
    /// Its text.
    pub text: String,
    /// The completion ended with a stop token.
    pub ended: bool,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Its tokens.
    pub completion_tokens: u64,
}

/// Samples until the session needs nothing more, some prompts at a time. `sample` gives the completions of each
/// request; a completion may depend on its prompt and its own index alone, so known ones come out again. `finished` is
/// called after each attempt.
///
/// # Errors
/// Those of `sample`; [`Error::Run`] of the journal.
pub fn teach_with<E: From<Error>>(
    session: &mut Session<'_>,
    mut sample: impl FnMut(&[LocalRequest]) -> Result<Vec<Vec<LocalCompletion>>, E>,
    mut finished: impl FnMut(Outcome),
) -> Result<(), E> {
    const PROMPTS_AT_ONCE: usize = 16;
    loop {
        let requests: Vec<LocalRequest> = (0..session.dataset().examples.len())
            .filter_map(|prompt| {
                let last = *session.wanted(prompt).last()?;
                Some(LocalRequest {
                    prompt,
                    question: session.question(prompt),
                    completions: last as usize + 1,
                })
            })
            .take(PROMPTS_AT_ONCE)
            .collect();
        if requests.is_empty() {
            return Ok(session.flush()?);
        }
        let started = Instant::now();
        let sampled = sample(&requests)?;
        let milliseconds = started.elapsed().as_millis() as u64;
        for (request, completions) in requests.iter().zip(&sampled) {
            for attempt in session.wanted(request.prompt) {
                let made = attempt_of(&completions[attempt as usize], milliseconds);
                finished(session.record(request.prompt, attempt, &made)?);
            }
        }
    }
}

fn attempt_of(completion: &LocalCompletion, milliseconds: u64) -> Attempt {
    let finish_reason = if completion.ended { "stop" } else { "length" };
    Attempt {
        text: Some(completion.text.clone()),
        failed: None,
        finish_reason: Some(finish_reason.to_owned()),
        served_by: None,
        prompt_tokens: Some(completion.prompt_tokens),
        completion_tokens: Some(completion.completion_tokens),
        requests: 1,
        milliseconds,
        at: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs(),
    }
}
