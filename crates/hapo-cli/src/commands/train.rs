//! `hapo train`: any method, by a recipe.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use hapo_train::{Begin, Metrics, Observer, Recipe};

use crate::progress::StepProgress;

/// Train by a recipe.
#[derive(clap::Args)]
#[command(
    before_help = "Example: hapo train recipes/quickstart/hapo.toml --set steps=20 --run-dir runs/try"
)]
pub(crate) struct Args {
    /// The recipe
    recipe: PathBuf,
    /// Override a key: section.key=value
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Folder of the run [default: runs/NAME]
    #[arg(long)]
    run_dir: Option<PathBuf>,
    /// Go on from the latest checkpoint of the folder
    #[arg(long)]
    resume: bool,
    /// With --resume: go on although the recipe has changed
    #[arg(long, requires = "resume")]
    force_recipe: bool,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
    /// No progress
    #[arg(long)]
    quiet: bool,
}

pub(crate) fn run(args: &Args, threads: usize) -> Result<()> {
    let recipe = Recipe::load(&args.recipe, &args.overrides)?;
    let run_dir = args
        .run_dir
        .clone()
        .unwrap_or_else(|| PathBuf::from("runs").join(&recipe.name));
    let mut observer = Shown::new(&recipe.name, recipe.raw.steps, args.quiet)?;
    let begin = match (args.resume, args.force_recipe) {
        (true, true) => Begin::ResumeWithRecipe,
        (resume, _) => Begin::from(resume),
    };
    let outcome = hapo_train::train(&recipe, &run_dir, begin, threads, &mut observer)?;
    observer.progress.finish();
    if args.json {
        let json = serde_json::json!({
            "run_dir": run_dir, "steps": outcome.steps, "checkpoint": outcome.checkpoint, "finished": outcome.finished,
        });
        outln!("{json}");
    } else if outcome.finished && outcome.steps_now == 0 {
        outln!(
            "all {} steps were done before; nothing to do, the model is in {}",
            outcome.steps,
            outcome.checkpoint.display()
        );
    } else if outcome.finished {
        outln!(
            "{} steps done; the model is in {}",
            outcome.steps,
            outcome.checkpoint.display()
        );
    } else {
        outln!(
            "stopped after step {}; saved in {}",
            outcome.steps,
            outcome.checkpoint.display()
        );
        outln!(
            "to go on: hapo train {} --run-dir {} --resume",
            args.recipe.display(),
            run_dir.display()
        );
    }
    Ok(())
}

/// Shows a run's steps and passes on the user's wish to stop.
pub(crate) struct Shown {
    pub(crate) progress: StepProgress,
    stop: Arc<AtomicBool>,
}

impl Shown {
    pub(crate) fn new(label: &str, steps: u64, quiet: bool) -> Result<Self> {
        Ok(Self {
            progress: StepProgress::new(label, steps, quiet),
            stop: crate::interrupt::flag()?,
        })
    }
}

impl Observer for Shown {
    fn step(&mut self, step: u64, metrics: &Metrics) {
        self.progress.step(step, metrics);
    }

    fn warning(&mut self, text: &str) {
        self.progress.line(&format!("warning: {text}"));
    }

    fn stop_requested(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
