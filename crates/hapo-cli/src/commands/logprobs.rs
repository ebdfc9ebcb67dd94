//! `hapo logprobs`: what a model thinks of token sequences.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use hapo_core::{PromptId, RngStream};
use hapo_kernels::Device;
use hapo_model::{Model, Tape};
use hapo_sampler::{Decoding, GroupRequest, SampleSettings};
use serde::{Deserialize, Serialize};

use crate::failure::bad_input;
use crate::support::device::DeviceArg;

/// Log-probabilities, entropies and greedy continuations of token sequences.
///
/// A line with `input_ids`, T ids, gives a line with `logprobs` (T - 1 numbers, of each token given those before),
/// `entropy` (T numbers) and `greedy` (the ids that would follow).
#[derive(clap::Args)]
#[command(
    before_help = "Example: echo '{\"input_ids\": [5, 17, 3]}' | hapo logprobs --model DIR --input - --greedy 8"
)]
pub(crate) struct Args {
    /// Hugging Face folder, org/name@revision of the hub, or builtin:base
    #[arg(long)]
    model: String,
    /// JSONL file, or - for standard input
    #[arg(long)]
    input: PathBuf,
    /// Tokens of the greedy continuation
    #[arg(long, default_value_t = 0)]
    greedy: usize,
    /// Print logits too, a row of the vocabulary for each id
    #[arg(long)]
    logits: bool,
    #[command(flatten)]
    device: DeviceArg,
}

#[derive(Deserialize)]
struct Line {
    input_ids: Vec<u32>,
}

#[derive(Serialize)]
struct Answer {
    logprobs: Vec<f32>,
    entropy: Vec<f32>,
    greedy: Vec<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logits: Option<Vec<Vec<f32>>>,
}

pub(crate) fn run(args: &Args, threads: usize) -> Result<()> {
    let name = args.input.display().to_string();
    let source: Box<dyn Read> = if name == "-" {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(&args.input).map_err(|it| {
            bad_input(
                format!("cannot read {name}: {it}"),
                "name a JSONL file, or - for standard input",
            )
        })?)
    };
    let mut lines = Vec::new();
    for (index, line) in BufReader::new(source).lines().enumerate() {
        let line = line.with_context(|| format!("cannot read {name}"))?;
        if line.trim().is_empty() {
            continue;
        }
        let place = format!("{name}:{}", index + 1);
        let parsed: Line = serde_json::from_str(&line)
            .map_err(|it| bad_input(format!("{place}: {it}"), "expected {\"input_ids\": [ids]}"))?;
        if parsed.input_ids.is_empty() {
            return Err(bad_input(
                format!("{place}: input_ids is empty"),
                "expected at least one id",
            ));
        }
        lines.push((place, parsed.input_ids));
    }
    on_device!(args.device.device, threads, |device| say(
        args, &lines, device
    ))
}

/// A line for every line.
fn say<D: Device>(args: &Args, lines: &[(String, Vec<u32>)], device: D) -> Result<()> {
    let longest = lines.iter().map(|it| it.1.len()).max().unwrap_or(1);
    let loaded = crate::support::model::open_loaded(&args.model, longest + args.greedy, device)?;
    let mut tape = Tape::new(hapo_model::ActivationCheckpointing::Layers);
    let mut out = std::io::stdout().lock();
    for (place, ids) in lines {
        let answer = answer(&loaded.model, &mut tape, ids, args).map_err(|it| {
            bad_input(
                format!("{place}: {it}"),
                "ids are those of the model's tokenizer",
            )
        })?;
        writeln!(out, "{}", serde_json::to_string(&answer)?)?;
    }
    Ok(())
}

fn answer<D: Device>(
    model: &Model<D>,
    tape: &mut Tape<D>,
    ids: &[u32],
    args: &Args,
) -> Result<Answer> {
    let logits = model.logits(ids, tape)?;
    let vocab = model.config().vocab_size;
    let rows: Vec<&[f32]> = logits.chunks_exact(vocab).collect();
    let stats: Vec<_> = rows
        .iter()
        .map(|it| hapo_kernels::row_stats(it, 1.0))
        .collect();
    let logprobs = (1..ids.len())
        .map(|i| hapo_kernels::log_prob(stats[i - 1], 1.0, rows[i - 1][ids[i] as usize]))
        .collect();
    let greedy = if args.greedy == 0 {
        Vec::new()
    } else {
        let request = GroupRequest {
            prompt: PromptId(0),
            tokens: ids,
            completions: 1,
        };
        let settings = SampleSettings {
            decoding: Decoding::Greedy,
            stop: &[],
            max_new_tokens: args.greedy,
            max_sequences: 1,
            usable_vocab: vocab,
            seed: 0,
            rng_stream: RngStream::Generate,
            step: 0,
        };
        let sampled = hapo_sampler::sample(model, &[request], &settings)?;
        sampled[0].group.rollouts()[0].tokens.clone()
    };
    let entropy = stats.iter().map(|it| it.entropy).collect();
    let logits = args
        .logits
        .then(|| rows.iter().map(|it| it.to_vec()).collect());
    Ok(Answer {
        logprobs,
        entropy,
        greedy,
        logits,
    })
}
