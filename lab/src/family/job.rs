//! A run of a study: its recipe, its training, its scores.

use std::path::{Path, PathBuf};

use anyhow::Result;
use hapo_cli::scoring::model_name;
use hapo_data::task::Split;
use hapo_train::{BUILTIN_BASE, EvalSet, Overrides, Recipe, Run, RunPlan, Sources};
use serde_json::Value;

use crate::family::arm::{Arm, Base, recipe};
use crate::family::arms::has_stage;
use crate::family::ladder::RUNGS;
use crate::family::paper::in_folder;
use crate::family::plan::{StudyObserver, StudyPlan};
use crate::family::scores::{
    Cost, Curves, Last, Look, Made, Problems, Scores, Target, problem_sets, score, success,
    truncated,
};
use crate::family::training::train;
use crate::family::{ladder, real};

/// A run to make.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) arm: &'static Arm,
    pub(crate) seed: u64,
    /// The searched value, where it is not the recipe's.
    pub(crate) value: Option<f64>,
    pub(crate) folder: PathBuf,
    pub(crate) split: Split,
}

/// Looks at the development split while a run trains: as many for every arm.
const LOOKS: u64 = 6;
/// Problems of each level at a look, at most.
const LOOKED_AT: usize = 50;
/// Looks in a row that are no better, after which imitation ends.
const PATIENCE: u64 = 2;
/// Stands for the folder of the run that a yoked gate follows.
const FOLLOWED: &str = "{HAPO}";
/// Seconds of a step on one thread: of rollouts, and of imitation. Of an idle AMD EPYC with AVX-512.
const STEP_SECONDS: (f64, f64) = (1.1, 0.25);

impl Job {
    /// The folder of a run of the tables.
    pub(crate) fn folder_of(out: &Path, arm: &str, seed: u64) -> PathBuf {
        out.join("runs").join(arm).join(format!("seed-{seed}"))
    }

    /// The run of HAPO with the same base, teacher and seed, which a yoked gate follows.
    fn followed(&self, plan: &StudyPlan) -> PathBuf {
        Self::folder_of(&plan.out, &self.arm.name.replace("-yoked", "-hapo-method"), self.seed)
    }

    /// The model that it starts from, or that it is.
    fn model(&self, plan: &StudyPlan) -> Result<String> {
        match self.arm.base {
            Base::Shipped => Ok(BUILTIN_BASE.to_owned()),
            Base::Rung(rung) => Ok(model_name(&ladder::folder_of(&plan.out, rung))?.to_owned()),
            Base::Pretrained => Ok(plan.pretrained().model().to_owned()),
        }
    }

    /// The stages of its recipe. A base model has one too, for its description; it is not run.
    pub(crate) fn stages(&self, plan: &StudyPlan) -> Result<Vec<Recipe>> {
        let text = self.arm.recipe.unwrap_or(recipe!("grpo"));
        let mut overrides = plan.overrides.clone();
        overrides.set.retain(|set| has_stage(text, set));
        let of_data = match self.arm.base {
            Base::Pretrained => plan.pretrained().sets(self.arm)?,
            _ => Vec::new(),
        };
        let followed = self.followed(plan);
        let followed = model_name(&followed)?;
        let sets = self.arm.sets.iter().map(|set| set.replace(FOLLOWED, followed));
        let sets = sets.map(|set| in_folder(&set, &plan.out)).collect::<Result<Vec<_>>>()?;
        let own = sets.into_iter().chain(of_data).chain(self.common_sets(plan));
        overrides.set.splice(0..0, own);
        overrides.unset.splice(0..0, self.arm.unset.iter().cloned());
        let (name, rate) = (&self.arm.name, self.value.filter(|_| self.arm.tuned.is_none()));
        if let (Some(key), Some(value)) = (self.arm.tuned, self.value) {
            overrides.set.push(format!("{key}={value}"));
        }
        let origin = format!("family recipe {name}");
        overrides.of_many = true;
        let mut stages = Recipe::parse_stages(text, &origin, name, &overrides)?;
        let model = self.model(plan)?;
        let count = stages.len();
        let of_recipes: Vec<u64> = stages.iter().map(|it| it.steps).collect();
        for (n, stage) in stages.iter_mut().enumerate() {
            let mut sets = Vec::new();
            if self.arm.base == Base::Pretrained {
                let steps = plan.pretrained().steps(&of_recipes)[n];
                *stage = stage.with(&Overrides::set([format!("steps={steps}")]))?;
            }
            let set: Vec<&String> = self.arm.sets.iter().chain(&plan.overrides.set).collect();
            sets.extend(of_stage(stage, &set));
            if n == 0 && self.arm.base != Base::Shipped {
                sets.push(format!("model.path={model}"));
            }
            let own = (self.arm.base == Base::Pretrained).then_some(real::RATE);
            if let Some(rate) = rate.or(own) {
                // Imitation before the method: its rates lie a factor 2 higher in the search as well.
                let rate = if n + 1 < count && imitates(stage) { 2.0 * rate } else { rate };
                sets.push(format!("optim.lr={rate:e}"));
            }
            *stage = stage.with(&Overrides::set(sets))?;
        }
        Ok(stages)
    }

    /// Settings of every run of a study: prompts and traces of its seed, evaluations on the development split, and the
    /// checkpoint that was best there.
    fn common_sets(&self, plan: &StudyPlan) -> Vec<String> {
        let problems = match self.arm.base {
            Base::Pretrained => plan.pretrained().problems(Split::Development).examples.len(),
            _ => plan.problems.min(LOOKED_AT),
        };
        vec![
            format!("seed={}", self.seed),
            format!("data.seed={}", self.seed),
            "eval.suite=development".to_owned(),
            format!("eval.problems={problems}"),
            "eval.k=2".to_owned(),
            "checkpoint.best=eval/avg@k".to_owned(),
            "checkpoint.keep=1".to_owned(),
            "metrics.rollouts_every=0".to_owned(),
        ]
    }

    fn looked_at(&self, plan: &StudyPlan) -> Result<Vec<EvalSet>> {
        let sets = match self.arm.base {
            Base::Pretrained => {
                vec![(
                    "development".to_owned(),
                    plan.pretrained().problems(Split::Development).clone(),
                )]
            }
            _ => problem_sets(self.arm.levels, plan.problems.min(LOOKED_AT), Split::Development)?,
        };
        Ok(sets.into_iter().map(|(name, dataset)| EvalSet { name, dataset }).collect())
    }

    fn target<'a>(&self, plan: &'a StudyPlan, stages: &[Recipe]) -> Target<'a> {
        let last = stages.last().expect("a recipe has a stage");
        let split = self.split;
        let problems = match self.arm.base {
            Base::Pretrained => {
                Problems::Of(plan.pretrained().problems(split), plan.pretrained().checksum())
            }
            _ => Problems::Levels { levels: self.arm.levels, count: plan.problems },
        };
        Target {
            problems,
            split,
            seed: self.seed,
            max_new_tokens: last.sampling.max_new_tokens,
            teacher: self.arm.teacher,
        }
    }

    /// Its scores, if it is done.
    ///
    /// # Errors
    /// Scores of something else.
    pub(crate) fn scores(&self, plan: &StudyPlan) -> Result<Option<Scores>> {
        let recorded = plan.record.get(&self.name(plan)).cloned();
        let is_here = self.folder.join("scores.json").exists();
        if recorded.is_none() && !is_here {
            return Ok(None);
        }
        let made = self.made(plan, &self.stages(plan)?)?;
        match recorded {
            Some(it) if !is_here => it.of(&made, &plan.record.path.join(self.name(plan))).map(Some),
            _ => Scores::read(&self.folder, &made),
        }
    }

    /// Its name in a record: its folder within the study's.
    pub(crate) fn name(&self, plan: &StudyPlan) -> String {
        let parts = self.folder.strip_prefix(&plan.out).unwrap_or(&self.folder).iter();
        parts.map(|it| it.to_string_lossy()).collect::<Vec<_>>().join("/")
    }

    /// The facts that its scores depend on. The study's own bases and problems go by fixed names, so that a folder of
    /// runs may be moved; their contents are among the inputs.
    pub(crate) fn made(&self, plan: &StudyPlan, stages: &[Recipe]) -> Result<Made> {
        let (path, name) = match self.arm.base {
            Base::Shipped => (None, String::new()),
            Base::Rung(rung) => (
                Some(ladder::folder_of(&plan.out, rung)),
                format!("the base of rung {}", RUNGS[rung]),
            ),
            Base::Pretrained => (Some(PathBuf::from(self.model(plan)?)), "pretrained".to_owned()),
        };
        let out = format!("{:?}", model_name(&plan.out)?.trim_end_matches('/'));
        let out = out.trim_matches('"');
        let recipe = |it: &Recipe| -> Result<String> {
            let mut text = it.resolved();
            if let Some(path) = &path {
                text = text.replace(&format!("{:?}", model_name(path)?), &format!("{name:?}"));
            }
            Ok(text.replace(&format!("\"{out}/"), "\"the study's folder/"))
        };
        // A record may be read without the bases, and without the runs that yoked gates follow.
        let has_base = !matches!(self.arm.base, Base::Rung(_))
            || path.as_ref().is_some_and(|it| it.join("config.json").exists());
        let follows = self.arm.sets.iter().any(|set| set.contains(FOLLOWED));
        let is_here = has_base && (!follows || self.followed(plan).exists());
        let inputs = match stages.first() {
            Some(first) if is_here => Some(Run::new(&RunPlan::settle(first)?, 1)?.inputs().clone()),
            _ => None,
        };
        let recipes = stages.iter().map(recipe).collect::<Result<_>>()?;
        Ok(Made::of(recipes, inputs, &plan.overrides.set, &self.target(plan, stages)))
    }

    /// Seconds that it took, if it is done, whatever its scores are of.
    pub(crate) fn took(&self, plan: &StudyPlan) -> Option<f64> {
        if let Some(it) = plan.record.get(&self.name(plan)) {
            return Some(it.seconds);
        }
        let text = std::fs::read_to_string(self.folder.join("scores.json")).ok()?;
        Some(serde_json::from_str::<Scores>(&text).ok()?.seconds)
    }

    /// Seconds that its scoring is expected to take: of its best checkpoint and of its last. Of the built-in task none.
    pub(crate) fn expected_scoring_seconds(&self, plan: &StudyPlan) -> f64 {
        let Some(real) = &plan.real else { return 0.0 };
        let completions = real.problems(self.split).examples.len() * real::COMPLETIONS;
        let checkpoints = if self.arm.recipe.is_none() { 1.0 } else { 2.0 };
        checkpoints * completions as f64 * real::SCORE_SECONDS / plan.threads_of_a_run() as f64
    }

    /// Seconds that its training is expected to take.
    pub(crate) fn expected_seconds(&self, plan: &StudyPlan) -> Result<f64> {
        if self.arm.recipe.is_none() {
            return Ok(0.0);
        }
        let of_stage = |it: &Recipe| {
            let ((rollouts, imitation), threads) = match self.arm.base {
                Base::Pretrained => (real::STEP_SECONDS, plan.threads_of_a_run()),
                // A small model gains little by a second thread.
                _ => (STEP_SECONDS, 1),
            };
            it.steps as f64 * if imitates(it) { imitation } else { rollouts } / threads as f64
        };
        Ok(self.stages(plan)?.iter().map(of_stage).sum())
    }

    /// Trains it, or resumes it, and scores it. `None` if another process has it, or it was stopped.
    pub(crate) fn make(
        &self,
        plan: &StudyPlan,
        observer: &dyn StudyObserver,
    ) -> Result<Option<Scores>> {
        let threads = plan.threads_of_a_run();
        let stages = self.stages(plan)?;
        let target = self.target(plan, &stages);
        hapo_run::create_folder(&self.folder)?;
        let trained = match self.arm.recipe {
            None => Trained::base(self.model(plan)?),
            Some(_) => match self.train(plan, &stages, observer)? {
                Some(it) => it,
                None => return Ok(None),
            },
        };
        let benchmarks = score(&trained.best, &target, threads)?;
        let last = if trained.last == trained.best {
            benchmarks.clone()
        } else {
            score(&trained.last, &target, threads)?
        };
        let scores = Scores {
            arm: self.arm.name.clone(),
            seed: self.seed,
            made: self.made(plan, &stages)?,
            learning_rate: trained.learning_rate,
            build: plan.build.clone(),
            cpu: plan.cpu.clone(),
            seconds: trained.seconds,
            step: trained.step,
            last: Last { success: success(&last), truncated: truncated(&last) },
            cost: Some(trained.cost),
            looks: trained.looks,
            curves: Curves::of(&trained.log),
            benchmarks,
        };
        scores.write(&self.folder)?;
        Ok(Some(scores))
    }

    /// Makes the steps that are left. `None` if another process makes them, or they were stopped.
    fn train(
        &self,
        plan: &StudyPlan,
        stages: &[Recipe],
        observer: &dyn StudyObserver,
    ) -> Result<Option<Trained>> {
        let threads = plan.threads_of_a_run();
        let sources = Sources { eval: Some(self.looked_at(plan)?.into()), ..Sources::default() };
        let mut trained = Trained::base(String::new());
        for recipe in stages {
            let folder = hapo_train::stage_folder(&self.folder, recipe);
            let mut of_run = observer.observe(&self.arm.name, recipe.steps);
            let outcome = train(&folder, recipe, sources.clone(), threads, &mut *of_run)?;
            let Some(outcome) = outcome.filter(|it| it.finished) else {
                return Ok(None);
            };
            trained.log = metrics_of(&folder);
            let prompts = recipe.sampling.prompts_per_step;
            trained.cost.add(&trained.log, recipe.method().name, prompts);
            trained.looks.extend(Look::of(&trained.log, trained.steps));
            trained.steps += trained.log.len() as u64;
            trained.seconds += seconds_of(&trained.log);
            let last = outcome.checkpoint.expect("a resumable run is saved");
            let best = hapo_train::checkpoint::best(&folder)?;
            let (step, best) = best.unwrap_or((outcome.steps, last.clone()));
            (trained.step, trained.learning_rate) = (step, recipe.optim.lr);
            model_name(&best)?.clone_into(&mut trained.best);
            model_name(&last)?.clone_into(&mut trained.last);
        }
        Ok(Some(trained))
    }

    /// Scores with this success, as if it had been made.
    #[cfg(test)]
    pub(crate) fn scores_of_tests(&self, plan: &StudyPlan, success: f64) -> Scores {
        let benchmark = crate::family::scores::BenchmarkScores {
            name: String::new(),
            problems: vec![success],
            tokens: 0.0,
            truncated: 0.0,
            teacher_style: 0.0,
            examples: Vec::new(),
        };
        Scores {
            arm: self.arm.name.clone(),
            seed: self.seed,
            made: self.made(plan, &self.stages(plan).unwrap()).unwrap(),
            learning_rate: 0.0,
            build: String::new(),
            cpu: String::new(),
            seconds: 0.0,
            step: 0,
            last: Last { success, truncated: 0.0 },
            cost: None,
            looks: Vec::new(),
            curves: Curves::default(),
            benchmarks: vec![benchmark],
        }
    }
}

/// A run whose steps are done.
struct Trained {
    /// The checkpoint that was best on the development split, and the last one.
    best: String,
    last: String,
    step: u64,
    learning_rate: f64,
    seconds: f64,
    cost: Cost,
    looks: Vec<Look>,
    /// Steps of all stages.
    steps: u64,
    /// Metrics of its last stage.
    log: Vec<Value>,
}

impl Trained {
    fn base(model: String) -> Self {
        Self {
            last: model.clone(),
            best: model,
            step: 0,
            learning_rate: 0.0,
            seconds: 0.0,
            cost: Cost::default(),
            looks: Vec::new(),
            steps: 0,
            log: Vec::new(),
        }
    }
}

fn imitates(recipe: &Recipe) -> bool {
    !recipe.method().samples()
}

/// When a stage is looked at and saved, unless one of the keys that are `set` says it.
fn of_stage(stage: &Recipe, set: &[&String]) -> Vec<String> {
    let every = stage.steps.div_ceil(LOOKS);
    let patience = if imitates(stage) { PATIENCE } else { 0 };
    let keys = [("eval.every", every), ("checkpoint.every", every), ("eval.patience", patience)];
    let said = |key: &str| {
        let own = stage.stage().map(|it| format!("stage.{it}.{key}="));
        let names = [Some(format!("{key}=")), own];
        set.iter().any(|set| names.iter().flatten().any(|name| set.starts_with(name)))
    };
    keys.iter().filter(|it| !said(it.0)).map(|(key, value)| format!("{key}={value}")).collect()
}

/// Metrics of a stage, step by step.
fn metrics_of(folder: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join("metrics.jsonl")).unwrap_or_default();
    text.lines().filter_map(|it| serde_json::from_str(it).ok()).collect()
}

/// Wall time of a stage's steps and evaluations, whatever number of calls made them.
fn seconds_of(log: &[Value]) -> f64 {
    let seconds = |it: &Value, key: &str| it[key].as_f64().unwrap_or(0.0);
    log.iter().map(|it| seconds(it, "time/step") + seconds(it, "time/eval")).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::arms::{ARMS, find};
    use crate::family::real::Real;

    fn plan(set: &[&str]) -> StudyPlan {
        let overrides = Overrides::set(set.iter().map(|it| (*it).to_owned()));
        let real = Some(Real::of_tests());
        StudyPlan { real, overrides, ..StudyPlan::of_tests(Vec::new()) }
    }

    fn stages(arm: &str, seed: u64, value: Option<f64>, set: &[&str]) -> Vec<Recipe> {
        let (arm, split) = (find(arm), Split::HeldOut);
        let job = Job { arm, seed, value, folder: PathBuf::from("out"), split };
        job.stages(&plan(set)).unwrap()
    }

    /// Prompts, traces and evaluations are equal wherever a reader would expect it.
    #[test]
    fn every_arm_has_its_seeds_prompts_and_as_many_looks() {
        for arm in ARMS.iter().filter(|arm| arm.recipe.is_some()) {
            for stage in stages(&arm.name, 3, None, &[]) {
                // The problems of a file are not drawn; the paper's long runs have looks of their own.
                let is_long = arm.name.starts_with("paper-stability");
                let drawn = if arm.base == Base::Pretrained || is_long { 0 } else { 3 };
                assert_eq!((stage.seed, stage.data.seed), (3, drawn), "{}", arm.name);
                let eval = stage.eval.as_ref().unwrap();
                let looks = stage.steps.div_ceil(eval.every);
                let usual = stage.steps.min(5)..=6;
                assert!(usual.contains(&looks) || is_long && looks == 16, "{}: {looks}", arm.name);
                assert_eq!(stage.checkpoint.every, eval.every);
                assert_eq!(stage.checkpoint.best, "eval/avg@k");
                let is_whole = arm.sets.iter().any(|it| it == "stage.sft.eval.patience=0");
                let patience = if imitates(&stage) && !is_whole { 2 } else { 0 };
                assert_eq!(eval.patience, patience, "{}", arm.name);
            }
        }
    }

    #[test]
    fn a_searched_value_is_a_rate_or_the_number_of_sft_steps() {
        let rates = |stages: &[Recipe]| stages.iter().map(|it| it.optim.lr).collect::<Vec<_>>();
        let steps = |stages: &[Recipe]| stages.iter().map(|it| it.steps).collect::<Vec<_>>();
        let few = stages("0-exact-sft-grpo-few", 0, Some(5e-5), &[]);
        assert_eq!((rates(&few), steps(&few)), (vec![1e-4, 5e-5], vec![5, 60]));
        let tuned = stages("0-exact-sft-grpo", 0, Some(40.0), &[]);
        assert_eq!((rates(&tuned), steps(&tuned)), (vec![2e-4, 1e-4], vec![40, 60]));
        assert_eq!(rates(&stages("0-exact-sft", 0, Some(4e-4), &[])), [4e-4]);
        assert!(tuned[0].resolved().contains("out/bases/rung-0/checkpoints/step-000160"));
        assert!(tuned[1].resolved().contains("stage:sft"));
    }

    /// Every arm that samples makes 256 rollouts in each of 60 steps, but for the budgets' and replay's.
    #[test]
    fn budgets_and_cells_are_what_they_say() {
        for arm in ARMS.iter().filter(|arm| arm.base == Base::Rung(0)) {
            let scale = if arm.search.ends_with("-quarter") {
                15
            } else if arm.search.ends_with("-4") {
                240
            } else {
                60
            };
            let made = stages(&arm.name, 0, None, &[]);
            let sampled: Vec<&Recipe> = made.iter().filter(|it| it.method().samples()).collect();
            for stage in &sampled {
                let sampling = &stage.sampling;
                assert_eq!(sampling.prompts_per_step * sampling.group_size, 256, "{}", arm.name);
            }
            let steps: u64 = sampled.iter().map(|stage| stage.steps).sum();
            assert!(steps == scale || sampled.is_empty(), "{}: {steps}", arm.name);
        }
        let repeated = &stages("5-repeated-hapo-method", 0, None, &[])[0];
        assert!(repeated.resolved().contains("teacher_steps = \"repeated\""));
        assert!(repeated.resolved().contains("out/bases/rung-5/checkpoints/step-000160"));
        let real = &stages("pretrained-hapo", 0, None, &[])[0];
        assert_eq!((real.steps, real.optim.lr), (60, 5e-6));
        assert!(real.resolved().contains("turn_off_epoch = 0.3"), "{}", real.resolved());
    }

    /// A ladder's bases lie in its folder, which may be moved, and may be left out of a record.
    #[test]
    fn what_a_run_of_a_rung_depends_on_names_no_folder() {
        let made = |out: &str| {
            let plan = StudyPlan { out: PathBuf::from(out), ..plan(&[]) };
            let (arm, split) = (find("0.1-exact-hapo-method"), Split::HeldOut);
            let job = Job { arm, seed: 0, value: Some(1e-4), folder: PathBuf::from("out"), split };
            job.made(&plan, &job.stages(&plan).unwrap()).unwrap()
        };
        assert_eq!(made("here"), made("/some/where else"));
        assert!(made("here").recipes[0].contains("\"the base of rung 0.1\""));
    }

    /// Where HAPO's runs are in a record alone, so may be those of the gate that follows them.
    #[test]
    fn a_yoked_gate_is_described_without_the_run_that_it_follows() {
        let folder = tempfile::tempdir().unwrap();
        let base = ladder::folder_of(folder.path(), 0);
        std::fs::create_dir_all(&base).unwrap();
        std::fs::write(base.join("config.json"), "").unwrap();
        let plan = StudyPlan { out: folder.path().to_owned(), ..plan(&[]) };
        let (arm, split) = (find("0-exact-yoked"), Split::HeldOut);
        let job = Job { arm, seed: 0, value: None, folder: PathBuf::from("out"), split };
        let made = job.made(&plan, &job.stages(&plan).unwrap()).unwrap();
        assert!(made.recipes[0].contains("\"the study's folder/runs/0-exact-hapo-method/seed-0\""));
    }

    #[test]
    fn what_the_user_sets_stands() {
        let stage = &stages("pilot-grpo", 0, None, &["eval.every=7", "steps=2"])[0];
        assert_eq!(
            (stage.eval.as_ref().unwrap().every, stage.steps, stage.checkpoint.every),
            (7, 2, 1)
        );
    }

    /// Four traces a step for 25 steps: 80 in the first epoch of 20 steps, and 20 that may be the same.
    #[test]
    fn traces_are_bounded_by_an_epoch_unless_they_were_counted() {
        let plan = plan(&[]);
        let line = serde_json::json!({"gate/beta": 4.0 / 32.0});
        let traces = |arm: &str, exposures: f64, distinct| {
            let (arm, split) = (find(arm), Split::HeldOut);
            let job = Job { arm, seed: 0, value: None, folder: PathBuf::from("out"), split };
            let mut scores = job.scores_of_tests(&plan, 0.5);
            scores.curves = Curves::of(&vec![line.clone(); 25]);
            scores.cost = Some(Cost { exposures, distinct, ..Cost::default() });
            scores.traces()
        };
        assert_eq!(traces("pilot-exact-hapo-method", 100.0, None), Some([80.0, 100.0]));
        assert_eq!(traces("pilot-exact-hapo-method", 100.0, Some(93.0)), Some([93.0; 2]));
        assert_eq!(traces("pilot-exact-ampo", 150.0, None), None, "several traces enter a group");
        let mut cost = Cost::default();
        cost.add(&[serde_json::json!({"teacher/distinct": 7})], "sft", 32);
        cost.add(&[serde_json::json!({"teacher/distinct": 0})], "grpo", 32);
        assert_eq!(cost.distinct, Some(7.0));
    }

    /// Three of 32 groups in two steps, 256 rollouts of 20 and of 30 tokens; imitation of 32 traces. Eight rollouts
    /// behind a prefix are eight exposures of Prefix-RFT; of UFT they are a group, which is one.
    #[test]
    fn costs_and_looks_by_hand() {
        let rl = |step: u64, length: f64| {
            serde_json::json!({"step": step, "response_length/mean": length, "gate/beta": 3.0 / 32.0, "memory/rss": 100.0 * length, "growth/helped": 8,
                "groups/all_fail": 30, "groups/all_solved": 0, "groups/partially_solved": 2,
                "verify/correct": 6, "verify/wrong": 200, "verify/unparsable": 50, "eval/avg@k/add-5": 0.25})
        };
        let log = [rl(1, 20.0), rl(2, 30.0)];
        let mut cost = Cost::default();
        cost.add(&log, "trapo", 32);
        cost.add(&[serde_json::json!({"step": 1, "memory/rss": 10})], "sft", 32);
        assert_eq!((cost.exposures, cost.sampled, cost.memory), (6.0 + 32.0, 12_800.0, 3_000.0));
        let exposures = |method: &str| {
            let mut cost = Cost::default();
            cost.add(&log, method, 32);
            cost.exposures
        };
        assert_eq!(
            (exposures("prefix-rft"), exposures("uft"), exposures("repo")),
            (16.0, 2.0, 0.0)
        );
        let looks = Look::of(&log, 5);
        assert_eq!((looks[1].step, looks[1].levels["add-5"]), (7, 0.25));
    }
}
