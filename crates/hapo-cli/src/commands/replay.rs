//! `hapo replay`: a recorded batch, computed again.

use std::path::{Path, PathBuf};

use anyhow::Result;
use hapo_kernels::Device;
use hapo_train::{Overrides, RunPlan, Trainer, replay};

use crate::commands::train::find;
use crate::failure::bad_input;
use crate::support::device::{ComputeArg, DeviceArg};
use crate::support::model::{Named, open_beside};

/// Recompute a recorded batch, or a step of a run from the rollouts it kept.
#[derive(clap::Args)]
#[command(
    before_help = "Example: hapo replay --model testdata/fixtures/models/tiny-qwen2 --batch testdata/fixtures/losses/cases.json --json"
)]
pub(crate) struct Args {
    /// Hugging Face folder of a recorded batch
    #[arg(long, requires = "batch")]
    model: Option<String>,
    /// PEFT folder of an adapter of the model, which is trained in its place
    #[arg(long, value_name = "DIR", requires = "batch")]
    adapter: Option<PathBuf>,
    /// An array of cases, laid out as testdata/fixtures/losses/cases.json
    #[arg(long, requires = "model")]
    batch: Option<PathBuf>,
    /// Folder of a run whose step is computed again from the rollouts it kept
    #[arg(long, requires = "step", conflicts_with_all = ["model", "batch"])]
    run: Option<PathBuf>,
    /// The step of the run
    #[arg(long, requires = "run")]
    step: Option<u64>,
    /// Print JSON: per case, losses, gradient norms and parameter norms of each step
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArg,
}

pub(crate) fn run(args: &Args, threads: usize) -> Result<()> {
    let (device, compute) = (args.device, args.device.compute);
    match (&args.run, args.step, &args.model, &args.batch) {
        (Some(run), Some(step), _, _) => {
            let plan = plan_of(run, compute)?;
            on_device!(device, plan.recipe().compute(), threads, |device| step_of_run(
                run, &plan, step, args.json, device
            ))
        }
        (_, _, Some(model), Some(batch)) => {
            let named = Named { model, adapter: args.adapter.as_deref() };
            on_device!(device, compute.or_f32(), threads, |device| recorded(
                named, batch, args.json, &device
            ))
        }
        _ => Err(bad_input(
            "nothing to replay",
            "name a recorded batch by --model and --batch, or a step of a run by --run and --step",
        )),
    }
}

/// The plan of a run, to be computed with what is asked for.
fn plan_of(run: &Path, compute: ComputeArg) -> Result<RunPlan> {
    let mut recipe = hapo_train::replay_run::recipe_of(run)?;
    if let Some(compute) = compute.set() {
        recipe = recipe.with(&Overrides::set([&compute]))?;
    }
    Ok(RunPlan::settle_in(run, &recipe, find(&recipe)?)?)
}

/// A step of a run, from its kept rollouts, next to what was logged.
fn step_of_run<D: Device>(
    run: &Path,
    plan: &RunPlan,
    step: u64,
    json: bool,
    device: D,
) -> Result<()> {
    let it = hapo_train::replay_run::replay_run_on(device, plan, run, step)?;
    if json {
        outln!("{}", serde_json::to_string(&it)?);
    } else {
        outln!("step {step}, from the weights of step {}", it.from_step);
        outln!("              logged                 again");
        outln!("loss          {:<22e} {:e}", it.logged_loss, it.loss);
        outln!("gradient norm {:<22e} {:e}", it.logged_grad_norm, it.grad_norm);
    }
    if it.agrees() {
        return Ok(());
    }
    anyhow::bail!("step {step} of {} is not what was logged", run.display())
}

fn recorded<D: Device + Clone>(
    named: Named<'_>,
    batch: &Path,
    json: bool,
    device: &D,
) -> Result<()> {
    let origin = batch.display().to_string();
    let text = std::fs::read_to_string(batch).map_err(|it| {
        bad_input(format!("cannot read {origin}: {it}"), "name a JSON file of cases")
    })?;
    let cases = replay::parse_cases(&text, &origin)?;
    let context = cases.iter().map(replay::Case::longest).max().unwrap_or(1);
    let mut all = Vec::with_capacity(cases.len());
    for (index, case) in cases.iter().enumerate() {
        // Every case starts from the weights of the folder.
        let model = open_beside(named, context, device.clone())?.model;
        let mut trainer = Trainer::new(model, hapo_model::ActivationCheckpointing::None)?;
        let steps = replay::replay(case, &mut trainer, &format!("case {index} of {origin}"))?;
        if !json {
            for (step, it) in steps.iter().enumerate() {
                outln!(
                    "case {index} step {}: loss {:.9e} gradient norm {:.9e}",
                    step + 1,
                    it.loss,
                    it.grad_norm
                );
            }
        }
        all.push(serde_json::json!({ "steps": steps }));
    }
    if json {
        outln!("{}", serde_json::to_string(&all)?);
    }
    Ok(())
}
