//! The output of a session: the rows of the input, with the chosen traces and where they come from.

use std::io::{BufWriter, Write};

use hapo_core::Refusal;
use hapo_data::Example;
use hapo_run::write_atomically_with;
use serde::Serialize;
use serde_json::{Map, Value};

use super::Session;
use crate::journal::Line;
use crate::judgement::{Outcome, clean};
use crate::prompt_kind::PromptKind;

impl Session<'_> {
    /// Writes the output atomically, in the order of the prompts: each row with its new traces before its old ones.
    /// `keep_all` keeps rows without a new trace. The output depends neither on the time nor on retries.
    pub fn write(&mut self, keep_all: bool) -> Result<(), Refusal> {
        self.journal.flush()?;
        let output = self.output.clone();
        write_atomically_with(&output, |file| self.write_rows(&mut BufWriter::new(file), keep_all))
    }

    fn write_rows(&mut self, writer: &mut impl Write, keep_all: bool) -> Result<(), Refusal> {
        let output = self.output.clone();
        let io = |source| Refusal::io("write", &output)(source);
        for prompt in 0..self.golds.len() {
            let chosen = self.chosen(prompt);
            if chosen.is_empty() && !keep_all {
                continue;
            }
            let mut example = self.dataset.examples[prompt].clone();
            let before = std::mem::take(&mut example.teachers);
            for attempt in &chosen {
                let span = self.done[prompt][attempt].span;
                let line: Line = self.journal.read_at(span)?;
                let text = line.it.text.unwrap_or_default();
                example.teachers.push(clean(&text).to_owned());
            }
            for it in before {
                if !example.teachers.contains(&it) {
                    example.teachers.push(it);
                }
            }
            let row = OutputRow::new(&example, self.provenance(prompt, &chosen));
            serde_json::to_writer(&mut *writer, &row).map_err(|it| io(it.into()))?;
            writer.write_all(b"\n").map_err(io)?;
        }
        writer.flush().map_err(io)
    }

    fn provenance(&self, prompt: usize, chosen: &[u32]) -> Provenance<'_> {
        let done = &self.done[prompt];
        Provenance {
            endpoint: &self.origin.endpoint,
            model: &self.origin.model,
            prompt: self.origin.prompt,
            system: self.origin.system.as_deref(),
            temperature: self.origin.temperature,
            top_p: self.origin.top_p,
            max_tokens: self.origin.max_tokens,
            seed: self.origin.seed,
            outcomes: done.range(..self.rules.attempts).map(|it| it.1.outcome).collect(),
            traces: chosen
                .iter()
                .map(|attempt| {
                    let it = &done[attempt];
                    Trace {
                        attempt: *attempt,
                        leak: it.leak,
                        prompt_tokens: it.prompt_tokens,
                        completion_tokens: it.completion_tokens,
                        cost: self.rules.prices.and_then(|prices| prices.cost(it)),
                    }
                })
                .collect(),
        }
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

/// Where a row's traces come from.
#[derive(Serialize)]
struct Provenance<'a> {
    endpoint: &'a str,
    model: &'a str,
    prompt: PromptKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<&'a str>,
    temperature: f64,
    top_p: f64,
    max_tokens: Option<u64>,
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
