//! `hapo replay`: a recorded batch, computed again.

use std::path::PathBuf;

use anyhow::Result;
use hapo_train::{Trainer, replay};

use crate::failure::bad_input;

/// Recompute a recorded batch: losses, gradient norms, parameters after each step.
#[derive(clap::Args)]
#[command(
    before_help = "Example: hapo replay --model testdata/fixtures/models/tiny-qwen2 --batch testdata/fixtures/losses/cases.json --json"
)]
pub(crate) struct Args {
    /// Hugging Face folder
    #[arg(long)]
    model: String,
    /// An array of cases, laid out as testdata/fixtures/losses/cases.json
    #[arg(long)]
    batch: PathBuf,
    /// Print JSON: per case, losses, gradient norms and parameter norms of each step
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, threads: usize) -> Result<()> {
    let origin = args.batch.display().to_string();
    let text = std::fs::read_to_string(&args.batch).map_err(|it| {
        bad_input(
            format!("cannot read {origin}: {it}"),
            "name a JSON file of cases",
        )
    })?;
    let cases = replay::parse_cases(&text, &origin)?;
    let context = cases.iter().map(replay::Case::longest).max().unwrap_or(1);
    let mut all = Vec::with_capacity(cases.len());
    for (index, case) in cases.iter().enumerate() {
        // Every case starts from the weights of the folder.
        let model = hapo_train::open_model(&args.model, context, threads)?.model;
        let mut trainer = Trainer::new(model, hapo_model::Recompute::None)?;
        let steps = replay::replay(case, &mut trainer, &format!("case {index} of {origin}"))?;
        if !args.json {
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
    if args.json {
        outln!("{}", serde_json::to_string(&all)?);
    }
    Ok(())
}
