//! The output of a session: the rows of the input, with the chosen traces and where they come from.

use std::io::{BufWriter, Write};

use hapo_run::write_atomically_with;
use serde::Serialize;

use super::Session;
use crate::error::Error;
use crate::journal::Line;
use crate::judgement::{Outcome, clean};
use crate::prompt_kind::PromptKind;

impl Session<'_> {
    /// Writes the output atomically, in the order of the prompts: each row with its new traces before its old ones.
    /// `keep_all` keeps rows without a new trace. The output depends neither on the time nor on retries.
    pub fn write(&mut self, keep_all: bool) -> Result<(), Error> {
        self.journal.flush()?;
        let output = self.output.clone();
        write_atomically_with(&output, |file| self.write_rows(&mut BufWriter::new(file), keep_all))
    }

    fn write_rows(&mut self, writer: &mut impl Write, keep_all: bool) -> Result<(), Error> {
        let output = self.output.clone();
        let io = |source| hapo_run::Error::io("write", &output)(source);
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
            let mut row = Vec::new();
            hapo_data::write_row(&mut row, &example).map_err(io)?;
            let provenance = serde_json::to_string(&self.provenance(prompt, &chosen))
                .expect("provenance is plain data");
            // The row ends in a brace and a line break; the provenance is one more field.
            let end = row.iter().rposition(|it| *it == b'}').expect("a row is an object");
            row.truncate(end);
            writeln!(row, ",\"provenance\":{provenance}}}").map_err(io)?;
            writer.write_all(&row).map_err(io)?;
        }
        Ok(writer.flush().map_err(io)?)
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
