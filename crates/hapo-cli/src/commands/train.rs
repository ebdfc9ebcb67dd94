//! `hapo train`: any method, by a recipe.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{ffi::OsStr, sync::Arc};

use anyhow::Result;
use hapo_core::{counted, found_at};
use hapo_data::Reading;
use hapo_eval::{ProblemSet, ProblemSets, SetChoice};
use hapo_kernels::{Compute, Device};
use hapo_train::recipe::{DataSource, EvalSection};
use hapo_train::{
    EvalSet, Meter, Metrics, ModelSource, Observer, Outcome, Overrides, Preflight, Recipe,
    ResumePolicy, RunPlan, Sources,
};

use crate::commands::train_summary::Summary;
use crate::failure::bad_input;
use crate::progress::{Log, StepProgress, speak_json};
use crate::support::arguments::{OverrideArgs, one_of};
use crate::support::device::{DeviceArg, DeviceChoice, FORMATS, start_line};
use crate::support::machine::ProductRates;
use crate::support::{hub, interrupt, machine};

/// Train by a recipe.
#[derive(clap::Args)]
#[command(
    before_help = "Example: hapo train builtin:first --run-dir runs/try\n         hapo train builtin:hapo-method --set seed=1 --run-dir runs/hapo-1",
    mut_arg("compute", |arg| arg.value_parser(one_of(FORMATS)).help("Format of products' factors; auto: bf16 where it is faster [default: the recipe's, else f32]"))
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Args {
    /// The recipe: a file, a run's folder, or builtin:NAME of `hapo list recipes`
    recipe: PathBuf,
    #[command(flatten)]
    overrides: OverrideArgs,
    /// Folder of the run [default: runs/NAME, or the folder that is given as the recipe]
    #[arg(long)]
    run_dir: Option<PathBuf>,
    /// Resume from the latest checkpoint of the folder
    #[arg(long)]
    resume: bool,
    /// With --resume: resume although the recipe, the data or the base model has changed
    #[arg(long, requires = "resume")]
    force_recipe: bool,
    /// Write no checkpoint, to measure time and memory
    #[arg(long, conflicts_with = "resume")]
    no_checkpoint: bool,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
    /// No progress
    #[arg(long)]
    quiet: bool,
    /// Skip the look at the first prompts before the first step
    #[arg(long)]
    no_preflight: bool,
    /// How progress and messages are written to standard error
    #[arg(long, value_enum, default_value_t = Log::Text, conflicts_with = "quiet")]
    log: Log,
    #[command(flatten)]
    device: DeviceArg,
}

pub(crate) fn run(args: &Args, threads: usize) -> Result<()> {
    if args.log == Log::Json {
        speak_json();
    }
    let mut overrides = args.overrides.computing(args.device.compute.set());
    let mut stages = Recipe::load_stages(&args.recipe, &overrides)?;
    if args.device.compute.is_auto() {
        overrides.set.push(format!("compute={}", args.faster(&stages, threads)?));
        stages = Recipe::load_stages(&args.recipe, &overrides)?;
    }
    let compute = stages[0].compute;
    if let Some(it) = stages.iter().find(|it| it.compute != compute) {
        let (other, name) = (it.compute, it.name());
        let problem = format!(
            "compute: the stages of a recipe compute alike, got {compute} and, in {name}, {other}"
        );
        return Err(bad_input(problem, "write `compute` once, above the stages"));
    }
    on_device!(args.device, compute, threads, |device| train(args, &stages, &device))
}

fn train<D: Device + Clone>(args: &Args, stages: &[Recipe], device: &D) -> Result<()> {
    let run_dir = args.run_dir(stages)?;
    let begin = match (args.resume, args.force_recipe) {
        (true, true) => ResumePolicy::ResumeWithRecipe,
        (true, false) => ResumePolicy::Resume,
        (false, _) if args.no_checkpoint => ResumePolicy::Measure,
        (false, _) => ResumePolicy::Fresh,
    };
    if args.resume {
        hapo_train::require_run(&run_dir, stages)?;
    } else {
        // A later stage must not be found taken when the earlier ones are done.
        for it in stages {
            hapo_train::require_no_run(&hapo_train::stage_folder(&run_dir, it))?;
        }
    }
    let found: Vec<Sources> = stages.iter().map(sources_of).collect::<Result<_>>()?;
    // A stage that is refused leaves the folder as it is.
    for (recipe, sources) in stages.iter().zip(&found).filter(|_| args.resume) {
        let folder = hapo_train::stage_folder(&run_dir, recipe);
        if recipe.stage().is_some() && hapo_run::RunFolder(&folder).holds_run()? {
            let plan = RunPlan::settle_in(&folder, recipe, sources.clone())?;
            hapo_train::require_same_run(&plan, &folder, begin)?;
        }
    }
    hapo_train::keep_stages(&run_dir, stages)?;
    let (mut done, mut told) = (Vec::new(), Ok(()));
    for (recipe, sources) in stages.iter().zip(found) {
        let folder = hapo_train::stage_folder(&run_dir, recipe);
        let mut observer = args.observer(recipe)?;
        interrupt::set_loading(true);
        let plan = RunPlan::settle_in(&folder, recipe, sources)?;
        let tracking = crate::commands::export::Tracking::of(recipe, &folder);
        let outcome = hapo_train::train_on(device.clone(), &plan, &folder, begin, &mut observer)?;
        drop(observer);
        drop(tracking);
        interrupt::set_loading(false);
        let summary = Summary::of(&folder, outcome.steps)?;
        let stage = Stage { name: recipe.name(), folder, outcome, summary };
        // The next stage does not depend on who reads about this one.
        told = told.and(stage.tell(args));
        let finished = stage.outcome.finished;
        done.push(stage);
        if !finished {
            break;
        }
    }
    told?;
    let last = done.last().expect("a recipe has a stage");
    if args.json {
        let mut json = last.json();
        if stages.len() > 1 {
            let all = done.iter().map(|it| (it.name.to_owned(), it.json()));
            json["stages"] = all.collect::<serde_json::Map<_, _>>().into();
            json["finished"] = (last.outcome.finished && done.len() == stages.len()).into();
        }
        outln!("{json}");
    } else if args.log == Log::Json {
        // The events have said it.
    } else if !last.outcome.finished && !args.no_checkpoint {
        outln!("to resume: hapo train {} --resume", run_dir.display());
    } else if let Some(why) = last.flat().filter(|_| !args.quiet) {
        errln!(
            "nothing was learned: {why}; `hapo doctor {}` says the likely cause, `hapo report {}` shows the answers",
            last.folder.display(),
            run_dir.display()
        );
    } else if !args.quiet {
        errln!("to see it: hapo report {}", run_dir.display());
    }
    match &last.outcome.stopped_by {
        Some(alarm) => anyhow::bail!("stopped by the guard: {alarm}"),
        None => Ok(()),
    }
}

impl Args {
    /// The folder of the run: `--run-dir`, or `runs/` and the recipe's name.
    fn run_dir(&self, stages: &[Recipe]) -> Result<PathBuf> {
        if let Some(it) = &self.run_dir {
            return Ok(it.clone());
        }
        if found_at(&self.recipe)?.is_some_and(|it| it.is_dir()) {
            return Ok(self.recipe.clone());
        }
        Ok(usual_run_dir(stages, Some(&self.recipe)))
    }

    /// The format of `--compute auto`: the faster one here, or that of the run which goes on.
    fn faster(&self, stages: &[Recipe], threads: usize) -> Result<Compute> {
        if self.device.device != DeviceChoice::Cpu {
            let hint = "name the format: --compute bf16";
            return Err(bad_input("--compute auto compares the formats of a CPU", hint));
        }
        if self.resume {
            let kept = Recipe::load_stages(&self.run_dir(stages)?, &Overrides::default())?;
            return Ok(kept[0].compute);
        }
        let Some(rates) = ProductRates::measure(threads)? else { return Ok(Compute::F32) };
        errln!("compute = \"{}\": {rates}", rates.faster());
        Ok(rates.faster())
    }

    fn observer(&self, recipe: &Recipe) -> Result<ProgressObserver> {
        let (name, steps) = (recipe.name(), recipe.steps);
        let log = (!self.quiet).then_some(self.log);
        Ok(ProgressObserver {
            progress: StepProgress::new(name, steps, log),
            preflight: !self.quiet && !self.no_preflight,
            verbose: self.device.verbose,
            stop: interrupt::flag()?,
        })
    }
}

/// `runs/NAME`: the recipe's name, or that of its file where it has several stages.
pub fn usual_run_dir(stages: &[Recipe], file: Option<&Path>) -> PathBuf {
    // A stage hands its model on by a path in a text.
    let stem = file.and_then(Path::file_stem).map(OsStr::to_string_lossy);
    Path::new("runs").join(match (stages, &stem) {
        ([one], _) if one.stage().is_none() => one.name(),
        (_, Some(stem)) => stem,
        (_, None) => "run",
    })
}

/// Finds the model and the data of a recipe on the disk, or on the hub where they are named so.
pub fn sources_of(recipe: &Recipe) -> Result<Sources> {
    let mut sources = Sources::default();
    if let ModelSource::Folder(path) = recipe.model() {
        sources.model = Some(hub::model_folder(path)?);
    }
    if let Some(ModelSource::Folder(path)) = recipe.reference() {
        sources.reference = Some(hub::model_folder(path)?);
    }
    if let DataSource::Files(names) = &recipe.data.train
        && names.iter().any(|name| name.starts_with("hf:"))
    {
        let found = names.iter().map(|name| hub::data_file(Path::new(name)));
        sources.train = Some(found.collect::<Result<_>>()?);
    }
    if let Some(eval) = recipe.eval.as_ref() {
        sources.eval = eval_sets(eval, recipe.keeps_fields())?.map(Into::into);
    }
    // A later stage must not miss its files when the earlier ones are done.
    sources.check(recipe)?;
    Ok(sources)
}

/// The problems of `[eval]`, where they are not in a file on the disk.
pub(crate) fn eval_sets(eval: &EvalSection, keeps_fields: bool) -> Result<Option<Vec<EvalSet>>> {
    let folder = eval.data.as_deref().map(Path::new);
    let Some(names) = &eval.suite else {
        let Some(name) = folder.filter(|it| it.starts_with("hf://")) else { return Ok(None) };
        let reading = Reading { keeps_fields, ..Reading::default() };
        let dataset = hapo_train::load_file(&hub::data_file(name)?, &reading)?;
        return Ok(Some(vec![EvalSet { name: name.display().to_string(), dataset }]));
    };
    let chosen = ProblemSets::choose(SetChoice {
        names,
        folder,
        problems: eval.problems,
        first: None,
        split: hapo_data::task::Split::HeldOut,
        completions: None,
        max_tokens: None,
    })?;
    let set = |it: ProblemSet| EvalSet { name: it.name, dataset: it.dataset };
    Ok(Some(chosen.sets.into_iter().map(set).collect()))
}

struct Stage<'a> {
    name: &'a str,
    folder: PathBuf,
    outcome: Outcome,
    summary: Option<Summary>,
}

impl Stage<'_> {
    /// How it ended: an event, or lines on standard output unless JSON is to come there.
    fn tell(&self, args: &Args) -> Result<()> {
        if args.log == Log::Json {
            let mut json = self.json();
            json["event"] = "end".into();
            json["run"] = self.name.into();
            json["summary"] = self.summary.as_ref().map(Summary::json).into();
            errln!("{json}");
        } else if !args.json {
            outln!("{}: {}", self.name, how_it_ended(&self.outcome));
            let shown = self.summary.as_ref().filter(|_| !args.quiet);
            if let Some(it) = shown.filter(|_| self.outcome.steps_now > 0) {
                outln!("{}: {}", self.name, it.text());
            }
        }
        Ok(())
    }

    fn flat(&self) -> Option<&'static str> {
        self.summary.as_ref().and_then(|it| it.flat)
    }

    fn json(&self) -> serde_json::Value {
        let it = &self.outcome;
        // As text: a path that is no UTF-8 has no JSON.
        let run_dir = self.folder.display().to_string();
        let checkpoint = it.checkpoint.as_ref().map(|it| it.display().to_string());
        serde_json::json!({
            "run_dir": run_dir, "steps": it.steps, "steps_now": it.steps_now, "checkpoint": checkpoint,
            "finished": it.finished, "stopped_early": it.stopped_early, "stopped_by": it.stopped_by,
            "learned": self.flat().is_none(),
        })
    }
}

fn how_it_ended(it: &Outcome) -> String {
    let (steps, all) = (it.steps, counted(it.steps, "step", "steps"));
    match (it.checkpoint.as_ref().map(|it| it.display()), &it.stopped_early) {
        (None, _) => format!("{all} done; no checkpoint was written"),
        (Some(folder), Some(why)) => {
            format!("ended early after step {steps}: {why}; the model is in {folder}")
        }
        (Some(folder), _) if !it.finished => {
            format!("stopped after step {steps}; saved in {folder}")
        }
        (Some(folder), _) if it.steps_now == 0 => {
            format!("{all} done before; nothing to do, the model is in {folder}")
        }
        (Some(folder), _) => format!("{all} done; the model is in {folder}"),
    }
}

/// Shows a run's steps, until it is dropped, and passes on the user's wish to stop.
pub struct ProgressObserver {
    progress: StepProgress,
    stop: Arc<AtomicBool>,
    preflight: bool,
    verbose: bool,
}

impl ProgressObserver {
    /// Of a run of `steps` steps; `stop` is set where the run should end after its step.
    pub fn new(label: &str, steps: u64, quiet: bool, stop: Arc<AtomicBool>) -> Self {
        let progress = StepProgress::new(label, steps, (!quiet).then_some(Log::Text));
        Self { progress, stop, preflight: false, verbose: false }
    }
}

impl Observer for ProgressObserver {
    fn step(&mut self, step: u64, metrics: &Metrics) {
        self.progress.step(step, metrics);
    }

    fn started(&mut self, parts: &[(&'static str, f64)]) {
        if self.verbose {
            self.progress.line(&start_line(parts));
        }
    }

    fn note(&mut self, text: &str) {
        self.progress.note(text);
    }

    fn warning(&mut self, text: &str) {
        self.progress.line(&format!("warning: {text}"));
    }

    fn wants_preflight(&self) -> bool {
        self.preflight
    }

    fn preflight_begins(&mut self, prompts: usize, responses: usize) {
        self.progress.line(&format!(
            "pre-flight  sampling {} to {}, at most two steps' time (--no-preflight skips it)",
            counted(responses, "response", "responses"),
            counted(prompts, "prompt", "prompts")
        ));
    }

    fn preflight(&mut self, found: &Preflight) {
        self.progress.preflight(found);
    }

    fn build(&self) -> String {
        format!("hapo {} on {}", crate::VERSION, machine::cpu_name())
    }

    fn meter(&self) -> Meter {
        self.progress.meter()
    }

    fn steps_begin(&mut self) {
        self.progress.steps_begin();
        interrupt::set_loading(false);
    }

    fn stop_requested(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
