//! `hapo replay`: a step of a run, computed again.

use std::path::PathBuf;

use anyhow::Result;
use hapo_train::{Overrides, RunPlan};

use crate::support::device::DeviceArg;

/// Recompute a step of a run from the rollouts it kept.
#[derive(clap::Args)]
#[command(before_help = "Example: hapo replay --run runs/first --step 3 --json")]
pub(crate) struct Args {
    /// Folder of the run
    #[arg(long)]
    run: PathBuf,
    /// The step
    #[arg(long)]
    step: u64,
    /// Print JSON: the loss and the gradient norm that were logged, and those found now
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArg,
}

pub(crate) fn run(args: &Args, threads: usize) -> Result<()> {
    let mut recipe = hapo_train::replay_run::recipe_of(&args.run)?;
    if let Some(compute) = args.device.compute.set() {
        recipe = recipe.with(&Overrides::set([&compute]))?;
    }
    let sources = crate::commands::train::sources_of(&recipe)?;
    let plan = RunPlan::settle_in(&args.run, &recipe, sources)?;
    on_device!(args.device, plan.recipe().compute, threads, |device| step_of_run(
        args, &plan, device
    ))
}

fn step_of_run<D: hapo_kernels::Device>(args: &Args, plan: &RunPlan, device: D) -> Result<()> {
    let (run, step) = (&args.run, args.step);
    let it = hapo_train::replay_run::replay_run_on(device, plan, run, step)?;
    if args.json {
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
