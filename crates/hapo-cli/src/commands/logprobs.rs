//! `hapo logprobs`: log-probabilities of token sequences.

use std::path::{Path, PathBuf};

use anyhow::Result;
use hapo_core::{PromptId, RngStream};
use hapo_kernels::Device;
use hapo_model::{Model, Tape};
use hapo_sampler::{Decoding, GroupRequest, KvMemory, SampleSettings};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{failure::bad_input, support::device::DeviceArg, support::model};

/// Log-probabilities, entropies and greedy continuations of token sequences.
///
/// A line with `input_ids`, T ids, gives a line with `logprobs` (T - 1 numbers, of each token given those before),
/// `entropy` (T numbers) and `greedy` (the ids that would follow).
#[derive(clap::Args)]
#[command(
    before_help = "Example: echo '{\"input_ids\": [5, 17, 3]}' | hapo logprobs --model DIR --input - --greedy 8"
)]
pub(crate) struct Args {
    #[command(flatten)]
    model: model::ModelArgs,
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
struct Scored {
    logprobs: Vec<f32>,
    entropy: Vec<f32>,
    greedy: Vec<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logits: Option<Vec<Vec<f32>>>,
}

pub(crate) fn run(args: &Args, threads: usize) -> Result<()> {
    let (lines, named) = (read(&args.input)?, args.model.named());
    on_device!(args.device, args.device.compute.or_f32(), threads, |device| print(
        named, &lines, args, device
    ))
}

/// A sequence, and where it is in the input.
type Sequence = (String, Vec<u32>);

fn read(input: &Path) -> Result<Vec<Sequence>> {
    let rows: Box<dyn Iterator<Item = _>> = if input == Path::new("-") {
        Box::new(hapo_data::json_lines(std::io::BufReader::new(std::io::stdin()), "standard input"))
    } else {
        Box::new(hapo_data::json_rows(input)?)
    };
    let sequence = |(index, row): (usize, Result<Result<_, String>, _>)| {
        let location = format!("{}: row {}", input.display(), index + 1);
        let ids = row?
            .and_then(|it| serde_json::from_value(Value::Object(it)).map_err(|it| it.to_string()));
        let (problem, hint) = match ids {
            Ok(Line { input_ids }) if !input_ids.is_empty() => return Ok((location, input_ids)),
            Ok(_) => ("input_ids is empty".to_owned(), "expected at least one id"),
            Err(it) => (it, "expected {\"input_ids\": [ids]}"),
        };
        Err(bad_input(format!("{location}: {problem}"), hint))
    };
    rows.enumerate().map(sequence).collect()
}

fn print<D: Device>(
    named: model::Named<'_>,
    sequences: &[Sequence],
    args: &Args,
    device: D,
) -> Result<()> {
    let longest = sequences.iter().map(|it| it.1.len()).max().unwrap_or(1);
    let loaded = model::open_by(hapo_train::open_frozen_on, named, longest + args.greedy, device)?;
    let mut tape = Tape::new(hapo_model::ActivationCheckpointing::Layers);
    for (location, ids) in sequences {
        let scored = score(&loaded.model, &mut tape, ids, args).map_err(|it| {
            bad_input(format!("{location}: {it}"), "ids are those of the model's tokenizer")
        })?;
        outln!("{}", serde_json::to_string(&scored)?);
    }
    Ok(())
}

fn score<D: Device>(
    model: &Model<D>,
    tape: &mut Tape<D>,
    ids: &[u32],
    args: &Args,
) -> Result<Scored> {
    let logits = tape.logits(model, ids)?;
    let rows: Vec<&[f32]> = logits.chunks_exact(model.config().vocab_size).collect();
    let stats: Vec<_> = rows.iter().map(|it| hapo_kernels::row_stats(it, 1.0)).collect();
    let log_prob =
        |i: usize| hapo_kernels::log_prob(stats[i - 1], 1.0, rows[i - 1][ids[i] as usize]);
    Ok(Scored {
        logprobs: (1..ids.len()).map(log_prob).collect(),
        entropy: stats.iter().map(|it| it.entropy).collect(),
        greedy: if args.greedy == 0 { Vec::new() } else { greedy(model, ids, args.greedy)? },
        logits: args.logits.then(|| rows.iter().map(|it| it.to_vec()).collect()),
    })
}

/// The `max_new_tokens` most likely tokens that follow, one after the other.
fn greedy<D: Device>(model: &Model<D>, ids: &[u32], max_new_tokens: usize) -> Result<Vec<u32>> {
    let request = GroupRequest::new(PromptId(0), ids, 1);
    let settings = SampleSettings {
        decoding: Decoding::Greedy,
        stop: &[],
        max_new_tokens,
        max_sequences: 1,
        kv_memory: KvMemory::Auto,
        usable_vocab: model.config().vocab_size,
        seed: 0,
        rng_stream: RngStream::Generate,
        step: 0,
    };
    let sampled = hapo_sampler::sample(model, &[request], &settings, None)?;
    Ok(sampled[0].group.rollouts[0].tokens.clone())
}
