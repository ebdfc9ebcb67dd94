//! Runs a recipe inside this process and follows it step by step.
//!
//! `cargo run --release --example train [FOLDER OF THE RUN]`

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example shows what it does")]

use std::path::PathBuf;

use hapo::train::{Metrics, Observer, Overrides, Recipe, ResumePolicy, RunPlan, Sources, train};

struct ProgressLines;

impl Observer for ProgressLines {
    fn step(&mut self, step: u64, metrics: &Metrics) {
        let of = |name| metrics.get(name).unwrap_or(f64::NAN);
        println!(
            "step {step}: reward {:.3}, teacher in {:.0} % of the groups",
            of("reward/policy_only"),
            100.0 * of("gate/beta")
        );
    }

    fn warning(&mut self, text: &str) {
        eprintln!("warning: {text}");
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder =
        std::env::args().nth(1).map_or_else(|| PathBuf::from("runs/example"), PathBuf::from);
    let overrides = Overrides::set(["steps=3"]);
    let recipe = Recipe::load("recipes/smoke.toml".as_ref(), &overrides)?;
    let plan = RunPlan::settle_in(&folder, &recipe, Sources::default())?;
    // A second start resumes where the first one stopped, and has nothing to do here.
    let outcome = train(&plan, &folder, ResumePolicy::Resume, 2, &mut ProgressLines)?;
    let checkpoint = outcome.checkpoint.expect("a resumable run is saved");
    println!("{} steps now; the model is in {}", outcome.steps_now, checkpoint.display());
    Ok(())
}
