//! The loop over a run's steps and everything that lets it survive: one process per folder, files
//! that are complete or absent, a resume that continues with the same bits.
//!
//! The price: every checkpoint waits for the disk. Between checkpoints nothing does.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use hapo_kernels::Device;
use hapo_run::{
    Lock, Metrics, MetricsFile, Preflight, RunFolder, create_folder, recipe_entries,
    write_atomically,
};

use crate::checkpoint::{self, TrainerState};
use crate::engines::Learner;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::preflight::preflight;
use crate::recipe::{ModelSource, Recipe, of_earlier_version};
use crate::run::{Run, cpu};
use crate::tensorboard::Events;

/// What a run reports while it runs.
pub trait Observer {
    /// A step is done.
    fn step(&mut self, step: u64, metrics: &Metrics);

    /// Something the reader should know.
    fn warning(&mut self, _text: &str) {}

    /// Whether a new run should sample some prompts before its first step and say what it met.
    fn wants_preflight(&self) -> bool {
        false
    }

    /// What the pre-flight met.
    fn preflight(&mut self, _found: &Preflight) {}

    /// The build that runs, for the run folder.
    fn build(&self) -> String {
        format!("hapo {}", env!("CARGO_PKG_VERSION"))
    }

    /// Whether the run should stop after the step at hand, saving what it has.
    fn stop_requested(&self) -> bool {
        false
    }
}

/// What a run does about what its folder holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResumePolicy {
    /// From the start; a folder that holds a run is refused.
    Fresh,
    /// From the latest complete checkpoint, if there is one; a run of another recipe is refused.
    Resume,
    /// As [`ResumePolicy::Resume`], and a changed recipe is taken as it is.
    ResumeWithRecipe,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Steps done, over all calls.
    pub steps: u64,
    /// Steps done by this call; 0 when the run was finished already.
    pub steps_now: u64,
    /// The last checkpoint.
    pub checkpoint: PathBuf,
    /// Whether every step of the recipe is done.
    pub finished: bool,
    /// The alarm that ended the run (D23).
    pub stopped_by: Option<String>,
}

/// Trains by a recipe into `run_dir`, on the CPU.
///
/// # Errors
/// A folder that another process trains in, holds another run, or whose checkpoints are all incomplete;
/// a disk that is full; a loss that is NaN or infinite, after saving what there is.
pub fn train(
    recipe: &Recipe,
    run_dir: &Path,
    resume: ResumePolicy,
    threads: usize,
    observer: &mut dyn Observer,
) -> Result<Outcome> {
    train_on(cpu(threads)?, recipe, run_dir, resume, observer)
}

/// As [`train`], on any device.
///
/// # Errors
/// As there, and what the device refuses.
pub fn train_on<D: Device>(
    device: D,
    recipe: &Recipe,
    run_dir: &Path,
    resume: ResumePolicy,
    observer: &mut dyn Observer,
) -> Result<Outcome> {
    if resume == ResumePolicy::Fresh {
        require_no_run(run_dir)?;
    }
    create_folder(run_dir)?;
    let files = RunFolder(run_dir);
    let _lock = Lock::take(files)?;
    let resolved = resolved_recipe(recipe, &observer.build());
    let restored = match resume {
        ResumePolicy::Fresh => None,
        _ => latest_checkpoint(run_dir, &resolved, resume, observer)?,
    };
    // Before anything is loaded or written: a finished run has nothing to do.
    if let Some((state, folder)) = &restored
        && state.step >= recipe.steps()
    {
        return Ok(Outcome {
            steps: state.step,
            steps_now: 0,
            checkpoint: folder.clone(),
            finished: true,
            stopped_by: None,
        });
    }
    let recipe = &with_model_of_stage(recipe, run_dir)?;
    let mut run = Run::on(device, recipe)?;
    for it in recipe.warnings().into_iter().chain(run.warnings()) {
        observer.warning(&it);
    }
    prepare_folder(files, &run, &resolved)?;
    if let Some((state, folder)) = &restored {
        run.restore(state, folder)?;
    }
    run.keep_rollouts_in(run_dir)?;
    let first = run.steps_done();
    let file = MetricsFile::open(&files.metrics(), first)?;
    if file.lines() < first {
        observer.warning(&format!(
            "metrics.jsonl holds {} of the {first} steps done; the others are lost",
            file.lines()
        ));
    }
    if first == 0 && observer.wants_preflight() {
        look_ahead(&mut run, recipe.metrics().preflight, files, observer)?;
    }
    let session = Session {
        recipe,
        run_dir,
        resolved: &resolved,
        events: Events::open(run_dir, first)?,
        guard: Guard::new(recipe.guard(), &file.history()?),
        score: Score::new(&recipe.checkpoint().best),
        saved_at: restored.map(|it| (it.0.step, it.1)),
        file,
    };
    session.train(run, observer)
}

/// Makes the files that are written once.
fn prepare_folder<L: Learner>(files: RunFolder<'_>, run: &Run<L>, resolved: &str) -> Result<()> {
    create_folder(&files.checkpoints())?;
    files.remove_leftovers()?;
    write_atomically(&files.recipe(), resolved.as_bytes())?;
    if let Some(table) = run.gate_table() {
        write_atomically(&files.gate(), &table)?;
    }
    Ok(())
}

/// Samples some prompts before the first step, keeps what was met and tells the observer.
fn look_ahead<L: Learner>(
    run: &mut Run<L>,
    prompts: usize,
    files: RunFolder<'_>,
    observer: &mut dyn Observer,
) -> Result<()> {
    let Some(found) = preflight(run, prompts)? else {
        return Ok(());
    };
    let json = serde_json::to_vec_pretty(&found).expect("numbers are plain data");
    write_atomically(&files.preflight(), &json)?;
    observer.preflight(&found);
    for it in found.warnings() {
        observer.warning(&it);
    }
    Ok(())
}

/// What lies beside a run while its steps are made.
struct Session<'a> {
    recipe: &'a Recipe,
    run_dir: &'a Path,
    resolved: &'a str,
    file: MetricsFile,
    events: Events,
    guard: Guard<'a>,
    score: Score<'a>,
    /// The last checkpoint.
    saved_at: Option<(u64, PathBuf)>,
}

impl Session<'_> {
    /// Makes the steps that are left.
    fn train<L: Learner>(
        mut self,
        mut run: Run<L>,
        observer: &mut dyn Observer,
    ) -> Result<Outcome> {
        let (first, steps) = (run.steps_done(), self.recipe.steps());
        let every = self.recipe.checkpoint().every;
        let mut stopped_by = None;
        while run.steps_done() < steps {
            let metrics = self.step(&mut run, observer)?;
            let step = run.steps_done();
            observer.step(step, &metrics);
            if let Some(alarm) = self.guard.alarm(&metrics) {
                observer.warning(&format!("step {step}: {alarm}"));
                stopped_by = self.recipe.guard().stop.then_some(alarm);
            }
            let stop = observer.stop_requested() || stopped_by.is_some();
            let due = every > 0 && step.is_multiple_of(every);
            if due || stop || step == steps {
                self.save(&mut run)?;
            }
            if stop {
                break;
            }
        }
        let saved_at = self.saved_at;
        let (_, checkpoint) =
            saved_at.expect("a run has at least one step, and its last one is saved");
        Ok(Outcome {
            steps: run.steps_done(),
            steps_now: run.steps_done() - first,
            checkpoint,
            finished: run.steps_done() == steps,
            stopped_by,
        })
    }

    /// Makes and logs the next step. One that cannot be finished leaves the weights in the folder (D23).
    fn step<L: Learner>(
        &mut self,
        run: &mut Run<L>,
        observer: &mut dyn Observer,
    ) -> Result<Metrics> {
        let updates_before = run.updates();
        let metrics = match run.step() {
            Err(it @ Error::NotFinite { .. }) => {
                self.file.sync()?;
                let mid_step = run.updates() > updates_before;
                if let Some(folder) = run.save_halted(self.run_dir, self.resolved, mid_step)? {
                    observer.warning(&format!("the weights are saved in {}", folder.display()));
                }
                return Err(it);
            }
            it => it?,
        };
        self.file.append(&metrics)?;
        self.events.append(run.steps_done(), &metrics)?;
        self.score.add(&metrics);
        Ok(metrics)
    }

    /// Writes the checkpoint of the steps done, after what must not be behind it.
    fn save<L: Learner>(&mut self, run: &mut Run<L>) -> Result<()> {
        let step = run.steps_done();
        let saved = self
            .file
            .sync()
            .map_err(Error::from)
            .and_then(|()| run.wait_for_rollouts())
            .and_then(|()| run.save(self.run_dir, self.resolved, self.score.take()));
        let folder = saved.map_err(|cause| Error::NotSaved {
            step,
            kept: self.saved_at.as_ref().map(|it| it.0),
            cause: Box::new(cause),
        })?;
        self.saved_at = Some((step, folder));
        Ok(())
    }
}

/// Refuses a folder that holds a run.
///
/// # Errors
/// When it does.
pub fn require_no_run(run_dir: &Path) -> Result<()> {
    if run_dir.join("recipe.toml").exists() {
        return Err(Error::RunExists { folder: run_dir.to_owned() });
    }
    Ok(())
}

/// Folder of a stage: the run's own for a recipe of one.
pub fn stage_folder(run_dir: &Path, recipe: &Recipe) -> PathBuf {
    match recipe.stage() {
        Some(name) => run_dir.join(name),
        None => run_dir.to_owned(),
    }
}

/// The recipe with `stage:NAME` replaced by that stage's last checkpoint, which lies beside `run_dir`.
pub(crate) fn with_model_of_stage(recipe: &Recipe, run_dir: &Path) -> Result<Recipe> {
    if let ModelSource::Stage(name) = recipe.model() {
        let beside = run_dir.parent().unwrap_or(Path::new(".")).join(name);
        let (_, checkpoint) =
            RunFolder(&beside).list_checkpoints().into_iter().next().ok_or_else(|| {
                Error::Stage {
                    problem: format!("stage {name} has no checkpoint in {}", beside.display()),
                }
            })?;
        checkpoint::verify(&checkpoint)?;
        let folder = checkpoint.display().to_string();
        return Ok(recipe.clone().with_model_folder(&folder));
    }
    Ok(recipe.clone())
}

/// The recipe with its defaults filled in, as the run folder keeps it.
pub(crate) fn resolved_recipe(recipe: &Recipe, build: &str) -> String {
    format!("# resolved by {build}\n{}", recipe.resolved())
}

/// The latest complete checkpoint; incomplete ones are named and passed over.
fn latest_checkpoint(
    run_dir: &Path,
    resolved: &str,
    resume: ResumePolicy,
    observer: &mut dyn Observer,
) -> Result<Option<(TrainerState, PathBuf)>> {
    let mut check = |before: &str, folder: &Path| {
        if let Some(problem) = of_earlier_version(before) {
            return Err(Error::EarlierVersion { folder: folder.to_owned(), problem });
        }
        let differences = differences(before, resolved);
        if differences.is_empty() {
            return Ok(());
        }
        let differences = differences.join("; ");
        if resume != ResumePolicy::ResumeWithRecipe {
            return Err(Error::OtherRecipe { folder: folder.to_owned(), differences });
        }
        observer.warning(&format!("resuming with another recipe: {differences}"));
        Ok(())
    };
    let found = RunFolder(run_dir).list_checkpoints();
    let Some((_, latest)) = found.first() else {
        // Killed before its first checkpoint: the same run begins again, another one does not.
        if let Ok(before) = fs::read_to_string(RunFolder(run_dir).recipe()) {
            check(&before, run_dir)?;
        }
        return Ok(None);
    };
    let mut incomplete = Vec::new();
    for (_, folder) in &found {
        match checkpoint::verify(folder) {
            Ok(state) => {
                check(&state.recipe, folder)?;
                for it in incomplete {
                    observer.warning(&format!("{it}; using the one before"));
                }
                return Ok(Some((state, folder.clone())));
            }
            Err(it) => incomplete.push(it),
        }
    }
    // Going back to step 0 would silently throw the run away.
    let all: Vec<String> = incomplete.iter().map(ToString::to_string).collect();
    Err(Error::Checkpoint {
        folder: latest.clone(),
        problem: format!("no checkpoint of the run is complete: {}", all.join("; ")),
    })
}

/// Keys whose values differ between two recipes, as `key: before → after`.
fn differences(before: &str, after: &str) -> Vec<String> {
    let entries = |text: &str| {
        recipe_entries(text).unwrap_or_else(|it| {
            BTreeMap::from([("recipe".to_owned(), format!("unreadable: {it}"))])
        })
    };
    let (before, after) = (entries(before), entries(after));
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let value = |of: &BTreeMap<String, String>, key: &str| {
        of.get(key).cloned().unwrap_or_else(|| "absent".to_owned())
    };
    keys.into_iter()
        .filter(|it| before.get(*it) != after.get(*it))
        .map(|it| format!("{it}: {} → {}", value(&before, it), value(&after, it)))
        .collect()
}

/// Mean of one metric since the last checkpoint: what `checkpoint.best` compares.
struct Score<'a> {
    metric: &'a str,
    sign: f64,
    sum: f64,
    steps: u32,
}

impl<'a> Score<'a> {
    /// `rule` is the metric's name, with a minus before it where lower is better.
    fn new(rule: &'a str) -> Self {
        let (metric, sign) = match rule.strip_prefix('-') {
            Some(it) => (it, -1.0),
            None => (rule, 1.0),
        };
        Self { metric, sign, sum: 0.0, steps: 0 }
    }

    fn add(&mut self, metrics: &Metrics) {
        if let Some(it) = metrics.get(self.metric) {
            self.sum += it * self.sign;
            self.steps += 1;
        }
    }

    fn take(&mut self) -> Option<f64> {
        let mean = (self.steps > 0).then(|| self.sum / f64::from(self.steps));
        (self.sum, self.steps) = (0.0, 0);
        mean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_name_keys_and_both_values() {
        let before = "# resolved by hapo 0.1.0\nsteps = 10\n[optim]\nlr = 1e-4\n";
        let after =
            "# resolved by hapo 0.2.0\nsteps = 10\n[optim]\nlr = 2e-4\n[hapo]\ngate = \"never\"\n";
        assert_eq!(
            differences(before, after),
            ["hapo.gate: absent → \"never\"", "optim.lr: 0.0001 → 0.0002"]
        );
        assert!(differences(before, "steps = 10\noptim.lr = 1e-4").is_empty());
    }

    #[test]
    fn a_score_is_the_mean_since_the_last_checkpoint() {
        let metrics = |value: f64| {
            let mut it = Metrics::default();
            it.set("loss", value);
            it
        };
        let mut score = Score::new("-loss");
        score.add(&metrics(1.0));
        score.add(&metrics(2.0));
        assert_eq!(score.take(), Some(-1.5));
        assert_eq!(score.take(), None);
        let mut other = Score::new("reward/policy_only");
        other.add(&metrics(1.0));
        assert_eq!(other.take(), None);
    }
}
