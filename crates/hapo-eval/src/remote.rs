//! An evaluation of a model behind an OpenAI-compatible server.

use std::collections::BTreeMap;

use futures_util::StreamExt;
use hapo_core::{CounterRng, RngCounter, RngStream};
use hapo_teacher::{Client, Question};
use serde_json::Map;

use crate::error::Error;
use crate::graded::RawCompletion;
use crate::plan::EvalPlan;
use crate::session::EvalSession;

/// One completion of one problem.
#[derive(Clone, Copy)]
struct Slot<'a> {
    set: usize,
    problem: usize,
    completion: usize,
    text: &'a str,
}

impl EvalSession<'_> {
    /// Requests the completions that are missing from a server, as many at once as the client allows.
    pub async fn request(&mut self, client: &Client) -> Result<(), Error> {
        let plan = self.plan();
        let mut slots = Vec::new();
        for (n, set) in plan.sets.iter().enumerate() {
            for problem in self.missing(n) {
                let text = set.dataset.examples[problem].problem.as_str();
                slots.extend((0..set.completions).map(|completion| Slot {
                    set: n,
                    problem,
                    completion,
                    text,
                }));
            }
        }
        let mut replies = futures_util::stream::iter(slots)
            .map(|slot| async move { (slot, request(client, plan, slot).await) })
            .buffer_unordered(client.retry_policy().concurrency);
        let mut incomplete: BTreeMap<(usize, usize), BTreeMap<usize, RawCompletion>> =
            BTreeMap::new();
        while let Some((slot, completion)) = replies.next().await {
            let key = (slot.set, slot.problem);
            let of_problem = incomplete.entry(key).or_default();
            of_problem.insert(slot.completion, completion?);
            if of_problem.len() == plan.sets[slot.set].completions {
                let completions = incomplete.remove(&key).unwrap_or_default();
                self.add(slot.set, slot.problem, completions.into_values().collect())?;
            }
        }
        self.flush()
    }
}

async fn request(client: &Client, plan: &EvalPlan, slot: Slot<'_>) -> Result<RawCompletion, Error> {
    let user = match plan.prompt.as_str() {
        "" => slot.text.to_owned(),
        instruction => format!("{}\n{instruction}", slot.text),
    };
    let counter = RngCounter {
        step: slot.set as u64,
        prompt: slot.problem as u64,
        rollout: slot.completion as u64,
        position: u64::MAX,
    };
    let question = Question {
        model: &plan.model,
        system: None,
        user: &user,
        temperature: f64::from(plan.temperature),
        top_p: f64::from(plan.top_p),
        max_tokens: Some(plan.max_tokens as u64),
        // Servers take 31 bits.
        seed: CounterRng::new(plan.seed, RngStream::Evaluate, counter).word() >> 33,
        extra: &Map::new(),
    };
    let exchange = client.ask(&question, question.seed).await?;
    let reply = exchange.reply.map_err(|failure| {
        let (address, requests, reason) = (client.address(), exchange.requests, failure.reason);
        let asked = format!("problem {} after {requests} requests: {reason}", slot.problem);
        Error::NoReply(format!("{address} has no answer for {asked}"))
    })?;
    Ok(RawCompletion {
        text: reply.text,
        tokens: reply.completion_tokens.map(|it| it as usize),
        ended: reply.finish_reason.as_deref() != Some("length"),
    })
}
