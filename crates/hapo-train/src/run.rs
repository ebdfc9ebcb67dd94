//! A run: what it is made of, and its loop over steps.

use std::fs;
use std::path::{Path, PathBuf};

use hapo_core::{Draws, Place, PromptId, Purpose, Schedule, Step};
use hapo_data::task::{Corpus, FAMILIES, Split, TaskSet};
use hapo_kernels::Cpu;
use hapo_methods::{Gated, Host, Method, MethodKind};
use hapo_model::{Config, Family, LoadedModel, Model, Rope, Tokenizer};
use hapo_sampler::Dialogue;
use hapo_verify::Grader;

use crate::checkpoint::{self, Contents, TrainerState};
use crate::error::{Error, Result};
use crate::files::{create_folder, write_atomically};
use crate::metrics::{Metrics, MetricsFile};
use crate::pack::{Role, Sequence, TokenGroup};
use crate::prompts::{Limits, Order, Prompt, PromptTable, load_file};
use crate::raw_recipe::RawInit;
use crate::recipe::{ModelSource, Recipe};
use crate::step::{imitation_step, rollout_step};
use crate::trainer::Trainer;

/// The base model of the built-in task, as it is shipped.
pub const BUILTIN_BASE: &str = "builtin:base";

/// Opens a model folder, or [`BUILTIN_BASE`].
///
/// `context` is the longest sequence it will see, prompt and response together.
pub fn open_model(path: &str, context: usize, threads: usize) -> Result<LoadedModel<Cpu>> {
    if path == BUILTIN_BASE {
        return crate::builtin::base(context, threads);
    }
    Ok(hapo_model::load(Path::new(path), cpu(threads)?, |_| {
        context
    })?)
}

fn cpu(threads: usize) -> Result<Cpu> {
    Ok(Cpu::new(threads).map_err(hapo_model::EngineError::from)?)
}

/// A decoder with random weights and the built-in tokenizer.
fn init_model(
    init: &RawInit,
    context: usize,
    seed: u64,
    threads: usize,
) -> Result<LoadedModel<Cpu>> {
    let json = hapo_data::task::tokenizer_json();
    let tokenizer = Tokenizer::from_bytes(Path::new("built-in tokenizer.json"), json.as_bytes())?;
    let id = |token: &str| {
        tokenizer
            .id(token)
            .expect("the built-in vocabulary has the token")
    };
    let config = Config {
        family: Family::Qwen2,
        vocab_size: tokenizer.vocab_size(),
        hidden: init.hidden,
        layers: init.layers,
        heads: init.heads,
        kv_heads: init.kv_heads,
        head_dim: init.hidden / init.heads,
        ffn: init.ffn,
        rms_eps: 1e-6,
        rope: Rope {
            theta: init.rope_theta,
            llama3: None,
        },
        tied: true,
        qkv_bias: true,
        qk_norm: false,
        max_positions: context,
        eos: vec![id("<|im_end|>"), id("<|endoftext|>")],
        bos: None,
        pad: Some(id("<|endoftext|>")),
    };
    let mut model = Model::new(cpu(threads)?, config.clone(), context)?;
    for (index, spec) in config.tensors().iter().enumerate() {
        let n: usize = spec.shape.iter().product();
        let values: Vec<f32> = if spec.name.ends_with("bias") {
            vec![0.0; n]
        } else if spec.shape.len() == 1 {
            vec![1.0; n]
        } else {
            let place = Place {
                step: 0,
                prompt: index as u64,
                rollout: 0,
                position: 0,
            };
            let mut draws = Draws::new(seed, Purpose::Init, place);
            (0..n).map(|_| (draws.normal() * init.std) as f32).collect()
        };
        model.set_tensor(&spec.name, &values)?;
    }
    let companions = vec![
        ("tokenizer.json", json.into_bytes()),
        (
            "tokenizer_config.json",
            hapo_data::task::tokenizer_config_json().into_bytes(),
        ),
    ];
    Ok(LoadedModel {
        model,
        tokenizer,
        companions,
    })
}

/// What a run trains on.
enum Source {
    Prompts { table: PromptTable, order: Order },
    Corpus(Corpus),
}

/// A run in memory.
pub struct Run {
    pub(crate) recipe: Recipe,
    pub(crate) dialogue: Dialogue,
    pub(crate) trainer: Trainer,
    pub(crate) method: Box<dyn Method>,
    schedule: Option<Schedule>,
    source: Source,
    companions: Vec<(&'static str, Vec<u8>)>,
    steps_done: u64,
}

/// What a run tells while it goes.
pub trait Observer {
    /// A step is done.
    fn step(&mut self, step: u64, metrics: &Metrics);

    /// Something the reader should know.
    fn warning(&mut self, _text: &str) {}

    /// Whether the run should stop after the step at hand, saving what it has.
    fn stop_requested(&self) -> bool {
        false
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Steps done.
    pub steps: u64,
    /// The last checkpoint.
    pub checkpoint: PathBuf,
    /// Whether every step of the recipe is done.
    pub finished: bool,
}

/// Trains by a recipe into `run_dir`. With `resume`, goes on from the latest whole checkpoint.
pub fn train(
    recipe: &Recipe,
    run_dir: &Path,
    resume: bool,
    threads: usize,
    observer: &mut dyn Observer,
) -> Result<Outcome> {
    // Before anything is loaded: a finished run has nothing to do.
    let started = run_dir.join("recipe.toml").exists();
    if started && !resume {
        return Err(Error::Dataset {
            problem: format!("{} already holds a run", run_dir.display()),
            hint: "continue it with --resume, or choose another --run-dir".to_owned(),
        });
    }
    let resolved = resolved_recipe(recipe);
    let restored = if resume {
        latest_checkpoint(run_dir, &resolved, observer)?
    } else {
        None
    };
    if let Some((state, folder)) = &restored
        && state.step >= recipe.raw.steps
    {
        return Ok(Outcome {
            steps: state.step,
            checkpoint: folder.clone(),
            finished: true,
        });
    }
    let mut run = Run::new(recipe, threads)?;
    for it in recipe.warnings().into_iter().chain(run.warnings()) {
        observer.warning(&it);
    }
    create_folder(&run_dir.join("checkpoints"))?;
    write_atomically(&run_dir.join("recipe.toml"), resolved.as_bytes())?;
    if let Some(schedule) = &run.schedule {
        let table = serde_json::to_vec(&schedule.table(recipe.raw.steps))
            .expect("a schedule is plain data");
        write_atomically(&run_dir.join("gate.json"), &table)?;
    }
    if let Some((state, folder)) = &restored {
        checkpoint::restore(folder, &mut run.trainer)?;
        run.trainer.updates = state.updates;
        run.steps_done = state.step;
    }
    let mut file = MetricsFile::open(&run_dir.join("metrics.jsonl"), run.steps_done)?;
    let mut saved_at = restored.map(|it| (it.0.step, it.1));
    while run.steps_done < recipe.raw.steps {
        let metrics = run.step()?;
        file.append(&metrics)?;
        observer.step(run.steps_done, &metrics);
        let stop = observer.stop_requested();
        let every = recipe.raw.checkpoint.every;
        let due = every > 0 && run.steps_done.is_multiple_of(every);
        if due || stop || run.steps_done == recipe.raw.steps {
            saved_at = Some((run.steps_done, run.save(run_dir, &resolved)?));
        }
        if stop {
            break;
        }
    }
    let (_, checkpoint) = saved_at.expect("a run has at least one step, and its last one is saved");
    Ok(Outcome {
        steps: run.steps_done,
        checkpoint,
        finished: run.steps_done == recipe.raw.steps,
    })
}

/// The recipe with its defaults filled in, as the run folder keeps it.
fn resolved_recipe(recipe: &Recipe) -> String {
    let body = toml::to_string(&recipe.raw).expect("a recipe is plain data");
    format!("# resolved by hapo {}\n{body}", env!("CARGO_PKG_VERSION"))
}

/// The latest checkpoint that is whole; torn ones are named and passed over.
fn latest_checkpoint(
    run_dir: &Path,
    resolved: &str,
    observer: &mut dyn Observer,
) -> Result<Option<(TrainerState, PathBuf)>> {
    for (_, folder) in checkpoint::list(run_dir) {
        match checkpoint::verify(&folder) {
            Ok(state) if state.recipe == resolved => return Ok(Some((state, folder))),
            Ok(state) => {
                let differences = differing_lines(&state.recipe, resolved);
                return Err(Error::Checkpoint {
                    folder,
                    problem: format!("it is of another recipe: {differences}"),
                });
            }
            Err(it) => observer.warning(&format!("{it}; trying the one before")),
        }
    }
    Ok(None)
}

fn differing_lines(before: &str, after: &str) -> String {
    let missing = |a: &str, b: &str| {
        a.lines()
            .filter(|it| !b.lines().any(|other| other == *it))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    format!(
        "it had [{}], now [{}]",
        missing(before, after).join("; "),
        missing(after, before).join("; ")
    )
}

impl Run {
    /// Loads model and data and puts the method together.
    pub fn new(recipe: &Recipe, threads: usize) -> Result<Self> {
        let raw = &recipe.raw;
        let context = raw.data.max_prompt_tokens + raw.sampling.max_new_tokens;
        let LoadedModel {
            model,
            tokenizer,
            companions,
        } = match &recipe.model {
            ModelSource::Folder(path) => open_model(path, context, threads)?,
            ModelSource::Init(init) => init_model(init, context, raw.seed, threads)?,
        };
        let template = hapo_data::find_template(&raw.data.template)?;
        let dialogue = Dialogue::new(tokenizer, template, &model.config().eos)?;
        let grader = hapo_verify::grader(&raw.data.grader).map_err(|it| Error::Dataset {
            problem: it.to_string(),
            hint: "`hapo list graders` names them".to_owned(),
        })?;
        let source = load_source(recipe, &dialogue, grader)?;
        let steps_per_epoch = match &source {
            Source::Prompts { order, .. } => order.steps_per_epoch(),
            Source::Corpus(_) => 1,
        };
        let group_size = raw.sampling.group_size;
        let gate_error = |it: hapo_core::GateError| Error::Dataset {
            problem: it.to_string(),
            hint: "see the gate's section of docs/recipes.md".to_owned(),
        };
        let host = Host::new(recipe.method, recipe.objective, group_size).map_err(gate_error)?;
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
        let trainer = Trainer::new(model, recipe.recompute)?;
        let recipe = recipe.clone();
        Ok(Self {
            recipe,
            dialogue,
            trainer,
            method,
            schedule,
            source,
            companions,
            steps_done: 0,
        })
    }

    fn warnings(&self) -> Vec<String> {
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
        all
    }

    pub(crate) fn prompts(&self) -> &[Prompt] {
        match &self.source {
            Source::Prompts { table, .. } => &table.prompts,
            Source::Corpus(_) => &[],
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
            (Source::Prompts { order, .. }, MethodKind::OnPolicy | MethodKind::Mixed { .. }) => {
                let prompts = order.of_step(step.0);
                rollout_step(self, &prompts, step)?
            }
            (Source::Prompts { order, table }, MethodKind::Imitation) => {
                let groups: Vec<TokenGroup> = order
                    .of_step(step.0)
                    .into_iter()
                    .map(|it| demonstration(&table.prompts[it]))
                    .collect();
                imitation_step(self, &groups, step)?
            }
            (Source::Corpus(corpus), _) => {
                let per_step = self.recipe.raw.sampling.prompts_per_step as u64;
                let first = (step.0 - 1) * per_step;
                let groups = (first..first + per_step)
                    .map(|it| document(&corpus.document(it), &self.dialogue))
                    .collect::<Result<Vec<_>>>()?;
                imitation_step(self, &groups, step)?
            }
        };
        self.steps_done = step.0;
        Ok(metrics)
    }

    fn save(&self, run_dir: &Path, resolved: &str) -> Result<PathBuf> {
        let state = TrainerState {
            step: self.steps_done,
            updates: self.trainer.updates,
            recipe: resolved.to_owned(),
            template_hash: hapo_data::template_hash(self.dialogue.template),
        };
        let contents = Contents {
            trainer: &self.trainer,
            dtype: self.recipe.dtype,
            companions: &self.companions,
            state: &state,
        };
        checkpoint::write(run_dir, &contents, self.recipe.raw.checkpoint.keep)
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
fn document(document: &hapo_data::task::Document, dialogue: &Dialogue) -> Result<TokenGroup> {
    Ok(single(
        dialogue.tokenizer.encode(&document.prompt)?,
        dialogue.tokenizer.encode(&document.response)?,
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

fn load_source(recipe: &Recipe, dialogue: &Dialogue, grader: &Grader) -> Result<Source> {
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
        file => load_file(Path::new(file))?,
    };
    let limits = Limits {
        prompt_tokens: raw.data.max_prompt_tokens,
        response_tokens: raw.sampling.max_new_tokens,
    };
    let mut table = PromptTable::new(&dataset, &raw.data.train, dialogue, grader, limits)?;
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

/// Removes a run's folder if it holds one; used by commands that own their output folder.
pub fn clear_run(run_dir: &Path) -> Result<()> {
    if run_dir.join("recipe.toml").exists() {
        fs::remove_dir_all(run_dir).map_err(|source| Error::Io {
            action: "remove",
            path: run_dir.to_owned(),
            source,
        })?;
    }
    Ok(())
}
