//! How a problem becomes a prompt's tokens, and a completion's tokens text: the same for training
//! and evaluation. Token in, token out: a sampled sequence is never tokenised again.

use hapo_data::{EndOfTurn, Template};
use hapo_model::Tokenizer;

use crate::Error;
use crate::text::first_stop;

/// A tokenizer and a template, put together.
#[derive(Debug)]
pub struct Dialogue {
    /// The model's tokenizer.
    pub tokenizer: Tokenizer,
    /// The prompt template.
    pub template: &'static Template,
    /// The token that ends an assistant's turn, and every teacher trajectory (D10).
    pub end_token: u32,
    /// Tokens at which sampling stops: the end token and the model's own.
    pub stop: Vec<u32>,
}

impl Dialogue {
    /// `eos` are the ids that the model's folder names.
    pub fn new(
        tokenizer: Tokenizer,
        template: &'static Template,
        eos: &[u32],
    ) -> Result<Self, Error> {
        let missing = |what: String| Error::Template {
            template: template.name,
            missing: what,
        };
        let end_token = match template.end_of_turn {
            EndOfTurn::Token(token) => tokenizer
                .id(token)
                .ok_or_else(|| missing(format!("the tokenizer has no token `{token}`")))?,
            EndOfTurn::TokenizerEos => *eos
                .first()
                .ok_or_else(|| missing("the model names no eos_token_id".to_owned()))?,
        };
        let mut stop = vec![end_token];
        stop.extend(eos.iter().filter(|it| **it != end_token));
        Ok(Self {
            tokenizer,
            template,
            end_token,
            stop,
        })
    }

    /// The tokens of a problem's prompt.
    pub fn prompt(&self, problem: &str) -> Result<Vec<u32>, Error> {
        Ok(self
            .tokenizer
            .encode(&hapo_data::render(self.template, problem))?)
    }

    /// The text of a completion before the stop string that ended it.
    pub fn text_before(
        &self,
        completion: &[u32],
        stop_strings: &[String],
    ) -> Result<String, Error> {
        let mut text = self.text(completion)?;
        if let Some((at, _)) = first_stop(&text, stop_strings) {
            text.truncate(at);
        }
        Ok(text)
    }

    /// The text of a completion, without the token that ends it.
    pub fn text(&self, completion: &[u32]) -> Result<String, Error> {
        let text = match completion.split_last() {
            Some((last, rest)) if self.stop.contains(last) => rest,
            _ => completion,
        };
        Ok(self.tokenizer.decode(text)?)
    }
}
