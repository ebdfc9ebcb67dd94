//! `hapo generate`: completions of a prompt, or of every problem of a file.

use std::io::{IsTerminal, Read};
use std::path::PathBuf;

use anyhow::Result;
use clap::builder::NonEmptyStringValueParser;
use hapo_data::{Dataset, Example, Reading};
use hapo_eval::{
    Completions, LocalModel, LocalSampling, Plan, ProblemSet, Progress, PromptForm, Sampling,
};
use hapo_sampler::Truncation;
use hapo_train::ChosenTemplate;
use serde_json::Value;

use crate::support::arguments::{KvArgs, SamplingArgs, count, not_an_input, number};
use crate::support::device::{DeviceArg, tell_start};
use crate::support::{hub, model};
use crate::{failure::bad_input, progress::CountProgress, scoring};

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
    #[arg(long, default_value_t = 0.0, value_parser = number(0.0_f32..=1.0, "a number in [0, 1]"))]
    min_p: f32,
    /// End a completion where its text contains this string; may be given several times
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    stop: Vec<String>,
    #[command(flatten)]
    template: model::TemplateArgs,
    /// One JSON object per completion
    #[arg(long)]
    json: bool,
    /// Write each into this file when it is there, as JSON; resumes
    #[arg(long, value_name = "FILE.jsonl")]
    out: Option<PathBuf>,
    #[command(flatten)]
    kv: KvArgs,
    #[command(flatten)]
    device: DeviceArg,
}

pub(crate) fn run(args: &Args, threads: usize) -> Result<()> {
    let problems = if let Some(it) = &args.input {
        hapo_train::load_file(&hub::data_file(it)?, &Reading::default())?.examples
    } else {
        let problem = args.prompt.clone().map_or_else(read_prompt, Ok)?;
        vec![Example { id: "0".to_owned(), problem, ..Example::default() }]
    };
    if let (Some(out), Some(input)) = (&args.out, &args.input) {
        not_an_input(out, &[input], "")?;
    }
    if !args.json {
        model::tell_what_it_knows(&args.model.model);
    }
    let template = model::template(args.template.request(), args.model.named())?;
    let mut plan = args.plan(problems, &template);
    on_device!(args.device, args.device.compute.or_f32(), threads, |device| sample(
        args, &mut plan, &template, device
    ))
}

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

impl Args {
    fn plan(&self, problems: Vec<Example>, template: &ChosenTemplate) -> Plan {
        let (name, dataset) = (String::new(), Dataset { examples: problems });
        let set = ProblemSet { name, dataset, completions: self.completions, draws: 0 };
        let sampling = Sampling {
            temperature: f64::from(self.sampling.temperature),
            top_p: f64::from(self.sampling.top_p),
            seed: self.sampling.seed,
            ..Sampling::new(&self.model.model, PromptForm::Template(template.name.clone()))
        };
        let local = LocalSampling {
            max_sequences: 64,
            truncation: Truncation { top_k: self.top_k, min_p: self.min_p, ..Truncation::NONE },
            stop: self.stop.clone(),
            ..self.kv.local(self.device.compute.or_f32())
        };
        let completions = Some(self.completions);
        Plan { local, completions, ..Plan::new(vec![set], sampling, scoring::grader()) }
    }

    fn print(&self, it: &Value, problems: usize) -> Result<()> {
        if self.json {
            outln!("{it}");
            return Ok(());
        }
        let text = |key: &str| it[key].as_str().unwrap_or_default();
        let (id, n) = (text("id"), self.completions);
        let number = it["index"].as_u64().unwrap_or_default() + 1;
        match (problems, n) {
            (1, 1) => {}
            (1, _) => outln!("--- {number} of {n}"),
            (_, 1) => outln!("--- {id}"),
            (_, _) => outln!("--- {id}: {number} of {n}"),
        }
        outln!("{}", text("completion"));
        Ok(())
    }
}

fn sample<D: hapo_kernels::Device>(
    args: &Args,
    plan: &mut Plan,
    template: &ChosenTemplate,
    device: D,
) -> Result<()> {
    let most = args.sampling.max_new_tokens.unwrap_or(DEFAULT_TOKENS);
    let model::Opened { mut model, chat_format, fingerprints, seconds } =
        model::open(args.model.named(), template.choice(), most, device)?;
    tell_start(args.device.verbose, &seconds);
    model.round_keys_and_values_to(args.kv.kv_dtype);
    plan.local.fingerprints = Some(fingerprints);
    let local = LocalModel { model: &model, chat_format: &chat_format };
    let longest = local.longest_prompt(plan)?;
    // What the model holds, at most the default; a prompt that leaves no room gets the warning.
    let room = match model.config().max_positions.saturating_sub(longest) {
        0 => DEFAULT_TOKENS,
        room => DEFAULT_TOKENS.min(room),
    };
    plan.sampling.max_tokens = Some(args.sampling.max_new_tokens.unwrap_or(room));
    let problems = plan.sets[0].dataset.examples.len();
    let total = (problems * args.completions) as u64;
    // Bar and completions would be written over each other.
    let shows = args.input.is_some() && (args.out.is_some() || !std::io::stdout().is_terminal());
    let progress = shows.then(|| CountProgress::new("generate", total, "completions"));
    let observer = |at: Progress| {
        if let Some(it) = &progress {
            it.at(at.completions as u64, "sampled");
        }
    };
    let (mut has_nan, mut unwritten) = (false, None);
    let mut each = |it: &Value| {
        has_nan |= it["logprobs"].as_array().is_some_and(|all| all.iter().any(Value::is_null));
        if args.out.is_none() && unwritten.is_none() {
            unwritten = args.print(it, problems).err();
        }
    };
    let session = Completions::of_generation(plan, args.out.as_deref(), &mut each)?;
    let mut session = session.observed(&observer);
    if let Some(it) = model.config().beyond_positions(longest + plan.max_tokens()) {
        errln!("warning: {it}");
    }
    let sampled = session.sample(local);
    drop(session);
    if let Some(it) = &progress {
        it.finish();
    }
    if let Some(it) = sampled.as_ref().err().filter(|it| hapo_kernels::is_out_of_memory(it)) {
        let hint = "lower --kv-memory, --max-tokens or -n, or ask for fewer prompts";
        return Err(bad_input(it.to_string(), hint));
    }
    sampled?;
    if has_nan {
        errln!(
            "warning: the model's logits are no numbers: its weights are too large to compute with"
        );
    }
    if let Some(file) = &args.out {
        errln!("{total} completions are in {}", file.display());
    }
    unwritten.map_or(Ok(()), Err)
}
