//! `hapo plan`: memory and time of a run before it starts.

use std::path::PathBuf;

use anyhow::Result;
use hapo_core::counted;
use hapo_kernels::Compute;
use hapo_run::duration;
use hapo_train::plan::{DeviceSpec, Estimate, Lengths, Workload, config_of_model, estimate};
use hapo_train::{EvalSet, ModelSource, Recipe, RunPlan};

use crate::support::arguments::{OverrideArgs, number};
use crate::support::{hub, machine};
use crate::{commands::train, failure::bad_input, support::device::ComputeArg};

/// Memory, tokens, operations and time of a step, from a recipe and a model's config.json.
///
/// Memory is that of the longest prompts and responses the recipe allows. Time is operations at a share of the
/// device's peak, and the bytes that decoding and the optimiser move at a share of its bandwidth: of a GPU's data
/// sheet, or of what is measured on this machine. Products are those of the recipe's `compute`.
#[derive(clap::Args)]
#[command(before_help = "Example: hapo plan builtin:qwen2.5-0.5b-gsm8k --device h200")]
pub(crate) struct Args {
    /// The recipe: a file, or builtin:NAME of `hapo list recipes`
    recipe: PathBuf,
    #[command(flatten)]
    overrides: OverrideArgs,
    /// cpu (this machine, measured), b200, h200, h100, a100-80gb, a100-40gb, l40s, rtx4090, rtx3090
    #[arg(long, default_value = "cpu")]
    device: String,
    #[command(flatten)]
    compute: ComputeArg,
    /// Mean prompt in tokens, for the times [default: the longest allowed]
    #[arg(long, value_parser = number(1.0..=1e9, "a number of tokens from 1"))]
    prompt_tokens: Option<f64>,
    /// Mean response in tokens, for the times [default: the longest allowed]
    #[arg(long, value_parser = number(1.0..=1e9, "a number of tokens from 1"))]
    response_tokens: Option<f64>,
    /// A folder with the config.json to plan for, instead of the recipe's model
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, threads: usize) -> Result<()> {
    let overrides = args.overrides.computing(args.compute.set());
    let stages = Recipe::load_stages(&args.recipe, &overrides)?;
    let gpu = |compute| match args.device.as_str() {
        "cpu" => Ok(None),
        name => DeviceSpec::gpu(name, compute).map(Some).ok_or_else(|| unknown_device(name)),
    };
    gpu(Compute::F32)?;
    let mut plans: Vec<(Estimate, Option<String>)> = Vec::new();
    let config = args.model.as_deref().map(hapo_model::folder::read_config).transpose()?;
    let mut config = config.map(|it| it.config);
    for recipe in &stages {
        // A later stage continues with the model of the one before.
        if args.model.is_none() && !matches!(recipe.model(), ModelSource::Stage(..)) {
            let fetched = match recipe.model() {
                ModelSource::Folder(name) => hub::config_folder(name)?,
                _ => None,
            };
            let model = fetched.map_or_else(|| recipe.model().clone(), ModelSource::Folder);
            config = Some(config_of_model(recipe, &model)?);
        }
        let Some(config) = &config else { continue };
        let device = match gpu(recipe.compute)? {
            Some(it) => it,
            None => machine::device_spec(threads, recipe.compute, config)?,
        };
        let eval_sets = eval_sets(recipe);
        let lengths = Lengths {
            prompt: args.prompt_tokens.unwrap_or(recipe.data.max_prompt_tokens as f64),
            response: args.response_tokens.unwrap_or(recipe.sampling.max_new_tokens as f64),
        };
        let of = Workload { recipe, eval_sets: eval_sets.as_deref(), config, device: &device };
        of.check()?;
        plans.push((estimate(of, lengths), recipe.gate().map(|_| teacher_helps(recipe))));
    }
    if args.json {
        let with_gate = |(plan, gate): &(Estimate, Option<String>)| {
            let mut plan = serde_json::to_value(plan)?;
            plan["gate"] = gate.clone().into();
            Ok(plan)
        };
        let plans: Vec<serde_json::Value> = plans.iter().map(with_gate).collect::<Result<_>>()?;
        outln!("{}", serde_json::to_string_pretty(&plans)?);
        return Ok(());
    }
    for (plan, gate) in &plans {
        print(plan)?;
        if let Some(it) = gate {
            outln!("gate: {it}\n");
        }
    }
    // With other keys or another model it is not the recipe's run that was planned.
    if overrides.set.is_empty() && overrides.unset.is_empty() && args.model.is_none() {
        errln!("to start it: hapo train {}", args.recipe.display());
    }
    Ok(())
}

/// Until when the teacher can help, where the tokenizer and the data are on this machine.
fn teacher_helps(recipe: &Recipe) -> String {
    let rule = recipe.gate().map(|it| it.rule);
    if let Some(rule) = rule.filter(|it| !it.is_table) {
        return format!("`{}` opens by what is sampled", rule.name);
    }
    let schedule = || -> Result<_> { Ok(hapo_train::schedule_of(&RunPlan::settle(recipe)?)?) };
    match schedule() {
        Ok(Some(it)) => it.table(0).teacher_helps(recipe.steps),
        Ok(None) => "the teacher never helps".to_owned(),
        Err(it) => format!("not known before the tokenizer and the data can be read: {it}"),
    }
}

fn unknown_device(name: &str) -> anyhow::Error {
    let problem = format!("--device: expected cpu or a known GPU, got `{name}`");
    if let Some((name, format)) = name.split_once(':') {
        return bad_input(problem, format!("write --device {name} --compute {format}"));
    }
    let known: Vec<&str> = DeviceSpec::gpus().collect();
    bad_input(problem, format!("known GPUs are {}", known.join(", ")))
}

/// The problems of a recipe's `[eval]`, where they are on the disk or built in.
fn eval_sets(recipe: &Recipe) -> Option<Vec<EvalSet>> {
    let eval = recipe.eval.as_ref()?;
    let is_remote = eval.data.as_ref().is_some_and(|data| data.starts_with("hf:"));
    if is_remote { None } else { train::eval_sets(eval, false).ok().flatten() }
}

fn print(plan: &Estimate) -> Result<()> {
    let gb = |bytes: u64| format!("{:.2} GB", bytes as f64 / 1e9);
    let device = match plan.device.compute {
        Compute::F32 => plan.device.name.clone(),
        other => format!("{}, {other} products", plan.device.name),
    };
    outln!("{}: {} parameters on {device}", plan.name, grouped(plan.parameters));
    outln!("\nmemory");
    for it in &plan.memory {
        outln!("  {:<20} {:>12}", it.name, gb(it.bytes));
    }
    outln!("  {:<20} {:>12}  of {}", "all", gb(plan.total_bytes), gb(plan.device.memory_bytes));
    if !plan.fits {
        outln!("  does not fit; what lowers it and leaves the loss as it is:");
    }
    for it in &plan.changes {
        let fits =
            if it.total_bytes <= plan.device.memory_bytes { "" } else { "  (not enough alone)" };
        outln!("    --set {:<38} {:>12}{fits}", it.set, gb(it.total_bytes));
    }
    let (disk, one) = (gb(plan.disk_bytes), gb(plan.checkpoint_bytes));
    outln!("\ndisk: up to {disk} of checkpoints of {one} each, and the rollouts");
    let Lengths { prompt, response } = plan.lengths;
    outln!("\na step of {prompt:.0}-token prompts and {response:.0}-token responses");
    if plan.sequences_at_once > 0 {
        outln!("  {} sequences at once", grouped(plan.sequences_at_once as u64));
    }
    let parts = [
        ("sampling", plan.sampled_tokens, plan.sampling_flops, plan.sampling_seconds),
        ("training", plan.trained_tokens, plan.training_flops, plan.training_seconds),
    ];
    for (part, tokens, flops, seconds) in parts {
        let (tokens, teraflops, time) = (grouped(tokens as u64), flops / 1e12, duration(seconds));
        outln!("  {part}  {tokens:>12} tokens  {teraflops:>10.3} TFLOP  {time:>9}");
    }
    if let Some(it) = &plan.evaluation {
        let (completions, tokens) = (grouped(it.completions), grouped(it.tokens as u64));
        let (all, time) = (counted(it.times, "evaluation", "evaluations"), duration(it.seconds));
        outln!("  {all} of {completions} completions, {tokens} tokens: {time} each");
    }
    let steps = counted(plan.steps, "step", "steps");
    outln!("  {steps}: {}\n", duration(plan.seconds()));
    Ok(())
}

fn grouped(value: u64) -> String {
    let digits: Vec<char> = value.to_string().chars().collect();
    let groups = digits.rchunks(3).rev().map(|it| it.iter().collect::<String>());
    groups.collect::<Vec<_>>().join(",")
}
