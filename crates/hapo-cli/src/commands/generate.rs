//! `hapo generate`: completions of a prompt, or of every problem of a file.

use std::io::{IsTerminal, Read};
use std::path::PathBuf;

use anyhow::Result;
use hapo_core::{PromptId, RngStream};
use hapo_data::Example;
use hapo_kernels::Device;
use hapo_sampler::{Decoding, GroupRequest, SampleSettings, Truncation};
use hapo_train::{ChosenTemplate, ReadAs};

use crate::failure::bad_input;
use crate::support::arguments::{KvArgs, SamplingArgs, count};
use crate::support::device::DeviceArg;
use crate::support::{hub, model};

/// Longest completion, unless another is named.
const DEFAULT_TOKENS: usize = 256;

/// Longest prompt on standard input, in bytes.
const PROMPT_BYTES: u64 = 16 << 20;

/// Sample completions.
#[derive(clap::Args)]
#[command(
    before_help = "Example: hapo generate --model builtin:base '4738*6=?' -n 4 --temperature 0.6",
    allow_negative_numbers = true,
    mut_arg("max_new_tokens", |arg| arg.help("Longest completion in tokens [default: 256, or as many as the model holds]"))
)]
pub(crate) struct Args {
    #[command(flatten)]
    model: model::ModelArgs,
    /// The problem [default: the whole of standard input]
    #[arg(conflicts_with = "input")]
    prompt: Option<String>,
    /// A file of problems, in any layout of `hapo list layouts`
    #[arg(long)]
    input: Option<PathBuf>,
    /// Completions of each problem
    #[arg(short = 'n', long, default_value_t = 1, value_parser = count(65_536))]
    completions: usize,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Most likely tokens to draw from; 0 = all
    #[arg(long, default_value_t = 0)]
    top_k: usize,
    /// Least probability of a token, as a fraction of the likeliest one's; 0 = all
    #[arg(long, default_value_t = 0.0)]
    min_p: f32,
    /// End a completion where its text contains this string; may be given several times
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    #[command(flatten)]
    template: model::TemplateArgs,
    /// One JSON object per completion
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    kv: KvArgs,
    #[command(flatten)]
    device: DeviceArg,
}

pub(crate) fn run(args: &Args, threads: usize) -> Result<()> {
    let problems = match (&args.input, &args.prompt) {
        (Some(file), _) => {
            hapo_train::load_file(&hub::data_file(file)?, ReadAs::default())?.examples
        }
        (None, Some(prompt)) => vec![example(prompt.clone())],
        (None, None) => vec![example(read_prompt()?)],
    };
    let truncation = Truncation { top_k: args.top_k, min_p: args.min_p, ..Truncation::NONE };
    let decoding = args.sampling.decoding(truncation)?;
    if args.stop.iter().any(String::is_empty) {
        return Err(bad_input(
            "--stop: expected at least one character, got none",
            "leave the option out to stop at end tokens alone",
        ));
    }
    if !args.json {
        model::tell_what_it_knows(&args.model.model);
    }
    let plan = GeneratePlan {
        model: args.model.named(),
        template: model::template(args.template.request(), args.model.named())?,
        problems: &problems,
        completions: args.completions,
        decoding,
        max_new_tokens: args.sampling.max_new_tokens,
        stop: &args.stop,
        kv: args.kv,
        seed: args.sampling.seed,
        json: args.json,
    };
    on_device!(args.device, args.device.compute.or_f32(), threads, |device| sample(&plan, device))
}

fn example(problem: String) -> Example {
    Example { id: "0".to_owned(), problem, ..Example::default() }
}

/// The problem on standard input.
fn read_prompt() -> Result<String> {
    let hint = "write it behind the options, or send it: echo '1+1=?' | hapo generate --model …";
    let mut text = String::new();
    if !std::io::stdin().is_terminal() {
        let read = std::io::stdin().lock().take(PROMPT_BYTES).read_to_string(&mut text);
        read.map_err(|it| bad_input(format!("cannot read standard input: {it}"), hint))?;
    }
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(bad_input("expected a problem, got none", hint)),
        text => Ok(text.to_owned()),
    }
}

/// The prompts, the sampling and the form of the output.
struct GeneratePlan<'a> {
    model: model::Named<'a>,
    template: ChosenTemplate,
    problems: &'a [Example],
    completions: usize,
    decoding: Decoding,
    /// None for what the model holds, at most [`DEFAULT_TOKENS`].
    max_new_tokens: Option<usize>,
    /// Strings that end a completion.
    stop: &'a [String],
    kv: KvArgs,
    seed: u64,
    json: bool,
}

fn sample<D: Device>(plan: &GeneratePlan<'_>, device: D) -> Result<()> {
    let most = plan.max_new_tokens.unwrap_or(DEFAULT_TOKENS);
    let model::Opened { mut model, chat_format, .. } =
        model::open(plan.model, &plan.template, most, device)?;
    model.round_keys_and_values_to(plan.kv.kv_dtype);
    let prompts = plan
        .problems
        .iter()
        .map(|it| chat_format.prompt_of(it))
        .collect::<std::result::Result<Vec<_>, _>>()?;
    let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
    let max_new_tokens = plan.max_new_tokens.unwrap_or_else(|| {
        // A prompt that leaves no room gets the warning.
        match model.config().max_positions.saturating_sub(longest) {
            0 => DEFAULT_TOKENS,
            room => DEFAULT_TOKENS.min(room),
        }
    });
    if let Some(it) = model.config().beyond_positions(longest + max_new_tokens) {
        errln!("warning: {it}");
    }
    let requests: Vec<GroupRequest<'_>> = prompts
        .iter()
        .zip(0..)
        .map(|(tokens, id)| GroupRequest::new(PromptId(id), tokens, plan.completions))
        .collect();
    let settings = SampleSettings {
        decoding: plan.decoding,
        stop: &chat_format.stop,
        max_new_tokens,
        max_sequences: 64,
        kv_memory: plan.kv.kv_memory,
        usable_vocab: chat_format.tokenizer.vocab_size(),
        seed: plan.seed,
        rng_stream: RngStream::Generate,
        step: 0,
    };
    let sampled =
        hapo_sampler::sample_until(&model, &requests, &settings, &chat_format.tokenizer, plan.stop)
            .map_err(|it| {
                if hapo_kernels::is_out_of_memory(&it) {
                    bad_input(
                        it.to_string(),
                        "lower --kv-memory, --max-tokens or -n, or ask for fewer prompts",
                    )
                } else {
                    it.into()
                }
            })?;
    let is_nan = |it: &hapo_core::Rollout| it.log_probs.iter().any(|it| it.is_nan());
    if sampled.iter().any(|it| it.group.rollouts().iter().any(is_nan)) {
        errln!(
            "warning: the model's logits are no numbers: its weights are too large to compute with"
        );
    }
    for (Example { id, problem, .. }, sampled) in plan.problems.iter().zip(sampled) {
        let n = sampled.group.rollouts().len();
        for (index, (it, details)) in sampled.completions().enumerate() {
            let text = chat_format.text_before(&it.tokens, plan.stop)?;
            if plan.json {
                let json = serde_json::json!({
                    "id": id, "index": index, "problem": problem, "completion": text, "tokens": it.tokens,
                    "logprobs": it.log_probs, "logprobs_t1": details.log_probs_t1, "ended": it.ended, "finish": details.finish.name(),
                });
                outln!("{json}");
            } else {
                match (plan.problems.len(), n) {
                    (1, 1) => {}
                    (1, _) => outln!("--- {} of {n}", index + 1),
                    (_, 1) => outln!("--- {id}"),
                    (_, _) => outln!("--- {id}: {} of {n}", index + 1),
                }
                outln!("{text}");
            }
        }
    }
    Ok(())
}
