//! Shapes of answers.

use hapo_core::Refusal;
use hapo_sampler::FinishReason;
use serde_json::{Value, json};

use crate::fields::Endpoint;

#[derive(Clone, Debug)]
pub(crate) struct Envelope {
    pub(crate) endpoint: Endpoint,
    pub(crate) id: String,
    pub(crate) created: i64,
    pub(crate) model: String,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) prompt: usize,
    pub(crate) completion: usize,
}

impl Usage {
    pub(crate) fn json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt, "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
        })
    }
}

impl Envelope {
    /// The whole answer, with the version of the weights where they have changed.
    pub(crate) fn answer(&self, choices: &[Value], usage: Usage, version: &str) -> Value {
        let mut it = self.json("chat.completion", choices);
        it["usage"] = usage.json();
        if !version.is_empty() {
            it["weight_version"] = version.into();
        }
        it
    }

    pub(crate) fn chunk(&self, choices: &[Value]) -> Value {
        self.json("chat.completion.chunk", choices)
    }

    fn json(&self, of_chat: &str, choices: &[Value]) -> Value {
        let object = match self.endpoint {
            Endpoint::Chat => of_chat,
            Endpoint::Completions => "text_completion",
        };
        json!({
            "id": self.id, "object": object, "created": self.created, "model": self.model,
            "choices": choices,
        })
    }

    pub(crate) fn choice(&self, index: usize, choice: Choice) -> Value {
        let mut it = self.fields(index, choice.log_probs, choice.finish);
        match self.endpoint {
            Endpoint::Chat => {
                let text = choice.text;
                it["message"] = json!({ "role": "assistant", "content": text, "refusal": null });
            }
            Endpoint::Completions => it["text"] = choice.text.into(),
        }
        if let Some(ids) = choice.ids {
            it["token_ids"] = ids.tokens.into();
            it["entropies"] = ids.entropies.into();
        }
        it
    }

    /// A choice of a piece: new text, or the end.
    pub(crate) fn piece(
        &self,
        index: usize,
        text: Option<&str>,
        log_probs: Option<LogProbs>,
        finish: Option<FinishReason>,
    ) -> Value {
        let mut it = self.fields(index, log_probs, finish);
        match self.endpoint {
            Endpoint::Chat => {
                it["delta"] = text.map_or_else(|| json!({}), |text| json!({ "content": text }));
            }
            Endpoint::Completions => it["text"] = text.unwrap_or_default().into(),
        }
        it
    }

    /// The piece that opens a choice, where the endpoint has one.
    pub(crate) fn opening(&self, index: usize) -> Option<Value> {
        (self.endpoint == Endpoint::Chat).then(|| {
            let mut it = self.fields(index, None, None);
            it["delta"] = json!({ "role": "assistant", "content": "" });
            it
        })
    }

    fn fields(
        &self,
        index: usize,
        log_probs: Option<LogProbs>,
        finish: Option<FinishReason>,
    ) -> Value {
        let reason = finish.map(|it| match it {
            FinishReason::EndToken | FinishReason::StopString(_) => "stop",
            FinishReason::Length => "length",
        });
        let log_probs = log_probs.map(|it| it.json(self.endpoint));
        json!({ "index": index, "logprobs": log_probs, "finish_reason": reason })
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Choice {
    pub(crate) text: String,
    pub(crate) log_probs: Option<LogProbs>,
    pub(crate) ids: Option<Ids>,
    pub(crate) finish: Option<FinishReason>,
}

/// The tokens of a completion, and the entropy in nats, at temperature 1, of what each was drawn from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ids {
    pub(crate) tokens: Vec<u32>,
    pub(crate) entropies: Vec<f32>,
}

/// Log-probabilities of tokens, at temperature 1 unless a request asks for those that are sampled from.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogProbs {
    tokens: Vec<TokenDetails>,
    /// Characters before the next token, for the older endpoint.
    offset: usize,
}

#[derive(Clone, Debug)]
struct TokenDetails {
    text: String,
    /// The first token of a text has none.
    log_prob: Option<f32>,
    top: Vec<(String, f32)>,
    offset: usize,
}

impl LogProbs {
    /// The tokens since the last call, if there are any.
    pub(crate) fn take(&mut self) -> Option<Self> {
        let tokens = std::mem::take(&mut self.tokens);
        (!tokens.is_empty()).then_some(Self { tokens, offset: self.offset })
    }

    pub(crate) fn push(
        &mut self,
        tokenizer: &hapo_model::Tokenizer,
        token: u32,
        log_prob: Option<f32>,
        top: &[(u32, f32)],
    ) -> Result<(), Refusal> {
        let text = tokenizer.decode(&[token])?;
        let top = top.iter().map(|(id, log_prob)| Ok((tokenizer.decode(&[*id])?, *log_prob)));
        let top = top.collect::<Result<_, Refusal>>()?;
        let offset = self.offset;
        self.offset += text.chars().count();
        self.tokens.push(TokenDetails { text, log_prob, top, offset });
        Ok(())
    }

    fn json(self, endpoint: Endpoint) -> Value {
        if endpoint == Endpoint::Chat {
            let entry = |text: &str, log_prob: f32| json!({ "token": text, "logprob": number(log_prob), "bytes": bytes(text) });
            let content = self.tokens.iter().map(|it| {
                let mut json = entry(&it.text, it.log_prob.unwrap_or_default());
                let top = it.top.iter().map(|(text, log_prob)| entry(text, *log_prob));
                json["top_logprobs"] = top.collect();
                json
            });
            return json!({ "content": content.collect::<Value>(), "refusal": null });
        }
        let top = |it: &TokenDetails| -> Value {
            if it.log_prob.is_none() {
                return Value::Null;
            }
            // The likelier of two tokens of one text stays.
            let all = it.top.iter().rev();
            all.map(|(text, log_prob)| (text.clone(), number(*log_prob))).collect()
        };
        json!({
            "tokens": self.tokens.iter().map(|it| it.text.as_str()).collect::<Vec<_>>(),
            "token_logprobs": self.tokens.iter().map(|it| it.log_prob.map(number)).collect::<Vec<_>>(),
            "top_logprobs": self.tokens.iter().map(top).collect::<Vec<_>>(),
            "text_offset": self.tokens.iter().map(|it| it.offset).collect::<Vec<_>>(),
        })
    }
}

/// JSON has no infinity; `OpenAI` writes this instead.
fn number(log_prob: f32) -> Value {
    Value::from(f64::from(log_prob).max(-9999.0))
}

/// The token's bytes, where it is whole characters.
fn bytes(text: &str) -> Value {
    if text.contains('\u{FFFD}') { Value::Null } else { Value::from(text.as_bytes()) }
}
