//! The requests to an engine, and its events.

use hapo_core::{PromptId, RngStream};
use hapo_kernels::{Device, DrawnToken};
use hapo_model::{KvCache, Model};

use crate::draw::{BadField, Decoding, refuse};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineLimits {
    /// Sequences that get a token per step.
    pub max_sequences: usize,
    /// Tokens of the key/value cache, prompts and completions together; a prompt is stored once for
    /// all its completions, each rounded up by [`hapo_model::KvCache::cost`].
    pub cache_tokens: usize,
    /// Most prompt tokens read per step: the delay that a new prompt can add between two tokens of the others. Longer
    /// prompts are read in pieces.
    pub prefill_tokens: usize,
    /// Ids below this may be drawn; the model's vocabulary may be padded beyond it.
    pub usable_vocab: usize,
}

/// Key of a request's random numbers: the same key gives the same completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RngKey {
    pub seed: u64,
    pub rng_stream: RngStream,
    /// Training step, or 0.
    pub step: u64,
    pub prompt: PromptId,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub prompt: Vec<u32>,
    pub completions: usize,
    pub decoding: Decoding,
    /// Longest completion in tokens, the end token included.
    pub max_tokens: usize,
    /// Tokens that end a completion; the one that did is its last token.
    pub stop_tokens: Vec<u32>,
    /// Strings that end a completion, looked for in its text across tokens. The token that completed
    /// one is kept in full; the text ends before the string.
    pub stop_strings: Vec<String>,
    /// Events carry text of this kind; with stop strings they always carry one.
    pub text: Option<SpecialTokens>,
    pub top_log_probs: usize,
    pub rng: RngKey,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpecialTokens {
    #[default]
    WrittenOut,
    LeftOut,
}

/// A request in an engine, never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub(crate) u64);

#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub request: RequestId,
    pub completion: usize,
    pub kind: EventKind,
}

#[derive(Clone, Debug, PartialEq)]
pub enum EventKind {
    Token(NewToken),
    /// The completion has finished; its last token came just before.
    Finished {
        reason: FinishReason,
        /// Text that was held back until it was certain.
        text: String,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct NewToken {
    /// The token with its log-probabilities under the whole distribution, at the sampling temperature
    /// ([`DrawnToken::log_prob`]) and at temperature 1 ([`DrawnToken::log_prob_t1`]).
    pub drawn: DrawnToken,
    /// Text that is certain now: complete characters, no end token, nothing that a stop string may take
    /// back. Often empty, or longer than the token.
    pub text: String,
    /// The most likely tokens and their log-probabilities at temperature 1, the likeliest first (the lower id on ties);
    /// as many as requested.
    pub top: Vec<(u32, f32)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FinishReason {
    EndToken,
    /// Its text contains this stop string of the request.
    StopString(usize),
    #[default]
    Length,
}

impl FinishReason {
    pub fn name(self) -> &'static str {
        match self {
            Self::EndToken => "end_token",
            Self::StopString(_) => "stop_string",
            Self::Length => "length",
        }
    }
}

impl Request {
    pub(crate) fn wants_text(&self) -> bool {
        self.text.is_some() || !self.stop_strings.is_empty()
    }

    /// Refuses a request that could never be served, by the field that forbids it.
    pub(crate) fn check<D: Device>(
        &self,
        model: &Model<D>,
        cache: &KvCache<D>,
        has_tokenizer: bool,
    ) -> Result<(), BadField> {
        let (length, vocabulary) = (self.prompt.len(), model.config().vocab_size);
        if self.prompt.is_empty() {
            return refuse("prompt", "at least one token", "none");
        }
        if let Some(row) = self.prompt.iter().position(|t| *t as usize >= vocabulary) {
            let token = self.prompt[row];
            let expected = format!("tokens below {vocabulary}, the size of the vocabulary");
            return refuse("prompt", expected, format!("{token} at position {row}"));
        }
        if self.max_tokens == 0 {
            return refuse("max_tokens", "at least 1", "0");
        }
        // The last token is never fed.
        let positions = model.positions();
        if length > positions || self.max_tokens - 1 > positions - length {
            let expected = format!("prompt and completion within {positions} tokens");
            let got = format!("a prompt of {length} and {} more", self.max_tokens);
            return refuse("max_tokens", expected, got);
        }
        let needed = KvCache::<D>::cost(length) + KvCache::<D>::cost(self.max_tokens);
        if needed > cache.capacity() {
            let expected = format!("a cache of at least {needed} tokens");
            return refuse("max_tokens", expected, format!("one of {}", cache.capacity()));
        }
        self.decoding.check()?;
        if self.stop_strings.iter().any(String::is_empty) {
            return refuse("stop", "strings of at least one character", "an empty one");
        }
        if self.wants_text() && !has_tokenizer {
            return refuse("stop", "an engine with a tokenizer", "one without");
        }
        Ok(())
    }
}
