//! The loop over a run's steps and everything that lets it survive: one process per folder, files
//! that are complete or absent, a resume that continues with the same bits.
//!
//! The price: every checkpoint waits for the disk. Between checkpoints nothing does.

use std::path::{Path, PathBuf};

use hapo_core::{Fault, Refusal, counted, found_at, if_there};
use hapo_kernels::{Cpu, Device};
use hapo_run::{
    Busy, EarlyEnd, Lock, Metrics, MetricsFile, Preflight, REWARD_BELOW_WRONG, RunFolder,
    create_folder, entries, lock_folder, write_atomically,
};
use serde::Serialize;
use serde_json::Value;

use crate::checkpoint::resume::{self, Found, ResumePolicy};
use crate::checkpoint::{self, CheckpointStore};
use crate::observe::best::{EarlyStopping, Score};
use crate::recipe::{ModelSource, Recipe};
use crate::{
    Result, checkpoint::stage_output::Start, grading::no_reward, observe::Meter,
    observe::guard::Guard, observe::logged, observe::tensorboard::Events, plan::run_plan::RunPlan,
    run::Run, run::preflight::preflight,
};

pub trait Observer {
    fn step(&mut self, step: u64, metrics: &Metrics);

    /// Model and data are there; each part of the start with its seconds.
    fn started(&mut self, _parts: &[(&'static str, f64)]) {}

    fn note(&mut self, _text: &str) {}

    fn warning(&mut self, _text: &str) {}

    /// True if a new run should sample some prompts before its first step and report on them.
    fn wants_preflight(&self) -> bool {
        false
    }

    /// The pre-flight samples these numbers of prompts and responses now; it takes at most two steps' time.
    fn preflight_begins(&mut self, _prompts: usize, _responses: usize) {}

    fn preflight(&mut self, _found: &Preflight) {}

    fn meter(&self) -> Meter {
        Meter::default()
    }

    /// The build that runs, for the run folder.
    fn build(&self) -> String {
        format!("hapo {}", env!("CARGO_PKG_VERSION"))
    }

    /// The first step of this call begins: from here on a wish to stop is heard, and what is done is saved.
    fn steps_begin(&mut self) {}

    /// True if the run should stop after the step at hand, saving what it has.
    fn stop_requested(&self) -> bool {
        false
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outcome {
    pub steps: u64,
    /// Steps done by this call; 0 when the run was finished already.
    pub steps_now: u64,
    /// The last checkpoint; `None` under [`ResumePolicy::Measure`].
    pub checkpoint: Option<PathBuf>,
    /// True if every step of the recipe is done, or the run has ended early.
    pub finished: bool,
    /// Why it ended before its last step, where evaluations were no longer better.
    pub stopped_early: Option<String>,
    /// The alarm that ended the run (D23).
    pub stopped_by: Option<String>,
}

/// Makes the run of a plan in `run_dir`, on the CPU. Refuses a folder that another process trains in, that holds another
/// run, or whose checkpoints are all incomplete; fails where the disk is full, or the loss NaN or infinite, after saving
/// what there is.
pub fn train(
    plan: &RunPlan,
    run_dir: &Path,
    resume: ResumePolicy,
    threads: usize,
    observer: &mut dyn Observer,
) -> Result<Outcome> {
    train_on(Cpu::computing(threads, plan.recipe().compute)?, plan, run_dir, resume, observer)
}

pub fn train_on<D: Device>(
    device: D,
    plan: &RunPlan,
    run_dir: &Path,
    policy: ResumePolicy,
    observer: &mut dyn Observer,
) -> Result<Outcome> {
    let is_new = matches!(policy, ResumePolicy::Fresh | ResumePolicy::Measure);
    if is_new {
        require_no_run(run_dir)?;
    }
    create_folder(run_dir)?;
    let files = RunFolder(run_dir);
    // Whoever starts a second run in a folder has named the wrong one.
    let is_busy = |it: &Refusal| it.cause::<Busy>().is_some();
    let lock = Lock::take(files)
        .map_err(|it| if is_busy(&it) { it.with_fault(Fault::Input) } else { it })?;
    // Who held the lock may have made a run meanwhile.
    if is_new {
        require_no_run(run_dir)?;
    }
    train_locked(device, plan, run_dir, policy, observer).inspect_err(|_| lock.abandon(files))
}

fn train_locked<D: Device>(
    device: D,
    plan: &RunPlan,
    run_dir: &Path,
    policy: ResumePolicy,
    observer: &mut dyn Observer,
) -> Result<Outcome> {
    let is_new = matches!(policy, ResumePolicy::Fresh | ResumePolicy::Measure);
    let (recipe, files) = (plan.recipe(), RunFolder(run_dir));
    let resolved = plan.resolved(&observer.build());
    let found = if is_new {
        Found::default()
    } else {
        resume::find(run_dir, recipe, &resolved, policy, &mut |it| observer.warning(it))?
    };
    // Before anything is loaded or written: a finished run has nothing to do.
    if let Some(outcome) = finished_before(files, recipe, &found)? {
        let last = &found.checkpoint.as_ref().expect("a finished run has a checkpoint").0;
        for it in checkpoint::clean_up(run_dir, recipe.checkpoint.keep, last)? {
            observer.warning(&it);
        }
        return Ok(outcome);
    }
    let mut run = Run::on(device, plan)?;
    observer.started(&run.laps.laps);
    run.set_meter(&observer.meter());
    run.load_validation()?;
    if let Some(it) = plan.template().note() {
        observer.note(&format!("{it} (data.template names another)"));
    }
    if let Some(it) = plan.stage_output()? {
        observer.note(&it.because);
    }
    for it in recipe.warnings().into_iter().chain(run.warnings()) {
        observer.warning(&it);
    }
    let warn = &mut |it: &str| observer.warning(it);
    if let Some(before) = &found.inputs {
        run.hash_weights_as_in(before);
    }
    found.require_same_inputs(run_dir, run.inputs(), policy, warn)?;
    found.set_incomplete_aside(run_dir, warn)?;
    prepare_folder(files, &run, &resolved)?;
    if let Some((state, folder)) = &found.checkpoint
        && let Some(dropped) = run.restore(state, folder)?
    {
        observer.warning(dropped);
    }
    run.keep_rollouts_in(run_dir)?;
    run.keep_reward_log_in(run_dir)?;
    let first = run.steps_done();
    let file = MetricsFile::open(&files.metrics(), first)?;
    if file.lines < first {
        observer.warning(&format!(
            "metrics.jsonl holds {} of the {first} steps done; the others are lost",
            file.lines
        ));
    }
    if let Some(it) = &file.set_aside {
        observer.warning(&format!("the file as it was is {}", it.display()));
    }
    if first == 0 && observer.wants_preflight() {
        look_ahead(&mut run, recipe.metrics.preflight, files, observer)?;
    }
    let start = match first {
        0 => evaluate_start(&mut run, plan, run_dir, observer)?,
        _ => Start::read(run_dir)?,
    };
    let history = file.history()?;
    let lacks_evaluation = lacks_evaluation(recipe, first, &history);
    let (early_stopping, score) = so_far(recipe, start.as_ref(), &history, lacks_evaluation);
    let resumed = found.checkpoint.as_ref().map(|it| &it.0);
    let session = Session {
        run,
        observer,
        recipe,
        run_dir,
        resolved: &resolved,
        events: Events::open(run_dir, first, &resolved)?,
        guard: Guard::new(&recipe.guard, &history),
        early_stopping,
        saves: policy != ResumePolicy::Measure,
        score,
        is_best: false,
        has_below_wrong: history.iter().any(|it| it.get(REWARD_BELOW_WRONG).is_some()),
        shelf: CheckpointStore::new(run_dir, recipe.checkpoint.keep, resumed),
        saved_at: found.checkpoint.map(|it| (it.0.step, it.1)),
        file,
    };
    session.train(lacks_evaluation)
}

/// The outcome of a run that has nothing left to do: all its steps are done, or it has ended early.
fn finished_before(files: RunFolder, recipe: &Recipe, found: &Found) -> Result<Option<Outcome>> {
    let Some((state, folder)) = &found.checkpoint else { return Ok(None) };
    let history = MetricsFile::history_until(&files.metrics(), state.step)?;
    let start = Start::read(files.0)?;
    let looks = EarlyStopping::of(recipe, start.as_ref().map(|it| &it.metrics), &history);
    let stopped_early = looks.and_then(|it| it.ended());
    let all_done = state.step >= recipe.steps && !lacks_evaluation(recipe, state.step, &history);
    let finished = all_done || stopped_early.is_some();
    if let Some(because) = stopped_early.clone() {
        EarlyEnd { step: state.step, because }.write(files)?;
    }
    Ok(finished.then(|| Outcome {
        steps: state.step,
        steps_now: 0,
        checkpoint: Some(folder.clone()),
        finished: true,
        stopped_early,
        stopped_by: None,
    }))
}

/// The evaluations, and the score since the last checkpoint of an unbroken run, by the steps that are logged. Where the
/// last step lacks its evaluation, its checkpoint is still to be scored.
fn so_far<'a>(
    recipe: &'a Recipe,
    start: Option<&Start>,
    history: &[Value],
    lacks_evaluation: bool,
) -> (Option<EarlyStopping<'a>>, Score<'a>) {
    let mut early_stopping = EarlyStopping::of(recipe, start.map(|it| &it.metrics), &[]);
    let mut score = Score::new(recipe.best_metric());
    let complete = history.len() - usize::from(lacks_evaluation);
    for (index, line) in history.iter().enumerate() {
        let is_best = early_stopping.as_mut().is_some_and(|it| it.add(&logged(line)));
        score.add(&logged(line));
        let is_due = line["step"].as_u64().is_some_and(|step| recipe.saves_after(step));
        if is_best || is_due && index < complete {
            score.take();
        }
    }
    (early_stopping, score)
}

/// True if an evaluation was due after the last step that is logged, and failed.
fn lacks_evaluation(recipe: &Recipe, steps_done: u64, history: &[Value]) -> bool {
    let is_due = steps_done > 0 && recipe.evaluates_after(steps_done);
    let last = history.last().filter(|it| it.get("step") == Some(&steps_done.into()));
    is_due && last.is_some_and(|it| it.get("eval/avg@k").is_none())
}

fn prepare_folder<D: Device>(files: RunFolder, run: &Run<D>, resolved: &str) -> Result<()> {
    create_folder(&files.checkpoints())?;
    files.remove_leftovers()?;
    let ended = files.early_end();
    if_there(&ended, std::fs::remove_file(&ended))?;
    write_atomically(&files.recipe(), resolved.as_bytes())?;
    let inputs = serde_json::to_vec_pretty(run.inputs()).expect("hashes are plain data");
    write_atomically(&files.inputs(), &inputs)?;
    if let Some(schedule) = run.method.schedule() {
        let table = schedule.table_of_ranges(run.plan.recipe().steps);
        let table = serde_json::to_vec(&table).expect("a schedule is plain data");
        write_atomically(&files.gate(), &table)?;
    }
    Ok(())
}

/// Evaluates what a run with `[eval]` starts from, keeps and tells it: step 0 counts (D33).
fn evaluate_start<D: Device>(
    run: &mut Run<D>,
    plan: &RunPlan,
    run_dir: &Path,
    observer: &mut dyn Observer,
) -> Result<Option<Start>> {
    let mut metrics = Metrics::default();
    run.evaluate(&mut metrics)?;
    let Some(average) = metrics.get("eval/avg@k") else { return Ok(None) };
    observer.note(&format!("step 0: eval/avg@k {average:.4}"));
    let model = if let ModelSource::Folder(path) = plan.model()? { Some(path) } else { None };
    let metrics = serde_json::from_str(&metrics.to_json()).expect("metrics are JSON");
    let start = Start { model, metrics };
    start.write(run_dir)?;
    Ok(Some(start))
}

/// Samples some prompts before the first step, keeps what was met and tells the observer.
fn look_ahead<D: Device>(
    run: &mut Run<D>,
    prompts: usize,
    files: RunFolder,
    observer: &mut dyn Observer,
) -> Result<()> {
    let begins = |prompts, responses| observer.preflight_begins(prompts, responses);
    let Some(found) = preflight(run, prompts, begins)? else { return Ok(()) };
    let json = serde_json::to_vec_pretty(&found).expect("numbers are plain data");
    write_atomically(&files.preflight(), &json)?;
    observer.preflight(&found);
    for it in found.warnings() {
        observer.warning(&it);
    }
    Ok(())
}

struct Session<'a, D: Device> {
    run: Run<D>,
    observer: &'a mut dyn Observer,
    recipe: &'a Recipe,
    run_dir: &'a Path,
    resolved: &'a str,
    file: MetricsFile,
    events: Events,
    guard: Guard<'a>,
    early_stopping: Option<EarlyStopping<'a>>,
    saves: bool,
    score: Score<'a>,
    is_best: bool,
    /// True if a reward was below `reward.wrong`, which is reported once.
    has_below_wrong: bool,
    shelf: CheckpointStore,
    saved_at: Option<(u64, PathBuf)>,
}

impl<D: Device> Session<'_, D> {
    /// Makes the steps that are left, after the evaluation of the last one where that is missing.
    fn train(mut self, lacks_evaluation: bool) -> Result<Outcome> {
        let (first, steps) = (self.run.steps_done(), self.recipe.steps);
        let mut stopped_by = None;
        self.observer.steps_begin();
        if lacks_evaluation {
            let mut metrics = Metrics::default();
            self.run.evaluate(&mut metrics)?;
            self.file.add_to_last(&metrics)?;
            self.events.append(first, &metrics)?;
            self.count(&metrics);
            self.save_if_due(false)?;
        }
        let mut stopped_early = self.ended_early();
        while self.run.steps_done() < steps && stopped_early.is_none() {
            let metrics = self.step()?;
            let step = self.run.steps_done();
            self.observer.step(step, &metrics);
            if let Some(below) = metrics.get(REWARD_BELOW_WRONG)
                && !std::mem::replace(&mut self.has_below_wrong, true)
            {
                self.observer.warning(&format!(
                    "step {step}: {} a reward below reward.wrong: to give no answer pays better; \
                     lower reward.wrong",
                    counted(below, "answer has", "answers have")
                ));
            }
            if let Some(alarm) = self.guard.alarm(&metrics) {
                self.observer.warning(&format!("step {step}: {alarm}"));
                stopped_by = self.recipe.guard.stop.then_some(alarm);
            }
            stopped_early = self.ended_early();
            let stop = self.observer.stop_requested() || stopped_by.is_some();
            self.save_if_due(stop)?;
            if stop {
                break;
            }
        }
        self.run.grader.grader.finish().map_err(|it| no_reward(&it))?;
        let done = self.run.steps_done();
        if let Some(because) = stopped_early.clone() {
            EarlyEnd { step: done, because }.write(RunFolder(self.run_dir))?;
        }
        Ok(Outcome {
            steps: done,
            steps_now: done - first,
            checkpoint: self.saved_at.map(|it| it.1),
            finished: done == steps || stopped_early.is_some(),
            stopped_early,
            stopped_by,
        })
    }

    /// Makes and logs the next step. One that cannot be finished leaves the weights in the folder (D23).
    fn step(&mut self) -> Result<Metrics> {
        let updates_before = self.run.learner.updates;
        let mut metrics = self.run.step().inspect_err(|_| {
            let mid_step = self.run.learner.updates > updates_before;
            let _ = self.file.sync();
            // Why the step failed matters more than why the weights cannot be saved.
            let saved = self.run.save_halted(self.run_dir, self.resolved, mid_step);
            if let Ok(Some(folder)) = saved {
                self.observer.warning(&format!("the weights are saved in {}", folder.display()));
            }
        })?;
        let step = self.run.steps_done();
        let is_evaluated = self.recipe.evaluates_after(step);
        let evaluated = if is_evaluated { self.run.evaluate(&mut metrics) } else { Ok(()) };
        self.file.append(&metrics)?;
        self.events.append(step, &metrics)?;
        if let Some(text) = self.run.rollouts.sampled.take() {
            self.events.append_text(step, "rollout", &text)?;
        }
        self.count(&metrics);
        // The step is done: it is kept, and evaluated when the run is resumed.
        if evaluated.is_err() && self.saves {
            self.save(None)?;
        }
        evaluated.map(|()| metrics)
    }

    fn count(&mut self, metrics: &Metrics) {
        let number = |name: &str| metrics.get(name);
        self.is_best = self.early_stopping.as_mut().is_some_and(|it| it.add(&number));
        self.score.add(&number);
    }

    /// Why the run ends before its last step.
    fn ended_early(&self) -> Option<String> {
        self.early_stopping.as_ref().and_then(EarlyStopping::ended)
    }

    /// Writes a checkpoint where the recipe has one, and without a score where the run is stopped between them: an
    /// unbroken run compares none there.
    fn save_if_due(&mut self, stop: bool) -> Result<()> {
        let step = self.run.steps_done();
        let is_last = step == self.recipe.steps || self.ended_early().is_some();
        let due = is_last || self.is_best || self.recipe.saves_after(step);
        if !self.saves || !(due || stop) {
            return Ok(());
        }
        let score = if due { self.score.take() } else { None };
        self.save(score)
    }

    /// Writes the checkpoint of the steps done, after what must not be behind it.
    fn save(&mut self, score: Option<f64>) -> Result<()> {
        let step = self.run.steps_done();
        let saved =
            self.file.sync().and_then(|()| self.run.rollouts.writer.wait()).and_then(|()| {
                self.shelf.write(&self.run.contents(&self.run.state(self.resolved, score)))
            });
        let (folder, warnings) = saved.map_err(|cause| {
            let kept =
                self.saved_at.as_ref().map(|it| format!("that of step {} is complete", it.0));
            let kept = kept.unwrap_or_else(|| "there was none before".to_owned());
            Refusal::machine(format!("the checkpoint of step {step} is not saved: {cause}; {kept}"))
                .hint("free space on the disk, then --resume")
        })?;
        for it in &warnings {
            self.observer.warning(it);
        }
        self.saved_at = Some((step, folder));
        Ok(())
    }
}

pub fn require_no_run(run_dir: &Path) -> Result<()> {
    if RunFolder(run_dir).holds_run()? {
        let problem = format!("{} already holds a run", run_dir.display());
        let hint = "continue it with --resume, or choose another --run-dir";
        return Err(Refusal::input(problem).hint(hint));
    }
    Ok(())
}

/// Refuses a folder that holds no run of these stages.
pub fn require_run(run_dir: &Path, stages: &[Recipe]) -> Result<()> {
    for stage in stages {
        if RunFolder(&stage_folder(run_dir, stage)).holds_run()? {
            return Ok(());
        }
    }
    let problem = match found_at(run_dir)? {
        None => "does not exist",
        Some(found) if !found.is_dir() => "is no folder",
        Some(_) if entries(run_dir)?.is_empty() => "is empty",
        Some(_) => "holds no run",
    };
    let problem = format!("{} {problem}: there is no run to resume", run_dir.display());
    Err(Refusal::input(problem).hint("leave out --resume to start it"))
}

/// Refuses the run that a folder holds where it is of another recipe than the plan's. Nothing is read but its recipe,
/// and nothing is written.
pub fn require_same_run(plan: &RunPlan, run_dir: &Path, policy: ResumePolicy) -> Result<()> {
    let path = RunFolder(run_dir).recipe();
    let Some(before) = if_there(&path, std::fs::read_to_string(&path))? else { return Ok(()) };
    resume::require_same_recipe(&before, &plan.resolved(""), run_dir, policy, &mut |_| {})
}

/// Keeps the stages of a recipe in the folder above theirs, so that the folder is a recipe too.
pub fn keep_stages(run_dir: &Path, stages: &[Recipe]) -> Result<()> {
    if stages[0].stage().is_none() {
        return Ok(());
    }
    let folder = RunFolder(run_dir);
    create_folder(run_dir)?;
    let _held = lock_folder(run_dir)?;
    folder.remove_leftovers()?;
    write_atomically(&folder.stages(), Recipe::stages_text(stages).as_bytes())
}

/// Folder of a stage: the run's own for a recipe of one.
pub fn stage_folder(run_dir: &Path, recipe: &Recipe) -> PathBuf {
    recipe.stage().map_or_else(|| run_dir.to_owned(), |name| run_dir.join(name))
}
