//! An evaluation of a model behind an OpenAI-compatible server.

use std::collections::BTreeMap;

use futures_util::StreamExt;
use hapo_core::{CounterRng, Refusal, RngCounter, RngStream};
use hapo_data::Example;
use hapo_teacher::{Client, Question};
use serde_json::{Map, Value, json};

use crate::graded::RawCompletion;
use crate::plan::EvalPlan;
use crate::session::EvalSession;

/// One completion of one problem.
#[derive(Clone, Copy)]
struct Slot<'a> {
    set: usize,
    problem: usize,
    completion: usize,
    example: &'a Example,
}

impl EvalSession<'_> {
    /// Requests the completions that are missing from a server, as many at once as the client allows.
    pub async fn request(&mut self, client: &Client) -> Result<(), Refusal> {
        let plan = self.plan();
        let mut slots = Vec::new();
        for (n, set) in plan.sets.iter().enumerate() {
            for problem in self.missing(n) {
                let example = &set.dataset.examples[problem];
                slots.extend((0..set.completions).map(|completion| Slot {
                    set: n,
                    problem,
                    completion,
                    example,
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

async fn request(
    client: &Client,
    plan: &EvalPlan,
    slot: Slot<'_>,
) -> Result<RawCompletion, Refusal> {
    let user = with_instruction(&slot.example.problem, &plan.prompt);
    let dialogue = dialogue(slot.example, &plan.prompt);
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
        extra: &dialogue,
    };
    let exchange = client.ask(&question, question.seed).await?;
    let reply = exchange.reply.map_err(|failure| {
        let (address, requests, reason) = (client.address(), exchange.requests, failure.reason);
        let asked = format!("problem {} after {requests} requests: {reason}", slot.problem);
        Refusal::machine(format!("{address} has no answer for {asked}"))
            .hint("see what the server says; with --out, the same command resumes where it stopped")
    })?;
    Ok(RawCompletion {
        text: reply.text,
        tokens: reply.completion_tokens.map(|it| it as usize),
        ended: reply.finish_reason.as_deref() != Some("length"),
    })
}

fn with_instruction(text: &str, instruction: &str) -> String {
    match instruction {
        "" => text.to_owned(),
        instruction => format!("{text}\n{instruction}"),
    }
}

/// The field of the request that replaces the user's one turn, where the prompt is a dialogue: all of its turns, with the
/// instruction behind the user's last.
fn dialogue(example: &Example, instruction: &str) -> Map<String, Value> {
    if example.messages.is_empty() {
        return Map::new();
    }
    let mut turns = example.messages.clone();
    if let Some(last) = turns.iter_mut().rev().find(|it| it.role == "user") {
        last.content = with_instruction(&last.content, instruction);
    }
    Map::from_iter([("messages".to_owned(), json!(turns))])
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapo_data::Message;

    #[test]
    fn a_dialogue_is_sent_whole_and_a_problem_by_itself() {
        let messages =
            [("system", "Be brief."), ("user", "1+1?"), ("assistant", "2"), ("user", "+3?")];
        let messages = messages.map(|(role, text)| Message::new(role, text)).to_vec();
        let mut example = Example { problem: "+3?".to_owned(), messages, ..Example::default() };
        let sent = dialogue(&example, "Box it.");
        assert_eq!(
            Value::Object(sent),
            json!({ "messages": [
                { "role": "system", "content": "Be brief." },
                { "role": "user", "content": "1+1?" },
                { "role": "assistant", "content": "2" },
                { "role": "user", "content": "+3?\nBox it." },
            ] })
        );
        example.messages.clear();
        assert!(dialogue(&example, "Box it.").is_empty());
    }
}
