//! `hapo train`: any method, by a recipe.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use hapo_kernels::Device;
use hapo_train::{Begin, Metrics, ModelSource, Observer, Outcome, Preflight, Recipe};

use crate::commands::watch;
use crate::device::DeviceArg;
use crate::hub;
use crate::progress::{Log, StepProgress};

/// Train by a recipe.
#[derive(clap::Args)]
#[command(
    before_help = "Example: hapo train recipes/smoke.toml --run-dir runs/try\n         hapo train recipes/mini/hapo-method.toml --set seed=1 --run-dir runs/hapo-1 --watch"
)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
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
    /// How progress and messages are written to standard error
    #[arg(long, value_enum, default_value_t = Log::Text, conflicts_with = "quiet")]
    log: Log,
    /// Show the run in a browser while it goes; without a port, a free one
    #[arg(
        long,
        value_name = "PORT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "0"
    )]
    watch: Option<u16>,
    #[command(flatten)]
    device: DeviceArg,
}

pub(crate) fn run(args: &Args, threads: usize) -> Result<()> {
    on_device!(args.device.device, threads, |device| train(args, &device))
}

fn train<D: Device + Clone>(args: &Args, device: &D) -> Result<()> {
    let mut stages = Recipe::load_stages(&args.recipe, &args.overrides)?;
    let name = match stages.as_slice() {
        [one] if one.stage.is_none() => one.name.clone(),
        _ => args
            .recipe
            .file_stem()
            .map_or_else(|| "run".to_owned(), |it| it.to_string_lossy().into_owned()),
    };
    let run_dir = args
        .run_dir
        .clone()
        .unwrap_or_else(|| PathBuf::from("runs").join(name));
    let begin = match (args.resume, args.force_recipe) {
        (true, true) => Begin::ResumeWithRecipe,
        (resume, _) => Begin::from(resume),
    };
    if begin == Begin::Fresh {
        // A later stage must not be found taken when the earlier ones are done.
        for it in &stages {
            hapo_train::require_no_run(&hapo_train::stage_folder(&run_dir, it))?;
        }
    }
    for it in &mut stages {
        if let ModelSource::Folder(path) = &mut it.model {
            *path = hub::model_folder(path)?;
        }
        if it.raw.data.train.starts_with("hf://") {
            it.train_file = Some(hub::data_file(Path::new(&it.raw.data.train))?);
        }
    }
    if let Some(port) = args.watch {
        let url = watch::beside(&run_dir, port)?;
        match args.log {
            Log::Json => eprintln!("{}", serde_json::json!({ "event": "watch", "url": url })),
            Log::Text => eprintln!("watch: {url}"),
        }
    }
    let mut outcomes = Vec::new();
    for recipe in &stages {
        let folder = hapo_train::stage_folder(&run_dir, recipe);
        let mut observer = Shown::new(&recipe.name, recipe.raw.steps, args.quiet)?;
        if args.log == Log::Json {
            observer.progress = StepProgress::json(&recipe.name, recipe.raw.steps);
        }
        observer.preflight = !args.quiet;
        let outcome = hapo_train::train_on(device.clone(), recipe, &folder, begin, &mut observer);
        observer.progress.finish();
        let outcome = outcome?;
        if !args.json {
            say(&recipe.name, &outcome)?;
        }
        let finished = outcome.finished;
        outcomes.push((recipe, folder, outcome));
        if !finished {
            break;
        }
    }
    let (_, folder, last) = outcomes.last().expect("a recipe has a stage");
    if args.json {
        let mut json = json_of(folder, last);
        if stages.len() > 1 {
            let all = outcomes
                .iter()
                .map(|it| (it.0.name.clone(), json_of(&it.1, &it.2)));
            json["stages"] = all.collect::<serde_json::Map<_, _>>().into();
            json["finished"] = (last.finished && outcomes.len() == stages.len()).into();
        }
        outln!("{json}");
    } else if !last.finished {
        outln!(
            "to go on: hapo train {} --run-dir {} --resume",
            args.recipe.display(),
            run_dir.display()
        );
    } else if !args.quiet && args.log == Log::Text {
        eprintln!("to see it: hapo report {}", run_dir.display());
    }
    match &last.stopped_by {
        Some(alarm) => anyhow::bail!("stopped by the guard: {alarm}"),
        None => Ok(()),
    }
}

fn say(name: &str, outcome: &Outcome) -> Result<()> {
    let Outcome {
        steps, checkpoint, ..
    } = outcome;
    let checkpoint = checkpoint.display();
    match (outcome.finished, outcome.steps_now) {
        (true, 0) => outln!(
            "{name}: all {steps} steps were done before; nothing to do, the model is in {checkpoint}"
        ),
        (true, _) => outln!("{name}: {steps} steps done; the model is in {checkpoint}"),
        (false, _) => outln!("{name}: stopped after step {steps}; saved in {checkpoint}"),
    }
    Ok(())
}

fn json_of(folder: &Path, it: &Outcome) -> serde_json::Value {
    serde_json::json!({
        "run_dir": folder, "steps": it.steps, "steps_now": it.steps_now, "checkpoint": it.checkpoint,
        "finished": it.finished, "stopped_by": it.stopped_by,
    })
}

/// Shows a run's steps and passes on the user's wish to stop.
pub(crate) struct Shown {
    pub(crate) progress: StepProgress,
    stop: Arc<AtomicBool>,
    preflight: bool,
}

impl Shown {
    pub(crate) fn new(label: &str, steps: u64, quiet: bool) -> Result<Self> {
        Ok(Self {
            progress: StepProgress::new(label, steps, quiet),
            stop: crate::interrupt::flag()?,
            preflight: false,
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

    fn wants_preflight(&self) -> bool {
        self.preflight
    }

    fn preflight(&mut self, found: &Preflight) {
        for it in found.lines() {
            self.progress.line(&it);
        }
    }

    fn build(&self) -> String {
        format!("hapo {}", crate::VERSION)
    }

    fn stop_requested(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
