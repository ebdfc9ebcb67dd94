//! A recipe that cannot be wrong: typed sections, checked once, read only.

mod builtin;
mod keys;
mod range;
mod rules;
mod sections;
mod text;
mod unused_keys;
mod values;
mod words;

use std::{io::Read, ops::Deref, path::Path};

use hapo_core::{Annealing, Gate, HapoGate, Loss, Method, Needs, Refusal, found_at};
use hapo_data::{Dataset, TemplateChoice};
use hapo_run::RunFolder;
use hapo_sampler::{Decoding, Truncation};
use toml::{Table, Value};

use crate::Result;
use text::{Document, refused};
use unused_keys::{Idle, idle_keys};

pub use builtin::{BUILTIN_RECIPES, BuiltinRecipe};
pub use keys::{KeyEntry, key_entries, register_method, schema};
pub use range::Range;
pub use sections::{
    CheckpointSection, DataSection, EvalSection, GuardSection, HapoSection, InitSection, Key,
    LoraSection, LossSection, MetricsSection, ModelSection, OptimSection, REQUIRED,
    ReferenceSection, RewardSection, RolloutsSection, SECTIONS, SamplingSection, Settings,
};
pub(crate) use text::refused_recipe;
pub use text::{Overrides, RecipeProblem, WrittenAs};
pub use values::{
    AUTO, BuildMethod, DataSource, HintSource, LearningRateSchedule, LoraInit, LoraTargets,
    MethodName, MicroBatch, Overlong, RolloutEngine, Tracker,
};
pub use words::{did_you_mean, key_of_word};

#[derive(Clone, Debug)]
pub struct Recipe {
    name: String,
    stage: Option<String>,
    settings: Settings,
    own: Table,
    /// The keys that it does not read; they have their defaults.
    idle: Vec<Idle>,
    method: Method,
    loss: Loss,
    gate: Option<HapoGate>,
    model: ModelSource,
    reference: Option<ModelSource>,
}

#[derive(Clone, Debug)]
pub struct EvalSet {
    pub name: String,
    pub dataset: Dataset,
}

/// Which checkpoint a stage hands on (D33).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageCheckpoint {
    /// The best one where the stage has `[eval]`, else the last.
    Settled,
    Last,
    Best,
}

/// Where the initial weights come from.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelSource {
    /// A Hugging Face folder, or `builtin:base`.
    Folder(String),
    /// A checkpoint of an earlier stage of the run: `stage:NAME`.
    Stage(String, StageCheckpoint),
    Init(InitSection),
}

const MOST_BYTES: u64 = 1 << 20;

impl Recipe {
    /// Reads and checks a recipe file of one stage.
    pub fn load(path: &Path, overrides: &Overrides) -> Result<Self> {
        let mut stages = Self::load_stages(path, overrides)?;
        only(&mut stages, &path.display().to_string())
    }

    /// Reads and checks a recipe file of any number of stages, a run folder, or `builtin:NAME`, in the order in which they
    /// run. A recipe of one stage has no `stage`.
    pub fn load_stages(path: &Path, overrides: &Overrides) -> Result<Vec<Self>> {
        if let Some(name) = path.to_str().and_then(|it| it.strip_prefix(builtin::PREFIX)) {
            let recipe = builtin::find(name)?;
            return Self::parse_stages(recipe.text, &path.display().to_string(), name, overrides);
        }
        builtin::refuse_bare_name(path)?;
        let folder = RunFolder(path);
        let is_dir = found_at(path)?.is_some_and(|it| it.is_dir());
        let file = match folder.stages() {
            _ if !is_dir => path.to_owned(),
            stages if found_at(&stages)?.is_some() => stages,
            _ => folder.recipe(),
        };
        let io = |error| Refusal::io("read", &file)(error);
        // A link of a run folder may lead to a file without an end.
        if is_dir && found_at(&file)?.is_some_and(|it| !it.is_file()) {
            return Err(io(std::io::Error::other("it is no file")));
        }
        let mut text = String::new();
        let mut limited = std::fs::File::open(&file).map_err(io)?.take(MOST_BYTES + 1);
        if limited.read_to_string(&mut text).map_err(io)? as u64 > MOST_BYTES {
            return Err(io(std::io::Error::other("it has more than 1 MiB")));
        }
        let stem = path.file_stem().map_or("run".into(), |it| it.to_string_lossy());
        Self::parse_stages(&text, &file.display().to_string(), &stem, overrides)
    }

    /// As [`Recipe::load`], of a text. `name` is the run's when it has none itself, and names the text.
    pub fn parse(text: &str, name: &str, overrides: &Overrides) -> Result<Self> {
        only(&mut Self::parse_stages(text, name, name, overrides)?, name)
    }

    /// As [`Recipe::load_stages`], of a text that `origin` names in messages.
    pub fn parse_stages(
        text: &str,
        origin: &str,
        name: &str,
        overrides: &Overrides,
    ) -> Result<Vec<Self>> {
        let documents = text::documents(text, origin, overrides)?;
        let mut all: Vec<Self> = Vec::with_capacity(documents.len());
        for (stage, document) in &documents {
            let recipe = Self::of_document(document, name, stage.clone())?;
            let models =
                [("model.path", Some(&recipe.model)), ("reference.path", recipe.reference())];
            for (key, model) in models {
                let Some(ModelSource::Stage(from, which)) = model else { continue };
                let (what, hint) = match all.iter().find(|it| it.stage.as_ref() == Some(from)) {
                    None => (
                        format!("no stage `{from}` comes before this one"),
                        "write stage:NAME with the name of an earlier [[stage]]",
                    ),
                    Some(stage) if *which == StageCheckpoint::Best && stage.eval.is_none() => (
                        format!("stage `{from}` has no [eval] that a best could be told by"),
                        "write [eval] in that stage, or stage:NAME@last",
                    ),
                    Some(_) => continue,
                };
                return Err(document.error(&refused(key, what, hint)));
            }
            all.push(recipe);
        }
        if !overrides.of_many {
            refuse_idle(&documents, &all)?;
        }
        Ok(all)
    }

    /// The recipe that a run folder or checkpoint keeps.
    pub fn parse_resolved(text: &str, origin: &str) -> Result<Self> {
        let documents = text::documents(text, origin, &Overrides::default())?;
        let [(stage, document)] = &documents[..] else { return Err(several_stages(origin)) };
        Self::of_document(document, "run", stage.clone())
    }

    fn of_document(document: &Document, name: &str, stage: Option<String>) -> Result<Self> {
        let (written, own) = document.settings()?;
        let in_place = |it: Refusal| document.error(&it);
        rules::check(&written).map_err(in_place)?;
        let method = rules::method_of(&written, &own).map_err(in_place)?;
        rules::check_method(&written, &method).map_err(in_place)?;
        let idle = idle_keys(&written, &method);
        // An idle key has its default, so that nothing can read what was written.
        let settings = without(&written, &idle).try_into();
        let settings: Settings = settings.expect("it was one before");
        Ok(Self {
            name: settings.name.clone().unwrap_or_else(|| name.to_owned()),
            stage,
            loss: rules::loss_of(&settings, &method),
            gate: rules::gate_of(&settings, &method).map_err(in_place)?,
            model: rules::model_of(&settings).map_err(in_place)?,
            reference: rules::reference_of(&settings, &method).map_err(in_place)?,
            settings,
            own,
            idle,
            method,
        })
    }

    /// The recipe with other values, checked again. Keys that it does not read are passed over.
    pub fn with(&self, overrides: &Overrides) -> Result<Self> {
        let mut document = Document::of_table(&self.name, self.table());
        for it in &overrides.unset {
            document.unset(it);
        }
        for it in &overrides.set {
            document.set(it, overrides.written_as, true)?;
        }
        Self::of_document(&document, &self.name, self.stage.clone())
    }

    /// The recipe with nothing left to the model.
    pub(crate) fn settled(&self, template: TemplateChoice, micro_batch_tokens: usize) -> Self {
        let mut settled = self.clone();
        let data = &mut settled.settings.data;
        template.name.clone_into(&mut data.template);
        data.template_system = template.system.map(str::to_owned);
        data.template_suffix = template.suffix.map(str::to_owned);
        settled.settings.optim.micro_batch_tokens = MicroBatch::Tokens(micro_batch_tokens);
        settled
    }

    /// The text that the run folder keeps: defaults filled in, keys that it does not read left out.
    pub fn resolved(&self) -> String {
        toml::to_string(&self.table()).expect("a recipe is plain data")
    }

    pub(crate) fn stages_text(stages: &[Self]) -> String {
        let tables = stages.iter().map(|stage| Value::Table(stage.table())).collect();
        let text = toml::to_string(&Table::from_iter([("stage".to_owned(), Value::Array(tables))]));
        text.expect("a recipe is plain data")
    }

    /// The keys by which what is done before the last step depends on the number of steps.
    pub(crate) fn schedules_of_steps(&self) -> Vec<&'static str> {
        let optim = &self.optim;
        let last_look_counts =
            |eval: &EvalSection| eval.patience > 0 && !self.steps.is_multiple_of(eval.every);
        let gate_reads =
            |key: &str| self.settings.hapo.as_ref().is_some_and(|it| it.gate.reads.contains(&key));
        let keys = [
            ("optim.lr_schedule", optim.lr_schedule != LearningRateSchedule::Constant),
            ("optim.warmup", optim.warmup > 0.0),
            ("hapo.exposures", gate_reads("exposures")),
            ("hapo.record", gate_reads("record")),
            ("eval.patience", self.eval.as_ref().is_some_and(last_look_counts)),
        ];
        keys.into_iter().filter(|(_, depends)| *depends).map(|(key, _)| key).collect()
    }

    fn table(&self) -> Table {
        let mut table = without(&self.settings, &self.idle);
        if !self.own.is_empty() {
            table.insert(self.method.name.to_owned(), Value::Table(self.own.clone()));
        }
        table
    }
}

fn without(settings: &Settings, idle: &[Idle]) -> Table {
    let mut table = Table::try_from(settings).expect("a recipe is plain data");
    for (section, key) in idle.iter().filter_map(|it| it.key.split_once('.')) {
        table.get_mut(section).and_then(Value::as_table_mut).and_then(|it| it.remove(key));
    }
    table.retain(|_, it| it.as_table().is_none_or(|it| !it.is_empty()));
    table
}

fn only(stages: &mut Vec<Recipe>, origin: &str) -> Result<Recipe> {
    match stages.pop() {
        Some(it) if stages.is_empty() && it.stage.is_none() => Ok(it),
        _ => Err(several_stages(origin)),
    }
}

fn several_stages(origin: &str) -> Refusal {
    let hint = "`hapo train` runs the stages one after the other";
    refused_recipe(origin, "stage", "expected a recipe of one stage", hint)
}

/// The refusal of a stage that cannot be run yet, or not here.
pub(crate) fn wrong_stage(problem: String) -> Refusal {
    Refusal::input(problem).hint("run the stages of the recipe in their order")
}

/// The refusal of a recipe that starts from a stage, where nobody knows of which run.
pub(crate) fn of_another_recipe(stage: &str) -> Refusal {
    wrong_stage(format!("model.path = \"stage:{stage}\" is a stage of another recipe"))
}

/// Refuses keys that are written where nothing reads them. What several stages share, one of them must read.
fn refuse_idle(documents: &[(Option<String>, Document)], recipes: &[Recipe]) -> Result<()> {
    let read_by_none = |idle: &Idle| {
        recipes.iter().all(|recipe| recipe.idle.iter().any(|other| other.key == idle.key))
    };
    for ((_, document), recipe) in documents.iter().zip(recipes) {
        for idle in &recipe.idle {
            let mut places = document.places_of(&idle.key);
            if let Some((key, _)) = places.find(|it| !it.1.shared || read_by_none(idle)) {
                let what = format!("`{key}` means nothing here: {}", idle.because);
                let hint = format!("leave it out, or add `{} {key}`", document.written_as.unset);
                return Err(document.error(&refused(key, what, hint)));
            }
        }
    }
    Ok(())
}

/// A recipe has the keys of its settings; those that it does not read have their defaults.
impl Deref for Recipe {
    type Target = Settings;

    fn deref(&self) -> &Settings {
        &self.settings
    }
}

impl Recipe {
    /// Name of the run; of the stage, in a recipe of several.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Name of the stage and of its folder, in a recipe of several.
    pub fn stage(&self) -> Option<&str> {
        self.stage.as_deref()
    }

    pub fn method(&self) -> &Method {
        &self.method
    }

    pub fn needs(&self) -> Needs {
        rules::needs_of(&self.settings, &self.method)
    }

    /// Where hints come from; none where none are shown.
    pub fn hints(&self) -> Option<HintSource> {
        self.needs().hints.then_some(self.settings.data.hints)
    }

    pub fn loss(&self) -> &Loss {
        &self.loss
    }

    /// The gate, its slot rule and what enters; `None` for the bare method.
    pub fn gate(&self) -> Option<&HapoGate> {
        self.gate.as_ref()
    }

    /// True if rows of data are kept whole, for a custom reward.
    pub fn keeps_fields(&self) -> bool {
        hapo_net::reward::is_own(&self.data.grader)
    }

    pub fn model(&self) -> &ModelSource {
        &self.model
    }

    /// The second model, where something reads its log-probabilities (D38).
    pub fn reference(&self) -> Option<&ModelSource> {
        self.reference.as_ref()
    }

    pub(crate) fn evaluates_after(&self, step: u64) -> bool {
        self.eval.as_ref().is_some_and(|it| step == self.steps || step.is_multiple_of(it.every))
    }

    /// True if a checkpoint is due after this step, whatever it is worth.
    pub(crate) fn saves_after(&self, step: u64) -> bool {
        let every = self.checkpoint.every;
        every > 0 && step.is_multiple_of(every)
    }

    /// Longest completion of the evaluation in tokens; 0 without one.
    pub(crate) fn eval_max_tokens(&self) -> usize {
        self.eval.as_ref().map_or(0, |it| it.max_tokens.unwrap_or(self.sampling.max_new_tokens))
    }

    pub(crate) fn eval_decoding(&self) -> Decoding {
        let temperature = self.eval.as_ref().map_or(0.0, |it| it.temperature);
        let decoding = Decoding::at_temperature(temperature as f32, Truncation::NONE);
        decoding.expect("the temperature was checked")
    }

    pub fn warnings(&self) -> Vec<String> {
        let mut all = Vec::new();
        if let Some(HapoGate { rule, gate, .. }) = &self.gate
            && matches!(gate, Gate::Confidence { annealing: Annealing::Off, .. })
            && !rule.chooses
        {
            all.push("without annealing the gate is positive feedback under collapse: all fail, all are injected".to_owned());
        }
        let noise = self.settings.data.verdict_noise;
        if noise > 0.0 {
            all.push(format!("data.verdict_noise flips {:.1} % of the verdicts", noise * 100.0));
        }
        let lr = self.settings.optim.lr;
        if !(1e-8..=1e-2).contains(&lr) {
            all.push(format!(
                "optim.lr = {lr:e} is far from what trains: 1e-6 is usual from 100 M parameters on, 1e-4 below"
            ));
        }
        let (s, mini_batch) = (&self.settings.sampling, self.settings.optim.mini_batch_prompts);
        if (1..s.prompts_per_step).contains(&mini_batch) && s.prompts_per_step % mini_batch > 0 {
            let (prompts, left) = (s.prompts_per_step, s.prompts_per_step % mini_batch);
            all.push(format!(
                "optim.mini_batch_prompts = {mini_batch} does not divide the {prompts} prompts of a step: its last update \
                 is made from {left}, which weigh more than the others"
            ));
        }
        if s.top_p < 1.0 || s.top_k > 0 || s.min_p > 0.0 {
            all.push("sampling.top_p, top_k or min_p samples from another distribution than the importance ratio assumes".to_owned());
        }
        all
    }
}

/// Families and levels of the built-in task by their names; none given means the hard ones of every family.
pub fn levels(names: &[String]) -> Result<Vec<(String, u32)>> {
    rules::levels(names).map_err(|it| Document::of_table("levels", Table::new()).error(&it))
}

impl SamplingSection {
    pub fn decoding(&self) -> Decoding {
        let (top_p, min_p) = (self.top_p as f32, self.min_p as f32);
        let truncation = Truncation { top_k: self.top_k, top_p, min_p };
        Decoding::Sample { temperature: self.temperature as f32, truncation }
    }
}
