//! A run in memory: model, data and method put together, and its next step.

pub(crate) mod preflight;
pub mod replay_run;
pub(crate) mod train;
pub(crate) mod validation;

use std::path::{Path, PathBuf};
use std::{collections::BTreeSet, sync::Arc};

use hapo_core::{
    Gate, Gated, Memory, MixedGroup, PromptId, Refusal, Schedule, Step, found_at, hex,
};
use hapo_kernels::{Cpu, Device};
use hapo_model::{Dtype, LoadedModel, Model, Moments, Tokenizer, config_json};
use hapo_run::{Metrics, Preflight, RunFolder};
use hapo_sampler::{ChatFormat, KvMemory, choose_template};
use sha2::{Digest, Sha256};

use crate::checkpoint::{self, Contents, TrainerState};
use crate::engine::trainer::{Trainer, loss_of};
use crate::engine::trainer_files::{ModelFiles, hash_of_weights, published_hash_of};
use crate::engine::{Engines, LocalSampler, Sampler, TRAINING, naming_memory_keys};
use crate::grading::{RunGrader, Verifier};
use crate::model::init::{self, init_model};
use crate::model::lora::{self, Opened, Use};
use crate::model::{BUILTIN_BASE, base_folder};
use crate::plan::{config_of_model, longest_sequences};
use crate::problems::inputs::{INVARIANT, Inputs, PUBLISHED_WEIGHTS, WEIGHTS};
use crate::problems::source::{Source, demonstration, load_source};
use crate::recipe::{
    HintSource, ModelSource, Recipe, RolloutEngine, of_another_recipe, refused_recipe,
};
use crate::step::{Task, imitation_step, rollout_step};
use crate::{
    Result, engine::scorer::Scorer, engine::server::ServerSampler, observe::Clock, observe::Meter,
    plan::run_plan::RunPlan, run::validation::Validation, step::rollouts::RolloutLog,
    step::update::update_once,
};

/// Opens a model folder, or [`BUILTIN_BASE`], on the CPU. An adapter's folder whose base is here stands for the merged
/// model. `context` is the longest sequence it will see, prompt and response together.
pub fn open_model(path: &str, context: usize, threads: usize) -> Result<LoadedModel<Cpu>> {
    open_model_on(path, context, Cpu::new(threads)?)
}

pub fn open_model_on<D: Device>(path: &str, context: usize, device: D) -> Result<LoadedModel<D>> {
    Ok(lora::open(path, context, device, Use::Change)?.loaded)
}

/// As [`open_model_on`], for weights that are read only: where the folder has its matrices in bf16 or in blocks of small
/// integers, they are held in bf16 alone.
pub fn open_frozen_on<D: Device>(path: &str, context: usize, device: D) -> Result<LoadedModel<D>> {
    Ok(lora::open(path, context, device, Use::Read)?.loaded)
}

pub struct Run<D: Device = Cpu> {
    plan: RunPlan,
    pub(crate) learner: Trainer<D>,
    sampler: Box<dyn Sampler<Model<D>>>,
    reference: Option<Scorer<D>>,
    method: Gated,
    source: Source,
    pub(crate) grader: RunGrader,
    verifier: Verifier,
    rollouts: RolloutLog,
    files: ModelFiles,
    inputs: Inputs,
    validation: Option<Validation>,
    steps_done: u64,
    /// The method's memory (D39).
    memory: Memory,
    shown: BTreeSet<PromptId>,
    warnings: Vec<String>,
    /// Seconds of the parts of the start, in order.
    laps: Clock,
}

/// What a GPU whose products depend on the other rows means for a run.
const ROWS_DEPEND: &str = "a row of a product has other bits among other rows on this GPU, so sampled log-probabilities \
     may differ from the trainer's: sampler/logprob_gap_max says how much, rollouts.correction corrects it";

impl Run {
    /// Loads model and data and puts the method together, on the CPU.
    pub fn new(plan: &RunPlan, threads: usize) -> Result<Self> {
        Self::on(Cpu::computing(threads, plan.recipe().compute)?, plan)
    }
}

impl<D: Device> Run<D> {
    /// As [`Run::new`], on any device that computes as the recipe says.
    pub fn on(device: D, plan: &RunPlan) -> Result<Self> {
        Self::open(device, plan).map_err(|refusal| naming_memory_keys(refusal, TRAINING))
    }

    fn open(device: D, plan: &RunPlan) -> Result<Self> {
        let (recipe, mut laps) = (plan.recipe(), Clock::default());
        check_compute(&device, recipe)?;
        plan.sources.check(recipe)?;
        let (model_source, context) = (plan.model()?, plan.context());
        let reference = open_reference(&device, plan)?;
        let lora = recipe.lora.as_ref().map(|it| (it, recipe.seed));
        let purpose = lora.map_or(Use::Change, |(section, seed)| Use::Adapter(section, seed));
        let Opened { loaded, base } = match &model_source {
            ModelSource::Folder(path) => lora::open(path, context, device, purpose)?,
            ModelSource::Init(init) => {
                let mut loaded = init_model(init, context, recipe.seed, device)?;
                if let Some((section, seed)) = lora {
                    lora::begin(&mut loaded.model, section, seed)?;
                }
                Opened { loaded, base: String::new() }
            }
            ModelSource::Stage(name, _) => return Err(of_another_recipe(name)),
        };
        let LoadedModel { mut model, tokenizer, tokenizer_files, mut warnings, .. } = loaded;
        let (fingerprint, hash) = (loaded.fingerprint, loaded.hash);
        laps.lap("weights");
        check_kv_memory(plan, &model)?;
        let name = if let ModelSource::Folder(path) = &model_source { path } else { "the model" };
        let template = choose_template(plan.template().choice(), name, &tokenizer_files)?;
        let chat_format = ChatFormat::new(tokenizer, template, &model.config().eos)?;
        let chat_format = Arc::new(chat_format);
        let grader = plan.grader()?;
        let source =
            load_source(recipe, &plan.sources.train_files(recipe), &chat_format, &*grader.grader)?;
        let longest = source.longest_prompt() + (context - recipe.data.max_prompt_tokens);
        warnings.extend(model.config().beyond_positions(longest));
        laps.lap("data");
        let mut inputs = inputs_of(&model, &tokenizer_files);
        inputs.set("template", chat_format.template.hash());
        if model.device().caps().is_cpu() {
            inputs.set("arithmetic", hapo_kernels::ARITHMETIC.to_owned());
            inputs.set(WEIGHTS, hash_of_weights(&model));
        } else {
            inputs.set(PUBLISHED_WEIGHTS, published_hash_of(&model, hash));
        }
        laps.lap("hash of the weights");
        if let Some(is_invariant) = model.rows_are_independent()? {
            inputs.set(INVARIANT, is_invariant.to_string());
            if !is_invariant {
                warnings.push(ROWS_DEPEND.to_owned());
            }
        }
        laps.lap("rows of products compared");
        if let Some(it) = &reference {
            it.require_tokenizer(&chat_format.tokenizer, recipe.name())?;
            inputs.set("reference", it.hash.clone());
        }
        if let Some((table, _)) = source.prompts() {
            inputs = inputs.and(&table.inputs);
        }
        if !plan.record.is_empty() {
            let text = serde_json::to_string(&*plan.record).expect("counts are plain data");
            inputs.set("record", hex(Sha256::digest(text)));
        }
        let method = method_of(plan, source.steps_per_epoch().unwrap_or(1))?;
        if let Some(hash) = method.method.foreign.as_ref().and_then(|it| it.code_hash()) {
            inputs.set("method", hash);
        }
        let moments = Moments::held_in(recipe.optim.moments, &model, recipe.seed)?;
        let checkpointing = recipe.optim.activation_checkpointing;
        let named = recipe.model.path.as_ref().filter(|it| !it.starts_with("stage:"));
        let files = ModelFiles {
            base: [named.unwrap_or(&base).clone(), base, fingerprint],
            dtype: recipe.model.dtype,
            tokenizer_files: chat_format.trained_files(tokenizer_files, name)?,
        };
        model.set_eos(&chat_format.stop);
        let mut learner = Trainer::with_moments(model, checkpointing, moments)?;
        if recipe.metrics.kl_every > 0 {
            learner.keep_initial()?;
        }
        laps.lap("moments");
        let sampler = sampler_of(plan, &chat_format, &files)?;
        Ok(Self {
            laps,
            learner,
            sampler,
            reference: reference.map(|it| it.scorer),
            method,
            source,
            verifier: Verifier {
                chat_format: chat_format.clone(),
                policy: plan.grading_policy(),
                workers: grader.grader.workers(),
            },
            grader,
            rollouts: RolloutLog::new(chat_format, recipe.metrics.rollouts_every),
            files,
            inputs,
            validation: None,
            steps_done: 0,
            memory: Memory::default().limited_to(recipe.sampling.remembered_tokens),
            shown: BTreeSet::new(),
            warnings,
            plan: plan.clone(),
        })
    }

    /// Hashes the weights as `before` has them hashed, a run of another device or version.
    pub(crate) fn hash_weights_as_in(&mut self, before: &Inputs) {
        let model = &self.learner.model;
        if before.has(WEIGHTS) && !self.inputs.has(WEIGHTS) {
            self.inputs.set(WEIGHTS, hash_of_weights(model));
        }
        if before.has(PUBLISHED_WEIGHTS) && !self.inputs.has(PUBLISHED_WEIGHTS) {
            self.inputs.set(PUBLISHED_WEIGHTS, published_hash_of(model, None));
        }
    }
}

fn sampler_of<D: Device>(
    plan: &RunPlan,
    chat_format: &Arc<ChatFormat>,
    files: &ModelFiles,
) -> Result<Box<dyn Sampler<Model<D>>>> {
    let (recipe, section) = (plan.recipe(), &plan.recipe().rollouts);
    let stop_strings = recipe.sampling.stop.clone();
    let Some(server) = &section.server else {
        let (chat_format, meter) = (chat_format.clone(), Meter::default());
        return Ok(Box::new(LocalSampler { chat_format, stop_strings, meter }));
    };
    let mut files = files.clone();
    if section.engine == RolloutEngine::Hapo {
        // Our own server samples what is trained, bit for bit.
        files.dtype = Dtype::F32;
    }
    let tokens = plan.batching().micro_batch_tokens;
    Ok(Box::new(ServerSampler::new(server, section, files, stop_strings, tokens)?))
}

/// The second model of a run (D38).
struct Reference<D: Device> {
    scorer: Scorer<D>,
    tokenizer: Tokenizer,
    hash: String,
}

fn open_reference<D: Device>(device: &D, plan: &RunPlan) -> Result<Option<Reference<D>>> {
    let path = match plan.reference()? {
        None => return Ok(None),
        Some(ModelSource::Stage(name, _)) => return Err(of_another_recipe(&name)),
        Some(ModelSource::Init(_)) => unreachable!("a reference is a folder or a stage"),
        Some(ModelSource::Folder(path)) => path,
    };
    let loaded = open_model_on(&path, plan.context(), device.clone())?;
    let mut inputs = inputs_of(&loaded.model, &loaded.tokenizer_files);
    inputs.set(WEIGHTS, hash_of_weights(&loaded.model));
    let text = serde_json::to_string(&inputs).expect("hashes are plain data");
    Ok(Some(Reference {
        scorer: Scorer::new(loaded.model, plan.batching().micro_batch_tokens),
        tokenizer: loaded.tokenizer,
        hash: hex(Sha256::digest(text)),
    }))
}

impl<D: Device> Reference<D> {
    /// Refuses a model that gives a token another number.
    fn require_tokenizer(&self, tokenizer: &Tokenizer, origin: &str) -> Result<()> {
        let size = tokenizer.vocab_size().max(self.tokenizer.vocab_size()) as u32;
        let differs = |id: &u32| tokenizer.token(*id) != self.tokenizer.token(*id);
        let Some(id) = (0..size).find(differs) else { return Ok(()) };
        let (own, other) = (tokenizer.token(id), self.tokenizer.token(id));
        let problem = format!(
            "expected the model's tokenizer, got another: token {id} is {own:?} in the model's, {other:?} in the reference's"
        );
        let hint = "a second model scores the model's own tokens: take one of the same vocabulary";
        Err(refused_recipe(origin, "reference.path", problem, hint))
    }
}

fn check_compute<D: Device>(device: &D, recipe: &Recipe) -> Result<()> {
    let (asked, got) = (recipe.compute, device.caps().compute);
    if asked == got {
        return Ok(());
    }
    let problem =
        format!("expected a device whose products are of {asked} factors, got one of {got}");
    Err(refused_recipe(recipe.name(), "compute", problem, "open the device as the recipe says"))
}

/// Refuses a limit on keys and values that holds no sequence of the longest prompt and response.
fn check_kv_memory<D: Device>(plan: &RunPlan, model: &Model<D>) -> Result<()> {
    let recipe = plan.recipe();
    let KvMemory::Bytes(bytes) = recipe.sampling.kv_memory else { return Ok(()) };
    for one in longest_sequences(recipe, plan.sources.eval.as_deref()) {
        let fit = KvMemory::fit::<D>(model.config(), model.kv_format(), usize::MAX, bytes, one);
        fit.map_err(|it| {
            let hint = "give keys and values more memory, or lower sampling.max_new_tokens";
            refused_recipe(recipe.name(), "sampling.kv_memory", it.to_string(), hint)
        })?;
    }
    Ok(())
}

fn inputs_of<D: Device>(model: &Model<D>, files: &[(&'static str, Vec<u8>)]) -> Inputs {
    let (mut inputs, config) = (Inputs::default(), model.config());
    let generation = config_json::render_generation(config, None).expect("nothing is kept");
    let text = config_json::render(config, Dtype::F32) + &generation;
    inputs.set("config", hex(Sha256::digest(text)));
    if let Some((_, tokenizer)) = files.iter().find(|it| it.0 == "tokenizer.json") {
        inputs.set("tokenizer", hex(Sha256::digest(tokenizer)));
    }
    inputs
}

/// When the teacher can help in a run, by the data and without the weights; `None` for a bare method.
pub fn schedule_of(plan: &RunPlan) -> Result<Option<Schedule>> {
    let (recipe, model) = (plan.recipe(), plan.model()?);
    let aside;
    let (tokenizer, files) = match &model {
        ModelSource::Init(init) => init::tokenizer_of(init)?,
        ModelSource::Stage(name, _) => return Err(of_another_recipe(name)),
        ModelSource::Folder(path) => {
            let folder = if path == BUILTIN_BASE {
                aside = base_folder()?;
                aside.path()
            } else {
                Path::new(path)
            };
            let files = hapo_model::folder::read_tokenizer_files(folder)?;
            (Tokenizer::of_files(folder, &files)?, files)
        }
    };
    let template = choose_template(plan.template().choice(), "the model", &files)?;
    let chat_format = ChatFormat::new(tokenizer, template, &config_of_model(recipe, &model)?.eos)?;
    let files = plan.sources.train_files(recipe);
    let source = load_source(recipe, &files, &chat_format, &*plan.grader()?.grader)?;
    Ok(method_of(plan, source.steps_per_epoch().unwrap_or(1))?.schedule().cloned())
}

fn method_of(plan: &RunPlan, steps_per_epoch: u64) -> Result<Gated> {
    let recipe = plan.recipe();
    let group_size = recipe.sampling.group_size;
    let method = recipe.method().clone();
    let gated = match recipe.gate() {
        None => Gated::bare(method, group_size),
        Some(hapo) => {
            let mut hapo = hapo.clone();
            hapo.settings.record.clone_from(&plan.record);
            Gated::hapo(method, hapo, group_size, steps_per_epoch)
        }
    };
    gated.map_err(|error| Refusal::because(error).hint("`hapo recipe hapo` lists the gate's keys"))
}

impl<D: Device> Run<D> {
    /// The run with another sampler, made from the one that it has.
    #[must_use]
    pub fn with_sampler<S: Sampler<Model<D>> + 'static>(
        mut self,
        wrap: impl FnOnce(Box<dyn Sampler<Model<D>>>) -> S,
    ) -> Self {
        self.sampler = Box::new(wrap(self.sampler));
        self
    }

    /// Samples the first `prompts` prompts, at most those of a step; `None` for a run that samples nothing.
    pub fn preflight(&mut self, prompts: usize) -> Result<Option<Preflight>> {
        preflight::preflight(self, prompts, |_, _| {})
    }

    pub fn epoch(&self) -> Option<(u64, usize)> {
        let (table, order) = self.source.prompts()?;
        Some((order.steps_per_epoch(), table.prompts.len()))
    }

    pub fn warnings(&self) -> Vec<String> {
        let gate = self.method.schedule().into_iter();
        let gate = gate.flat_map(Schedule::warnings);
        let of_data = self.source.warnings(self.wants_teacher());
        let golds = self.source.prompts().into_iter().flat_map(|it| &it.0.prompts);
        let golds = golds.filter(|it| it.gold.is_some()).map(|it| it.answer.as_str());
        let unsuited = hapo_eval::unsuited(self.grader.grader.name(), golds);
        self.warnings.iter().cloned().chain(gate).chain(of_data).chain(unsuited).collect()
    }

    /// A step's inputs, the machines that it runs on and its log. Is `None` for imitation, which samples nothing.
    pub(crate) fn task(
        &mut self,
        step: Step,
    ) -> Option<(Task<'_>, Engines<'_, D>, &mut RolloutLog)> {
        let Source::Prompts { table, order, imitates: false } = &self.source else { return None };
        if let Some(foreign) = &self.method.method.foreign {
            foreign.recall(&self.memory);
        }
        let task = Task {
            step,
            table,
            order: *order,
            method: &self.method,
            verifier: &self.verifier,
            memory: &self.memory,
            plan: &self.plan,
        };
        let engines = Engines {
            learner: &mut self.learner,
            sampler: self.sampler.as_mut(),
            reference: self.reference.as_mut(),
            rescoring: self.plan.recipe().rollouts.correction().map(|_| self.plan.batching()),
        };
        Some((task, engines, &mut self.rollouts))
    }

    pub fn set_meter(&mut self, meter: &Meter) {
        self.learner.meter = meter.clone();
        self.sampler.set_meter(meter.clone());
    }

    /// True if the method is one in which a teacher may enter groups.
    pub(crate) fn wants_teacher(&self) -> bool {
        let recipe = self.plan.recipe();
        let gate = recipe.gate().map_or(recipe.method().plan.gate, |it| it.gate);
        let needs = recipe.needs();
        // A response that is distilled or replayed at HAPO's gate is no teacher's trajectory.
        let is_other = (needs.memory || needs.reference) && recipe.gate().is_some();
        (gate != Gate::Never && needs.traces > 0 && !is_other)
            || needs.prefixes
            || recipe.hints() == Some(HintSource::Solution)
    }

    pub fn step(&mut self) -> Result<Metrics> {
        self.next_step().map_err(|refusal| naming_memory_keys(refusal, TRAINING))
    }

    fn next_step(&mut self) -> Result<Metrics> {
        let step = Step(self.steps_done + 1);
        let chat_format = &self.verifier.chat_format;
        let mut metrics = if let Some(mut batch) = self.source.demonstrations(chat_format, step)? {
            let steps_per_epoch = self.source.steps_per_epoch();
            let epoch = step.0 as f64 / steps_per_epoch.unwrap_or(self.plan.recipe().steps) as f64;
            let imitated = self.source.prompts().map(|(table, order)| {
                table.at(&order.of_step(step.0)).into_iter().map(|prompt| prompt.id)
            });
            self.shown.extend(imitated.into_iter().flatten());
            imitation_step(&mut self.learner, &mut batch, &self.plan, step, epoch)?
        } else {
            let task = self.task(step);
            let (task, mut engines, log) = task.expect("only prompts have no demonstrations");
            let (mut metrics, groups) = rollout_step(task, &mut engines, log)?;
            self.remember(&groups, step, &mut metrics)?;
            let shown = groups.iter().filter(|group| group.shows_teacher());
            self.shown.extend(shown.map(MixedGroup::prompt).chain(self.memory.due.iter().copied()));
            metrics
        };
        metrics.set("teacher/distinct", self.source.prompts().map(|_| self.shown.len() as f64));
        let device = self.learner.model.device();
        metrics.set("memory/gpu_peak", device.peak_bytes().map(|it| it as f64));
        metrics.set("sampler/refused_products", device.refused_products().map(|it| it as f64));
        self.steps_done = step.0;
        Ok(metrics)
    }

    /// Remembers what the method keeps of a step, after its last update, and imitates the demonstrations that are due
    /// in one more (D43).
    pub(crate) fn remember(
        &mut self,
        groups: &[MixedGroup],
        step: Step,
        metrics: &mut Metrics,
    ) -> Result<()> {
        self.memory = self.method.remember(std::mem::take(&mut self.memory), groups, step);
        if let Some(problem) = self.method.method.foreign.as_ref().and_then(|it| it.failure()) {
            return Err(Refusal::input(problem));
        }
        let Source::Prompts { table, imitates: false, .. } = &self.source else { return Ok(()) };
        let due: Vec<_> =
            self.memory.due.iter().map(|it| demonstration(table.prompt(*it))).collect();
        if due.is_empty() {
            return Ok(());
        }
        // At the rate of the step's last update: how many of these there will be is not known beforehand.
        let optimizer = self.plan.optimizer(step, self.plan.updates_per_step());
        let stats = update_once(&mut self.learner, &due, &self.plan, step, optimizer)?;
        let tokens: usize = due.iter().map(|it| it.sequences[0].response.len()).sum();
        metrics.set("demonstrations/prompts", due.len() as f64);
        metrics.set("demonstrations/tokens", tokens as f64);
        metrics.set("demonstrations/loss", loss_of(&stats));
        metrics.set("demonstrations/waiting", self.memory.waiting() as f64);
        Ok(())
    }

    pub fn steps_done(&self) -> u64 {
        self.steps_done
    }

    /// Keeps the rollouts of the steps to come in a run folder, as the recipe says.
    pub(crate) fn keep_rollouts_in(&mut self, run_dir: &Path) -> Result<()> {
        let Source::Prompts { imitates: false, .. } = self.source else { return Ok(()) };
        self.rollouts.keep_in(run_dir)
    }

    pub(crate) fn keep_reward_log_in(&self, run_dir: &Path) -> Result<()> {
        let Some(log) = &self.grader.log else { return Ok(()) };
        let path = RunFolder(run_dir).reward_log();
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
        log.keep_in(file.map_err(Refusal::io("write", &path))?);
        Ok(())
    }

    /// Returns to a checkpoint. Tells if what the method remembers is dropped: it is of rows by their numbers, which are
    /// other prompts in other data.
    pub(crate) fn restore(
        &mut self,
        state: &TrainerState,
        folder: &Path,
    ) -> Result<Option<&'static str>> {
        let same_rows = self.inputs.has_rows_of(&state.inputs);
        if self.method.remembers() && same_rows {
            let memory = checkpoint::read_memory(folder)?;
            self.memory = memory.limited_to(self.plan.recipe().sampling.remembered_tokens);
        }
        self.shown = if same_rows { state.shown.clone() } else { BTreeSet::new() };
        self.learner.restore(folder, state.updates)?;
        self.steps_done = state.step;
        let dropped = "the data are others: what the method remembers of earlier steps is dropped";
        Ok((self.method.remembers() && !same_rows).then_some(dropped))
    }

    pub(crate) fn load_validation(&mut self) -> Result<()> {
        let chat_format = &self.verifier.chat_format;
        let validation = Validation::load(&self.plan, chat_format, &*self.grader.grader)?;
        if let Some(it) = &validation {
            self.inputs = self.inputs.clone().and(&it.inputs());
            if let Some((trained, _)) = self.source.prompts() {
                self.warnings.extend(it.warnings(trained));
            }
        }
        self.validation = validation;
        Ok(())
    }

    pub(crate) fn evaluate(&mut self, metrics: &mut Metrics) -> Result<()> {
        let Some(validation) = &self.validation else { return Ok(()) };
        let engines = &mut Engines {
            learner: &mut self.learner,
            sampler: self.sampler.as_mut(),
            reference: self.reference.as_mut(),
            // No ratio is taken to an evaluation.
            rescoring: None,
        };
        validation.evaluate(&self.plan, engines, &self.verifier, metrics)
    }

    /// Hashes of what it reads besides its recipe; of its evaluation's problems once they are loaded.
    pub fn inputs(&self) -> &Inputs {
        &self.inputs
    }

    /// Saves what there is when a step cannot be finished (D23). Mid-step, after an update, the folder is `halted-step-N`,
    /// which no run resumes from; before its first update it is the checkpoint of the step before, and there is nothing
    /// to save where that exists. A step whose rollouts are not on the disk is not done: it is sampled again.
    pub(crate) fn save_halted(
        &mut self,
        run_dir: &Path,
        resolved: &str,
        mid_step: bool,
    ) -> Result<Option<PathBuf>> {
        let state = self.state(resolved, None);
        let folder = if mid_step {
            RunFolder(run_dir).halted_in(self.steps_done + 1)
        } else {
            RunFolder(run_dir).checkpoint_of(self.steps_done)
        };
        let is_there = found_at(&folder)?.is_some();
        let writer = &mut self.rollouts.writer;
        let is_done = self.steps_done > 0 && writer.wait().is_ok() && !writer.has_lost;
        if !mid_step && (is_there || !is_done) {
            return Ok(None);
        }
        checkpoint::write_folder(&folder, &self.contents(&state))?;
        Ok(Some(folder))
    }

    pub(crate) fn state(&self, resolved: &str, score: Option<f64>) -> TrainerState {
        TrainerState {
            step: self.steps_done,
            updates: self.learner.updates,
            recipe: resolved.to_owned(),
            template_hash: self.verifier.chat_format.template.hash(),
            score,
            inputs: self.inputs.clone(),
            shown: self.shown.clone(),
        }
    }

    pub(crate) fn contents<'a>(&'a self, state: &'a TrainerState) -> Contents<'a, D> {
        Contents {
            learner: &self.learner,
            files: &self.files,
            state,
            memory: self.method.remembers().then_some(&self.memory),
        }
    }
}
