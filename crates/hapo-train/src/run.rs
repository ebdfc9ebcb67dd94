//! A run in memory: model, data and method put together, and its next step.

use std::path::{Path, PathBuf};

use hapo_core::{Gated, Host, Method, MethodKind, MixedGroup, PromptId, Schedule, Step};
use hapo_data::task::{Corpus, FAMILIES, Split, TaskSet};
use hapo_kernels::{Cpu, Device};
use hapo_model::LoadedModel;
use hapo_run::{Metrics, RolloutWriter, RunFolder, create_folder};
use hapo_sampler::{ChatFormat, choose_template};
use hapo_verify::Grader;

use crate::checkpoint::{self, Contents, TrainerState};
use crate::error::{Error, Result};
use crate::init::init_model;
use crate::pack::{Role, Sequence, TokenGroup};
use crate::prompts::{Limits, Order, Prompt, PromptTable, load_file};
use crate::recipe::{ModelSource, Recipe};
use crate::rollouts::lines_of;
use crate::step::{imitation_step, rollout_step};
use crate::trainer::{Batching, Trainer};

/// The base model of the built-in task, as it is shipped.
pub const BUILTIN_BASE: &str = "builtin:base";

/// Opens a model folder, or [`BUILTIN_BASE`], on the processor.
///
/// `context` is the longest sequence it will see, prompt and response together.
pub fn open_model(path: &str, context: usize, threads: usize) -> Result<LoadedModel<Cpu>> {
    open_model_on(path, context, cpu(threads)?)
}

/// As [`open_model`], on any device.
pub fn open_model_on<D: Device>(path: &str, context: usize, device: D) -> Result<LoadedModel<D>> {
    if path == BUILTIN_BASE {
        return crate::builtin::base(context, device);
    }
    Ok(hapo_model::load(Path::new(path), device, |_| context)?)
}

pub(crate) fn cpu(threads: usize) -> Result<Cpu> {
    Ok(Cpu::new(threads).map_err(hapo_model::ComputeError::from)?)
}

/// What a run trains on.
enum Source {
    Prompts { table: PromptTable, order: Order },
    Corpus(Corpus),
}

/// A run in memory.
pub struct Run<D: Device = Cpu> {
    pub(crate) recipe: Recipe,
    pub(crate) chat_format: ChatFormat,
    pub(crate) trainer: Trainer<D>,
    pub(crate) method: Box<dyn Method>,
    schedule: Option<Schedule>,
    source: Source,
    tokenizer_files: Vec<(&'static str, Vec<u8>)>,
    steps_done: u64,
    /// Where rollouts are kept; nowhere outside [`train`](crate::train).
    rollouts: Option<PathBuf>,
    writer: RolloutWriter,
}

impl Run {
    /// Loads model and data and puts the method together, on the processor.
    pub fn new(recipe: &Recipe, threads: usize) -> Result<Self> {
        Self::on(cpu(threads)?, recipe)
    }
}

impl<D: Device> Run<D> {
    /// As [`Run::new`], on any device.
    pub fn on(device: D, recipe: &Recipe) -> Result<Self> {
        let raw = &recipe.raw;
        let mut context = raw.data.max_prompt_tokens + raw.sampling.max_new_tokens;
        if recipe.hints {
            // A hint is read with the prompt, and the response behind it may be as long as any.
            context += raw.sampling.max_new_tokens;
        }
        let LoadedModel {
            model,
            tokenizer,
            tokenizer_files,
        } = match &recipe.model {
            ModelSource::Folder(path) => open_model_on(path, context, device)?,
            ModelSource::Init(init) => init_model(init, context, raw.seed, device)?,
            ModelSource::Stage(name) => {
                return Err(Error::Dataset {
                    problem: format!("model.path = \"stage:{name}\" is a stage of another recipe"),
                    hint: "run the recipe of all stages with `hapo train`".to_owned(),
                });
            }
        };
        let name = match &recipe.model {
            ModelSource::Folder(path) => path,
            _ => "the model",
        };
        let template = choose_template(raw.data.template_choice(), name, &tokenizer_files)?;
        let chat_format = ChatFormat::new(tokenizer, template, &model.config().eos)?;
        let grader = hapo_verify::grader(&raw.data.grader).map_err(|it| Error::Dataset {
            problem: it.to_string(),
            hint: "`hapo list graders` names them".to_owned(),
        })?;
        let source = load_source(recipe, &chat_format, grader)?;
        let steps_per_epoch = match &source {
            Source::Prompts { order, .. } => order.steps_per_epoch(),
            Source::Corpus(_) => 1,
        };
        let group_size = raw.sampling.group_size;
        let gate_error = |it: hapo_core::GateError| Error::Dataset {
            problem: it.to_string(),
            hint: "see the gate's section of docs/recipes.md".to_owned(),
        };
        let mut host =
            Host::new(recipe.method, recipe.objective, group_size).map_err(gate_error)?;
        if recipe.hints {
            host = host.with_hints(group_size).map_err(gate_error)?;
        }
        let (method, schedule): (Box<dyn Method>, _) = match &recipe.gate {
            None => (Box::new(host), None),
            Some((gate, slot)) => {
                let schedule =
                    Schedule::new(gate, group_size, steps_per_epoch).map_err(gate_error)?;
                (
                    Box::new(Gated {
                        host,
                        schedule: schedule.clone(),
                        slot: *slot,
                    }),
                    Some(schedule),
                )
            }
        };
        let mut trainer = Trainer::new(model, recipe.recompute)?;
        if raw.metrics.kl_every > 0 {
            trainer.keep_initial()?;
        }
        let recipe = recipe.clone();
        Ok(Self {
            recipe,
            chat_format,
            trainer,
            method,
            schedule,
            source,
            tokenizer_files,
            steps_done: 0,
            rollouts: None,
            writer: RolloutWriter::default(),
        })
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut all: Vec<String> = self
            .schedule
            .iter()
            .flat_map(Schedule::warnings)
            .map(|it| it.to_string())
            .collect();
        if let Source::Prompts { table, .. } = &self.source
            && let Some(first) = table.refused_teachers.first()
        {
            all.push(format!(
                "{} teacher trajectories are not admitted, the first: {first}",
                table.refused_teachers.len()
            ));
        }
        if let Source::Prompts { table, .. } = &self.source
            && table.copies > 0
        {
            all.push(format!(
                "{} rows of the data are copies of others; an epoch visits each of the {} prompts once",
                table.copies,
                table.prompts.len()
            ));
        }
        all
    }

    pub(crate) fn prompts(&self) -> &[Prompt] {
        match &self.source {
            Source::Prompts { table, .. } => &table.prompts,
            Source::Corpus(_) => &[],
        }
    }

    /// The order in which prompts are sampled; none for imitation.
    pub(crate) fn order(&self) -> Option<Order> {
        match &self.source {
            Source::Prompts { order, .. } if self.recipe.method.kind != MethodKind::Imitation => {
                Some(*order)
            }
            _ => None,
        }
    }

    pub(crate) fn prompt(&self, id: PromptId) -> &Prompt {
        // A prompt's id is its row; only imitation, which samples nothing, has removed rows.
        &self.prompts()[id.0 as usize]
    }

    pub(crate) fn steps_per_epoch(&self) -> u64 {
        match &self.source {
            Source::Prompts { order, .. } => order.steps_per_epoch(),
            Source::Corpus(_) => self.recipe.raw.steps,
        }
    }

    /// How the run's mini-batches are run.
    pub(crate) fn batching(&self) -> Batching {
        Batching {
            micro_batch_tokens: self.recipe.raw.optim.micro_batch_tokens,
            inverse_temperature: 1.0 / self.recipe.raw.sampling.temperature,
        }
    }

    /// Updates of the whole run, for the learning-rate schedule.
    pub(crate) fn total_updates(&self) -> u64 {
        let raw = &self.recipe.raw;
        let mini = raw.optim.mini_batch_prompts;
        let per_pass = if mini == 0 {
            1
        } else {
            raw.sampling.prompts_per_step.div_ceil(mini)
        };
        raw.steps * (per_pass * raw.optim.passes) as u64
    }

    /// The next step.
    pub fn step(&mut self) -> Result<Metrics> {
        let step = Step(self.steps_done + 1);
        let metrics = match (&self.source, self.recipe.method.kind) {
            (Source::Prompts { order, table }, MethodKind::Imitation) => {
                let groups: Vec<TokenGroup> = order
                    .of_step(step.0)
                    .into_iter()
                    .map(|it| demonstration(&table.prompts[it]))
                    .collect();
                imitation_step(self, &groups, step)?
            }
            (Source::Prompts { order, .. }, _) => rollout_step(self, *order, step)?,
            (Source::Corpus(corpus), _) => {
                let per_step = self.recipe.raw.sampling.prompts_per_step as u64;
                let first = (step.0 - 1) * per_step;
                let groups = (first..first + per_step)
                    .map(|it| document(&corpus.document(it), &self.chat_format))
                    .collect::<Result<Vec<_>>>()?;
                imitation_step(self, &groups, step)?
            }
        };
        self.steps_done = step.0;
        Ok(metrics)
    }

    /// Steps done.
    pub fn steps_done(&self) -> u64 {
        self.steps_done
    }

    /// The gate's table over the run, as `gate.json` keeps it; none for a bare host.
    pub(crate) fn gate_table(&self) -> Option<Vec<u8>> {
        let table = self.schedule.as_ref()?.table(self.recipe.raw.steps);
        Some(serde_json::to_vec(&table).expect("a schedule is plain data"))
    }

    /// Keeps the rollouts of the steps to come in a run folder.
    pub(crate) fn keep_rollouts_in(&mut self, run_dir: &Path) -> Result<()> {
        create_folder(&RunFolder(run_dir).rollouts())?;
        self.rollouts = Some(run_dir.to_owned());
        Ok(())
    }

    /// Begins to write the rollouts of a step, if they are kept.
    pub(crate) fn keep_rollouts(&mut self, groups: &[MixedGroup], step: Step) -> Result<()> {
        let every = self.recipe.raw.metrics.rollouts_every;
        let Some(run_dir) = &self.rollouts else {
            return Ok(());
        };
        if every == 0 || !step.0.is_multiple_of(every) {
            return Ok(());
        }
        let path = RunFolder(run_dir).rollouts_of(step.0);
        let mut lines = Vec::new();
        for it in groups {
            let text = |tokens: &[u32]| Ok(self.chat_format.text(tokens)?);
            let prompt = self.prompt(it.prompt());
            lines.extend(lines_of(it, prompt, step.0, &text)?);
        }
        Ok(self.writer.write(path, lines)?)
    }

    /// Waits until the rollouts of the steps done are on the disk.
    pub(crate) fn wait_for_rollouts(&mut self) -> Result<()> {
        Ok(self.writer.wait()?)
    }

    /// Goes back to a checkpoint.
    pub(crate) fn restore(&mut self, state: &TrainerState, folder: &Path) -> Result<()> {
        checkpoint::restore(folder, &mut self.trainer)?;
        self.trainer.updates = state.updates;
        self.steps_done = state.step;
        Ok(())
    }

    /// Writes the checkpoint after the steps done.
    pub(crate) fn save(
        &self,
        run_dir: &Path,
        resolved: &str,
        score: Option<f64>,
    ) -> Result<PathBuf> {
        let state = self.state(resolved, score);
        let keep = self.recipe.raw.checkpoint.keep;
        checkpoint::write(run_dir, &self.contents(&state), keep)
    }

    /// Saves what there is when a step cannot be finished (D23). In the midst of a step the folder is
    /// `halted-step-N`, which no run goes on from; before its first update it is the checkpoint of
    /// the step before, and there is nothing to save where that exists.
    pub(crate) fn save_halted(
        &self,
        run_dir: &Path,
        resolved: &str,
        in_the_midst: bool,
    ) -> Result<Option<PathBuf>> {
        let state = self.state(resolved, None);
        let folder = if in_the_midst {
            RunFolder(run_dir).halted_in(self.steps_done + 1)
        } else {
            RunFolder(run_dir).checkpoint_of(self.steps_done)
        };
        if !in_the_midst && (folder.exists() || self.steps_done == 0) {
            return Ok(None);
        }
        checkpoint::write_folder(&folder, &self.contents(&state))?;
        Ok(Some(folder))
    }

    fn state(&self, resolved: &str, score: Option<f64>) -> TrainerState {
        TrainerState {
            step: self.steps_done,
            updates: self.trainer.updates,
            recipe: resolved.to_owned(),
            template_hash: self.chat_format.template.hash(),
            score,
        }
    }

    fn contents<'a>(&'a self, state: &'a TrainerState) -> Contents<'a, D> {
        Contents {
            trainer: &self.trainer,
            dtype: self.recipe.dtype,
            tokenizer_files: &self.tokenizer_files,
            state,
        }
    }
}

/// A teacher trajectory as a group of its own.
fn demonstration(prompt: &Prompt) -> TokenGroup {
    let teacher = prompt
        .teacher
        .as_ref()
        .expect("imitation keeps only prompts with a teacher");
    single(prompt.tokens.clone(), teacher.tokens().to_vec())
}

/// A document of the built-in corpus as a group of its own.
fn document(document: &hapo_data::task::Document, chat_format: &ChatFormat) -> Result<TokenGroup> {
    Ok(single(
        chat_format.tokenizer.encode(&document.prompt)?,
        chat_format.tokenizer.encode(&document.response)?,
    ))
}

fn single(prompt: Vec<u32>, response: Vec<u32>) -> TokenGroup {
    TokenGroup {
        prompt,
        sequences: vec![Sequence {
            response,
            role: Role::Teacher { weight: 1.0 },
        }],
        has_signal: true,
    }
}

fn load_source(recipe: &Recipe, chat_format: &ChatFormat, grader: &dyn Grader) -> Result<Source> {
    let raw = &recipe.raw;
    let dataset = match raw.data.train.as_str() {
        "builtin:corpus" => {
            if recipe.method.kind != MethodKind::Imitation {
                return Err(Error::Dataset {
                    problem: "the corpus has no answers to reward".to_owned(),
                    hint: "use data.train = \"builtin\", or method = \"sft\"".to_owned(),
                });
            }
            let mixture = raw
                .data
                .mixture
                .clone()
                .unwrap_or_else(hapo_data::task::recommended_mixture);
            return Ok(Source::Corpus(Corpus::new(raw.seed, &mixture)?));
        }
        "builtin" => hapo_data::task::make_set(&TaskSet {
            seed: raw.data.seed,
            levels: levels(&raw.data.levels)?,
            split: Split::Train,
            count: raw.data.prompts,
            teacher_coverage: raw.data.teacher_coverage,
        })?,
        file => load_file(recipe.train_file.as_deref().unwrap_or(Path::new(file)))?,
    };
    let limits = Limits {
        prompt_tokens: raw.data.max_prompt_tokens,
        response_tokens: raw.sampling.max_new_tokens,
    };
    let mut table = PromptTable::new(&dataset, &raw.data.train, chat_format, grader, limits)?;
    if recipe.method.kind == MethodKind::Imitation {
        table = table.with_teacher();
    }
    let order = Order {
        seed: raw.seed,
        prompts: table.prompts.len(),
        per_step: raw.sampling.prompts_per_step,
    };
    if order.steps_per_epoch() == 0 {
        let what = if recipe.method.kind == MethodKind::Imitation {
            "prompts with an admissible teacher"
        } else {
            "prompts"
        };
        return Err(Error::Dataset {
            problem: format!(
                "expected at least {} {what} for one step, got {} ({})",
                order.per_step, order.prompts, raw.data.train
            ),
            hint: "lower sampling.prompts_per_step or add data".to_owned(),
        });
    }
    Ok(Source::Prompts { table, order })
}

/// Families and levels of the built-in task; none given means the hard ones of every family.
pub fn levels(names: &[String]) -> Result<Vec<(String, u32)>> {
    if names.is_empty() {
        let hard = FAMILIES
            .iter()
            .flat_map(|family| family.hard_levels.map(|it| (family.name.to_owned(), it)));
        return Ok(hard.collect());
    }
    let parse = |it: &String| {
        let (family, level) = it.split_once(':')?;
        Some((family.to_owned(), level.parse().ok()?))
    };
    names
        .iter()
        .map(|it| {
            parse(it).ok_or_else(|| Error::Dataset {
                problem: format!("data.levels: expected family:level, got `{it}`"),
                hint: "for example \"multiply:6\"".to_owned(),
            })
        })
        .collect()
}
