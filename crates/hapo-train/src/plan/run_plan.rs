//! The plan of a run: a recipe with nothing left open, and its model and its data where they were found.
//!
//! The settings that a recipe leaves to the model depend on the recipe and on the model's folder alone, never on the machine, so
//! that a seed means the same run everywhere. A run that is resumed keeps what it settled when it began.

use std::path::{Path, PathBuf};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

use hapo_core::{Refusal, Step, found_at};
use hapo_kernels::AdamW;
use hapo_net::reward::{Answers, OwnReward, RewardSettings};
use hapo_run::RunFolder;
use hapo_verify::Extracting;
use serde_json::Value;

use crate::checkpoint::stage_output::{HandedOn, kept_recipe, stage_output};
use crate::grading::{GradingPolicy, RunGrader};
use crate::model::template::{ChosenTemplate, template_of_recipe};
use crate::plan::{config_of_model, micro_batch_tokens};
use crate::recipe::{AUTO, DataSource, EvalSet, MicroBatch, ModelSource, Recipe, refused_recipe};
use crate::{Result, pack::Batching, plan::memory::mini_batch};

/// The model, the data and the reward of a recipe where they were found; what is `None` is where the recipe says.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    pub model: Option<String>,
    pub reference: Option<String>,
    pub train: Option<Vec<PathBuf>>,
    pub eval: Option<Arc<[EvalSet]>>,
    pub reward: Option<Arc<dyn Answers>>,
}

impl Sources {
    /// Checks that the files which are read before the model are there.
    pub fn check(&self, recipe: &Recipe) -> Result<()> {
        let mut files = Vec::new();
        for name in self.train_files(recipe) {
            files.extend(hapo_data::data_files(&name)?);
        }
        if let (None, Some(eval)) = (&self.eval, recipe.eval.as_ref()) {
            files.extend(eval.data.as_deref().map(PathBuf::from));
        }
        if let ModelSource::Init(init) = recipe.model() {
            files.extend(init.tokenizer.as_deref().map(PathBuf::from));
        }
        for path in files {
            std::fs::metadata(&path).map_err(Refusal::io("read", &path))?;
        }
        Ok(())
    }

    /// The files, folders and patterns of `data.train`; none for what is built in.
    pub(crate) fn train_files(&self, recipe: &Recipe) -> Vec<PathBuf> {
        match (&self.train, &recipe.data.train) {
            (Some(found), _) => found.clone(),
            (None, DataSource::Files(names)) => names.iter().map(PathBuf::from).collect(),
            (None, DataSource::Builtin | DataSource::Corpus) => Vec::new(),
        }
    }
}

fn beside(run_dir: &Path, stage: &str) -> PathBuf {
    run_dir.parent().unwrap_or(Path::new(".")).join(stage)
}

/// A model where it was found, or where the recipe says. An earlier stage's is beside `run_dir`.
fn located(
    model: &ModelSource,
    found: Option<&String>,
    run_dir: Option<&Path>,
) -> Result<ModelSource> {
    match (model, found, run_dir) {
        (ModelSource::Folder(_), Some(found), _) => Ok(ModelSource::Folder(found.clone())),
        (ModelSource::Stage(name, which), _, Some(run_dir)) => {
            Ok(ModelSource::Folder(stage_output(&beside(run_dir, name), *which)?.model))
        }
        (model, ..) => Ok(model.clone()),
    }
}

/// A run that can be made. Everything that makes it takes this.
#[derive(Clone, Debug)]
pub struct RunPlan {
    recipe: Recipe,
    pub(crate) sources: Sources,
    template: ChosenTemplate,
    micro_batch_tokens: usize,
    /// Injections in each step of the run that the gate is yoked to; empty for any other gate.
    pub(crate) record: Arc<[u64]>,
    run_dir: Option<PathBuf>,
}

impl RunPlan {
    /// Settles a recipe whose files are where it says.
    pub fn settle(recipe: &Recipe) -> Result<Self> {
        Self::of(recipe, Sources::default(), None)
    }

    /// Settles a recipe for the run of a folder: an earlier stage's model is beside it, and what the run there settled
    /// when it began stays.
    pub fn settle_in(run_dir: &Path, recipe: &Recipe, sources: Sources) -> Result<Self> {
        Self::of(recipe, sources, Some(run_dir))
    }

    /// The same, or for no folder.
    pub fn of(recipe: &Recipe, sources: Sources, run_dir: Option<&Path>) -> Result<Self> {
        let before = run_dir.map(kept_recipe).transpose()?.flatten();
        let model = || located(recipe.model(), sources.model.as_ref(), run_dir);
        let template = match &before {
            Some(before) if recipe.data.template == AUTO && before.data.template != AUTO => {
                ChosenTemplate::of_recipe(&before.data, recipe.data.template_choice(), None)
            }
            _ => template_of_recipe(recipe, &model)?,
        };
        let tokens = |recipe: &Recipe| recipe.optim.micro_batch_tokens;
        let micro_batch_tokens = match (tokens(recipe), before.as_ref().map(tokens)) {
            (MicroBatch::Tokens(tokens), _)
            | (MicroBatch::Auto, Some(MicroBatch::Tokens(tokens))) => tokens,
            (MicroBatch::Auto, _) => {
                micro_batch_tokens(recipe, &config_of_model(recipe, &model()?)?)
            }
        };
        Ok(Self {
            recipe: recipe.settled(template.choice(), micro_batch_tokens),
            sources,
            template,
            micro_batch_tokens,
            record: injections_of(recipe)?,
            run_dir: run_dir.map(Path::to_owned),
        })
    }

    /// The recipe with nothing left open: the one that reproduces the run.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    pub fn template(&self) -> &ChosenTemplate {
        &self.template
    }

    pub(crate) fn resolved(&self, build: &str) -> String {
        format!("# resolved by {build}\n{}", self.recipe.resolved())
    }

    pub(crate) fn model(&self) -> Result<ModelSource> {
        located(self.recipe.model(), self.sources.model.as_ref(), self.run_dir.as_deref())
    }

    /// The checkpoint of an earlier stage that it starts from, and why (D33).
    pub(crate) fn stage_output(&self) -> Result<Option<HandedOn>> {
        let (ModelSource::Stage(name, which), Some(run_dir)) = (self.recipe.model(), &self.run_dir)
        else {
            return Ok(None);
        };
        stage_output(&beside(run_dir, name), *which).map(Some)
    }

    /// The grader of completions, shown what the recipe takes for an answer (D26).
    pub(crate) fn grader(&self) -> Result<RunGrader> {
        let (data, reward) = (&self.recipe.data, &self.recipe.reward);
        if !hapo_net::reward::is_own(&data.grader) {
            let grader = hapo_verify::grader(&data.grader).map_err(Refusal::because)?;
            let grader = Arc::new(Extracting::new(grader, data.extraction));
            return Ok(RunGrader { grader, log: None });
        }
        let settings = RewardSettings {
            timeout: Duration::from_secs_f64(reward.timeout),
            start_timeout: Duration::from_secs_f64(reward.start_timeout),
            workers: hapo_net::reward::workers(reward.workers),
            on_failure: reward.on_failure,
            success_at: self.recipe.reward.success_at,
            wrong: reward.wrong,
            extraction: data.extraction,
        };
        let own = match &self.sources.reward {
            Some(it) => OwnReward::function(&data.grader, it.clone(), settings),
            None => OwnReward::new(&data.grader, settings)?,
        };
        Ok(RunGrader { log: Some(own.log().clone()), grader: Arc::new(own) })
    }

    pub(crate) fn grading_policy(&self) -> GradingPolicy {
        let (data, reward) = (&self.recipe.data, &self.recipe.reward);
        GradingPolicy {
            truncated: data.truncated,
            success_at: reward.success_at,
            wrong: reward.wrong,
            noise: data.verdict_noise,
            seed: self.recipe.seed,
        }
    }

    /// The second model, a folder, where something reads its log-probabilities (D38).
    pub(crate) fn reference(&self) -> Result<Option<ModelSource>> {
        let (found, run_dir) = (self.sources.reference.as_ref(), self.run_dir.as_deref());
        self.recipe.reference().map(|model| located(model, found, run_dir)).transpose()
    }

    /// The longest sequence, prompt and response together.
    pub(crate) fn context(&self) -> usize {
        let response = self.recipe.sampling.max_new_tokens.max(self.recipe.eval_max_tokens());
        self.recipe.data.max_prompt_tokens + response
    }

    pub(crate) fn batching(&self) -> Batching {
        Batching {
            micro_batch_tokens: self.micro_batch_tokens,
            inverse_temperature: 1.0 / self.recipe.sampling.temperature as f32,
        }
    }

    /// Updates of a step, but for one that imitates what waits (D43).
    pub(crate) fn updates_per_step(&self) -> u64 {
        let prompts = self.recipe.sampling.prompts_per_step;
        (prompts.div_ceil(mini_batch(&self.recipe)) * self.recipe.optim.passes) as u64
    }

    /// The optimiser of a step's update number `of_step`, from 1.
    pub(crate) fn optimizer(&self, step: Step, of_step: u64) -> AdamW {
        let (optim, per_step) = (&self.recipe.optim, self.updates_per_step());
        let (at, total) = ((step.0 - 1) * per_step + of_step, self.recipe.steps * per_step);
        let factor = optim.lr_schedule.factor(at, total, optim.warmup);
        AdamW {
            learning_rate: optim.lr * factor,
            beta1: optim.betas[0],
            beta2: optim.betas[1],
            epsilon: optim.eps,
            weight_decay: optim.weight_decay,
            step: 0,
            gradient_scale: 1.0,
        }
    }
}

const GROUPS: [&str; 3] = ["groups/all_fail", "groups/partially_solved", "groups/all_solved"];

/// The injections in each step of the run that `hapo.record` names; none where the gate reads none. Refuses a file that
/// does not say them for every step of the recipe.
fn injections_of(recipe: &Recipe) -> Result<Arc<[u64]>> {
    let hapo = recipe.hapo.as_ref();
    let Some(hapo) = hapo.filter(|it| it.gate.reads.contains(&"record")) else {
        return Ok([].into());
    };
    let path = Path::new(&hapo.record);
    let is_dir = found_at(path)?.is_some_and(|it| it.is_dir());
    let path = if is_dir { RunFolder(path).metrics() } else { path.to_owned() };
    let refused = |problem: String| {
        let problem = format!("{}: {problem}", path.display());
        let hint = "name the folder of a run of at least as many steps, or its metrics.jsonl";
        refused_recipe(recipe.name(), "hapo.record", problem, hint)
    };
    let text = std::fs::read_to_string(&path).map_err(|it| refused(it.to_string()))?;
    let mut injections = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let at_line = |problem: String| refused(format!("line {}: {problem}", number + 1));
        let line: Value = serde_json::from_str(line).map_err(|it| at_line(it.to_string()))?;
        let of = |name: &str| {
            let number = line.get(name).and_then(Value::as_f64);
            number.ok_or_else(|| at_line(format!("expected a number `{name}`")))
        };
        let step = of("step")? as u64;
        // What is measured before the first step is no step.
        if step > 0 {
            let groups = GROUPS.iter().map(|it| of(it)).sum::<Result<f64>>()?;
            injections.insert(step, (of("gate/beta")? * groups).round() as u64);
        }
    }
    let missing = |it| refused(format!("expected {} steps, step {it} is missing", recipe.steps));
    let of_step = |step: u64| injections.get(&step).copied().ok_or_else(|| missing(step));
    (1..=recipe.steps).map(of_step).collect()
}
