//! The interfaces of the servers that sample: what each is asked, and how its answers are read.
//!
//! Prompts and completions are token ids, so that no second tokenizer is in the way. Field names are those of vLLM's and
//! `SGLang`'s own documentation and sources; `hapo serve` takes vLLM's completions and `SGLang`'s update of weights.

use hapo_core::{RngCounter, random_words};
use hapo_sampler::{Decoding, GroupRequest, SampleSettings};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};

use crate::recipe::RolloutEngine;

/// New weights, as a server hears of them.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    /// Their name, unlike that of any other weights.
    pub(crate) label: String,
    pub(crate) folder: String,
    pub(crate) is_adapter: bool,
}

pub(crate) struct Call {
    pub(crate) path: &'static str,
    pub(crate) body: Value,
    /// False where a refusal changes nothing: what is to go was not there.
    pub(crate) must_succeed: bool,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Completion {
    pub(crate) tokens: Vec<u32>,
    pub(crate) log_probs: Vec<f32>,
    /// Of our own server alone.
    pub(crate) entropies: Vec<f32>,
    pub(crate) end: End,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum End {
    /// By a stop token or string.
    Stop,
    /// At its limit.
    Length,
    /// In the middle: it is lost.
    #[default]
    Lost,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) completions: Vec<Completion>,
    /// The name of the weights that made them, where every answer tells it.
    pub(crate) made_by: Option<String>,
}

impl RolloutEngine {
    /// True if an answer names its weights, or a request the weights that it wants.
    pub(crate) fn names_versions(self, version: &Version) -> bool {
        self != Self::Vllm || version.is_adapter
    }

    /// How to start the server so that its log-probabilities are those that are sampled from.
    pub(crate) fn processed_hint(self) -> &'static str {
        match self {
            Self::Vllm => "start it with --logprobs-mode processed_logprobs",
            Self::Sglang => "start it without SGLANG_RETURN_ORIGINAL_LOGPROB",
            Self::Hapo => "ask a `hapo serve` of this version",
        }
    }

    /// The calls that give a server new weights in the place of `old`.
    pub(crate) fn announcements(self, version: &Version, old: Option<&str>) -> Vec<Call> {
        let Version { label, folder, is_adapter } = version;
        let call = |path, body| Call { path, body, must_succeed: true };
        let (load, unload) = match self {
            Self::Hapo => ("", ""),
            Self::Vllm => ("/v1/load_lora_adapter", "/v1/unload_lora_adapter"),
            Self::Sglang => ("/load_lora_adapter", "/unload_lora_adapter"),
        };
        match self {
            Self::Vllm | Self::Sglang if *is_adapter => {
                let gone = old.into_iter().chain([label.as_str()]).map(|name| Call {
                    path: unload,
                    body: json!({ "lora_name": name }),
                    must_succeed: false,
                });
                let load = call(load, json!({ "lora_name": label, "lora_path": folder }));
                gone.chain([load]).collect()
            }
            Self::Vllm => {
                let body =
                    json!({ "method": "reload_weights", "kwargs": { "weights_path": folder } });
                vec![call("/collective_rpc", body), call("/reset_prefix_cache", json!({}))]
            }
            Self::Sglang | Self::Hapo => vec![call(
                "/update_weights_from_disk",
                json!({ "model_path": folder, "weight_version": label, "flush_cache": true }),
            )],
        }
    }

    /// Where and with which body a server is asked for the completions of a prompt.
    pub(crate) fn question(
        self,
        version: &Version,
        request: &GroupRequest,
        settings: &SampleSettings,
        stop_strings: &[String],
    ) -> (&'static str, Value) {
        let (temperature, top_k, top_p, min_p) = match settings.decoding {
            Decoding::Greedy => (0.0, 0, 1.0, 0.0),
            Decoding::Sample { temperature, truncation: it } => {
                (temperature, it.top_k, it.top_p, it.min_p)
            }
        };
        let limit = settings.max_new_tokens.saturating_sub(request.given);
        let mut body = json!({
            "n": request.completions, "temperature": temperature, "top_p": top_p, "min_p": min_p,
            "stop": stop_strings, "stop_token_ids": settings.stop,
        });
        if self == Self::Sglang {
            body["max_new_tokens"] = limit.into();
            body["top_k"] = if top_k == 0 { json!(-1) } else { json!(top_k) };
            let mut question = json!({
                "input_ids": request.tokens, "sampling_params": body, "return_logprob": true,
            });
            if version.is_adapter {
                question["lora_path"] = version.label.as_str().into();
            }
            return ("/generate", question);
        }
        body["prompt"] = request.tokens.into();
        body["max_tokens"] = limit.into();
        body["top_k"] = top_k.into();
        // The recipe's end tokens end a completion, not those of the server's folder.
        body["ignore_eos"] = true.into();
        body["repetition_penalty"] = 1.into();
        body["logprobs"] = 0.into();
        body["return_token_ids"] = true.into();
        let prompt = request.prompt.0;
        if self == Self::Hapo {
            body["rng"] = json!({
                "seed": settings.seed, "rng_stream": settings.rng_stream, "step": settings.step,
                "prompt": prompt,
            });
            return ("/v1/completions", body);
        }
        let counter = RngCounter { step: settings.step, prompt, ..RngCounter::default() };
        let seed = random_words(settings.seed, settings.rng_stream, counter)[0];
        body["seed"] = (seed >> 2).into();
        if version.is_adapter {
            body["model"] = version.label.as_str().into();
        }
        ("/v1/completions", body)
    }

    /// Reads an answer: its completions, and the name of the weights that made them where it tells it. `None` where a
    /// completion has no token ids or log-probabilities.
    pub(crate) fn answer(self, answer: &Value, version: &Version) -> Option<Answer> {
        let is_whole = !version.is_adapter;
        let (completions, made_by) = match (self, answer) {
            (Self::Sglang, Value::Array(all)) => {
                (all.iter().map(generated).collect(), all.first()?)
            }
            (Self::Sglang, one) => (generated(one).map(|it| vec![it]), one),
            _ => {
                let mut choices: Vec<&Value> = answer["choices"].as_array()?.iter().collect();
                choices.sort_by_key(|it| it["index"].as_u64());
                (choices.into_iter().map(choice).collect(), answer)
            }
        };
        let made_by = match self {
            Self::Hapo => Some(&made_by["weight_version"]),
            Self::Vllm => Some(&made_by["model"]).filter(|_| version.is_adapter),
            Self::Sglang => Some(&made_by["meta_info"]["weight_version"]).filter(|_| is_whole),
        };
        let made_by = made_by.map(|it| it.as_str().unwrap_or("that it began with").to_owned());
        Some(Answer { completions: completions?, made_by })
    }
}

fn choice(it: &Value) -> Option<Completion> {
    Some(Completion {
        tokens: list(&it["token_ids"])?,
        log_probs: list(&it["logprobs"]["token_logprobs"])?,
        entropies: list(&it["entropies"]).unwrap_or_default(),
        end: end(&it["finish_reason"]),
    })
}

/// A completion of `SGLang`'s: rows of log-probability, token and text.
fn generated(it: &Value) -> Option<Completion> {
    let meta = &it["meta_info"];
    let rows: Vec<(f32, u32, IgnoredAny)> = list(&meta["output_token_logprobs"])?;
    Some(Completion {
        tokens: rows.iter().map(|(_, token, _)| *token).collect(),
        log_probs: rows.iter().map(|(log_prob, ..)| *log_prob).collect(),
        entropies: Vec::new(),
        end: end(&meta["finish_reason"]["type"]),
    })
}

fn list<'a, T: Deserialize<'a>>(it: &'a Value) -> Option<Vec<T>> {
    Vec::deserialize(it).ok()
}

fn end(reason: &Value) -> End {
    match reason.as_str() {
        Some("stop") => End::Stop,
        Some("length") => End::Length,
        _ => End::Lost,
    }
}
