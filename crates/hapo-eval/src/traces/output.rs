//! The output of a teacher: the rows of the input, with the chosen traces and where they come from.

use std::io::{BufWriter, Write};

use hapo_core::Refusal;
use hapo_data::Example;
use serde::Serialize;
use serde_json::{Map, Value};

use super::rules::clean;
use super::{Line, Outcome, Traces};
use crate::{completions::Completions, plan::Sampling};

impl Completions<'_, Traces<'_>> {
    /// Writes the output atomically, in the order of the prompts: each row with its new traces before its old ones.
    /// `keep_all` keeps rows without a new trace. The output depends neither on the time nor on retries.
    pub fn write(&mut self, keep_all: bool) -> Result<(), Refusal> {
        self.flush()?;
        let output = self.summary.output.clone();
        hapo_run::write_atomically_with(&output, |file| {
            let mut writer = BufWriter::new(file);
            let io = |source| Refusal::io("write", &output)(source);
            for prompt in 0..self.summary.done.len() {
                let chosen = self.summary.chosen(prompt);
                if chosen.is_empty() && !keep_all {
                    continue;
                }
                let example = self.with_traces(prompt, &chosen)?;
                let provenance =
                    Provenance::new(&self.plan.sampling, &self.summary, prompt, &chosen);
                serde_json::to_writer(&mut writer, &OutputRow::new(&example, provenance))
                    .map_err(|error| io(error.into()))?;
                writer.write_all(b"\n").map_err(io)?;
            }
            writer.flush().map_err(io)
        })
    }

    fn with_traces(&mut self, prompt: usize, chosen: &[u32]) -> Result<Example, Refusal> {
        let mut example = self.plan.sets[0].dataset.examples[prompt].clone();
        let before = std::mem::take(&mut example.teachers);
        let journal = self.journal.as_mut().expect("a teacher has a journal");
        for attempt in chosen {
            let line: Line = journal.read_at(self.summary.done[prompt][attempt].span)?;
            let text = line.completion.text.unwrap_or_default();
            example.teachers.push(clean(&text).to_owned());
        }
        for trace in before {
            if !example.teachers.contains(&trace) {
                example.teachers.push(trace);
            }
        }
        Ok(example)
    }
}

/// A row of the native layout with everything else that the input's row had: a custom reward gets whole rows. Several
/// gold answers and hints are lists, which `data.columns` reads.
#[derive(Serialize)]
struct OutputRow<'a> {
    id: Value,
    problem: &'a str,
    answer: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    teacher: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
    #[serde(flatten)]
    others: Map<String, Value>,
    provenance: Provenance<'a>,
}

impl<'a> OutputRow<'a> {
    fn new(example: &'a Example, provenance: Provenance<'a>) -> Self {
        let mut others = other_fields(example);
        let teacher = match &example.teachers[..] {
            // Without it the reader takes a field `solution` for a teacher's.
            [] => others.contains_key("solution").then_some(Value::Null),
            [one] => Some(one.as_str().into()),
            several => Some(several.into()),
        };
        let answer = match &example.other_answers[..] {
            [] => as_written(&mut others, "answer", &example.answer),
            _ => example.golds().collect(),
        };
        let id = as_written(&mut others, "id", &example.id);
        let level = example.level.as_ref().map(|it| as_written(&mut others, "level", it));
        for name in ["id", "problem", "answer", "teacher", "source", "level", "subject"] {
            others.remove(name);
        }
        Self {
            id,
            problem: &example.problem,
            answer,
            teacher,
            source: example.source.as_deref(),
            level,
            subject: example.subject.as_deref(),
            others,
            provenance,
        }
    }
}

/// The fields of the input's row, where they were kept, and its hints.
fn other_fields(example: &Example) -> Map<String, Value> {
    let fields = example.fields.as_deref().map(serde_json::from_str);
    let mut fields: Map<String, Value> =
        fields.transpose().expect("fields are a JSON object").unwrap_or_default();
    fields.remove("provenance");
    // With a prompt beside them, these make a row of verl's, whatever else it has.
    if fields.contains_key("reward_model") || fields.contains_key("extra_info") {
        fields.remove("prompt");
    }
    if !example.hints.is_empty() {
        fields.insert("hints".to_owned(), example.hints.as_slice().into());
    }
    fields
}

/// A text as the input's row has it: a number where it is one there.
fn as_written(fields: &mut Map<String, Value>, name: &str, text: &str) -> Value {
    match fields.remove(name) {
        Some(Value::Number(it)) if it.to_string() == text => Value::Number(it),
        _ => text.into(),
    }
}

#[derive(Serialize)]
struct Provenance<'a> {
    endpoint: Option<&'a str>,
    model: &'a str,
    prompt: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<&'a str>,
    temperature: Value,
    top_p: Value,
    max_tokens: Value,
    seed: u64,
    outcomes: Vec<Outcome>,
    traces: Vec<Trace>,
}

#[derive(Serialize)]
struct Trace {
    attempt: u32,
    leak: Option<&'static str>,
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<f64>,
}

impl<'a> Provenance<'a> {
    fn new(sampling: &'a Sampling, traces: &Traces<'_>, prompt: usize, chosen: &[u32]) -> Self {
        let done = &traces.done[prompt];
        let trace = |number: &u32| {
            let attempt = &done[number];
            Trace {
                attempt: *number,
                leak: attempt.leak,
                prompt_tokens: attempt.prompt_tokens,
                completion_tokens: attempt.completion_tokens,
                cost: traces.rules.prices.and_then(|prices| prices.cost(attempt)),
            }
        };
        Self {
            endpoint: sampling.endpoint.as_deref(),
            model: &sampling.model,
            prompt: sampling.prompt.name(),
            system: sampling.system.as_deref(),
            temperature: sampling.sent("temperature"),
            top_p: sampling.sent("top_p"),
            max_tokens: sampling.sent("max_tokens"),
            seed: sampling.seed,
            outcomes: done.range(..traces.attempts).map(|attempt| attempt.1.outcome).collect(),
            traces: chosen.iter().map(trace).collect(),
        }
    }
}
