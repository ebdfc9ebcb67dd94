//! A model by hand: prompts, samples, scores, gradients, updates, files.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{io::Cursor, ops::RangeInclusive};

use hapo_core::{
    Candidate, Clip, Loss, NormaliserKind, RngStream, SampledGroup, Scores, Slot, Step,
    TeacherTrajectory, TrainPrompt, Verdict,
};
use hapo_data::task::{Split, TaskSet, TeacherSteps, make_set};
use hapo_data::{Example, TemplateChoice};
use hapo_kernels::AdamW;
use hapo_model::folder::{Companions, Layout};
use hapo_model::{ActivationCheckpointing, Dtype};
use hapo_sampler::{
    ChatFormat, Decoding, GroupRequest, KvMemory, SampleSettings, Truncation, choose_template,
    sample,
};
use hapo_train::pack::{TokenGroup, token_group};
use hapo_train::recipe::{AUTO, Overlong};
use hapo_train::{
    Batching, Order, PromptLimits, PromptTable, ScoreRequest, Trainer, loss_of, open_model,
    template_of,
};
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;

use crate::arguments::{raised, value_error, within, word};
use crate::groups::{Group, arrays, getters};
use crate::method::Method;
use crate::python_method::{RawSpan, credit_of};

const MOST_TOKENS: usize = 1 << 20;
const TEMPERATURES: RangeInclusive<f32> = 1e-3..=1e3;

/// The weights of a model, with what trains and samples them. Its calls wait for each other.
#[pyclass(frozen, module = "hapo")]
pub(crate) struct Engine {
    trainer: Mutex<Trainer>,
    chat: ChatFormat,
    tokenizer_files: Companions,
    micro_batch_tokens: usize,
}

/// A problem that is ready to be sampled: number (part of the key of every draw), id, problem, answer, tokens, and the
/// tokens of verified solutions, teachers.
#[pyclass(frozen, module = "hapo")]
pub(crate) struct Prompt(hapo_train::Prompt);

/// A response of the policy: text, tokens, `log_probs` (of each token, natural logarithm, at the sampling temperature) and
/// ended (by its end token).
#[pyclass(frozen, module = "hapo")]
pub(crate) struct Rollout {
    rollout: hapo_core::Rollout,
    #[pyo3(get)]
    text: String,
}

#[derive(FromPyObject)]
pub(crate) struct Sampling {
    n: usize,
    temperature: f32,
    max_tokens: usize,
    seed: u64,
    step: u64,
}

/// How terms become a loss, by a recipe's words.
#[derive(FromPyObject)]
pub(crate) struct LossSettings {
    normaliser: String,
    max_response: usize,
    clip_low: f64,
    clip_high: f64,
    importance_ratio_level: String,
    entropy_coef: f64,
    entropy_over: String,
    teacher_apart: bool,
    temperature: f32,
}

#[derive(FromPyObject)]
pub(crate) struct UpdateSettings {
    lr: f64,
    betas: (f64, f64),
    eps: f64,
    weight_decay: f64,
    max_norm: f64,
}

/// A prompt, its group, and the spans of each member.
type CreditedGroup<'py> = (Bound<'py, Prompt>, Bound<'py, Group>, Vec<Vec<RawSpan<'py>>>);

/// Id, problem, answer, solution.
type TaskRow = (String, String, String, Option<String>);

/// log π of each token, the entropies, and the likeliest tokens with theirs.
type Scored<'py> = (Bound<'py, PyArray1<f32>>, Bound<'py, PyArray1<f32>>, Vec<Vec<(u32, f32)>>);

impl Engine {
    fn trainer(&self) -> MutexGuard<'_, Trainer> {
        self.trainer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn batching(&self, temperature: f32) -> Batching {
        let micro_batch_tokens = self.micro_batch_tokens;
        Batching { micro_batch_tokens, inverse_temperature: 1.0 / temperature }
    }
}

#[pymethods]
impl Engine {
    #[new]
    #[pyo3(signature = (path, *, context, template, threads, micro_batch_tokens))]
    fn new(
        py: Python<'_>,
        path: &str,
        context: usize,
        template: Option<&str>,
        threads: Option<usize>,
        micro_batch_tokens: usize,
    ) -> PyResult<Self> {
        within("context", context, 1..=2 * MOST_TOKENS)?;
        within("threads", threads.unwrap_or(1), 1..=1024)?;
        within("micro_batch_tokens", micro_batch_tokens, 1..=1 << 30)?;
        let open = || -> anyhow::Result<Self> {
            let folder = hapo_cli::support::hub::model_folder(path)?;
            let template = template_of(TemplateChoice::named(template.unwrap_or(AUTO)), &folder)?;
            let mut loaded = open_model(&folder, context, hapo_cli::threads(threads))?;
            let files = loaded.tokenizer_files;
            let template = choose_template(template.choice(), path, &files)?;
            let chat = ChatFormat::new(loaded.tokenizer, template, &loaded.model.config().eos)?;
            let files = chat.trained_files(files, path)?;
            loaded.model.set_eos(&chat.stop);
            Ok(Self {
                chat,
                trainer: Mutex::new(Trainer::new(loaded.model, ActivationCheckpointing::None)?),
                tokenizer_files: files,
                micro_batch_tokens,
            })
        };
        py.detach(open).map_err(|it| raised(py, &it, None))
    }

    /// Reads rows, JSON lines in any layout, renders and checks them.
    #[pyo3(signature = (rows, grader, max_prompt_tokens, max_tokens))]
    fn prompts(
        &self,
        py: Python<'_>,
        rows: String,
        grader: &str,
        max_prompt_tokens: usize,
        max_tokens: usize,
    ) -> PyResult<Vec<Prompt>> {
        let grader = hapo_verify::grader(grader).map_err(|it| value_error("grader", it))?;
        within("max_prompt_tokens", max_prompt_tokens, 1..=MOST_TOKENS)?;
        within("max_tokens", max_tokens, 1..=MOST_TOKENS)?;
        let limits = PromptLimits {
            prompt_tokens: max_prompt_tokens,
            response_tokens: max_tokens,
            success_at: 1.0,
            overlong: Overlong::Error,
            hints: None,
            grades: true,
            traces: 1,
        };
        let read = || -> anyhow::Result<PromptTable> {
            let rows = hapo_data::open_reader(Cursor::new(rows), Path::new("rows.jsonl"))?;
            let loaded = hapo_data::load_rows(rows)?;
            if let Some(bad) = loaded.bad_rows.first() {
                anyhow::bail!("{bad}");
            }
            Ok(PromptTable::new(&loaded.dataset, "rows", &self.chat, grader, limits)?)
        };
        let table = py.detach(read).map_err(|it| raised(py, &it, None))?;
        Ok(table.prompts.into_iter().map(Prompt).collect())
    }

    /// Samples responses to each prompt.
    fn sample(
        &self,
        py: Python<'_>,
        prompts: Vec<Bound<'_, Prompt>>,
        sampling: Sampling,
    ) -> PyResult<Vec<Vec<Rollout>>> {
        within("n", sampling.n, 0..=65_535)?;
        within("max_tokens", sampling.max_tokens, 1..=MOST_TOKENS)?;
        let prompts: Vec<&hapo_train::Prompt> = prompts.iter().map(|it| &it.get().0).collect();
        let decoding =
            Decoding::at_temperature(sampling.temperature, Truncation::NONE).map_err(|it| {
                value_error(it.field, format!("expected {}, got {}", it.expected, it.got))
            })?;
        let settings = SampleSettings {
            decoding,
            stop: &self.chat.stop,
            max_new_tokens: sampling.max_tokens,
            max_sequences: 64,
            kv_memory: KvMemory::Auto,
            usable_vocab: self.chat.tokenizer.vocab_size(),
            seed: sampling.seed,
            rng_stream: RngStream::Sample,
            step: sampling.step,
        };
        let made = || -> anyhow::Result<Vec<Vec<Rollout>>> {
            let requests: Vec<_> =
                prompts.iter().map(|it| GroupRequest::new(it.id, &it.tokens, sampling.n)).collect();
            let sampled = sample(&self.trainer().model, &requests, &settings, None)?;
            let text = |it: &hapo_core::Rollout| {
                Ok(Rollout { text: self.chat.text(&it.tokens)?, rollout: it.clone() })
            };
            sampled.iter().map(|it| it.group.rollouts.iter().map(text).collect()).collect()
        };
        py.detach(made).map_err(|it| raised(py, &it, None))
    }

    /// Scores each response behind its prompt.
    fn log_probs<'py>(
        &self,
        py: Python<'py>,
        pairs: Vec<(Vec<u32>, Vec<u32>)>,
        temperature: f32,
        top: usize,
    ) -> PyResult<Vec<Scored<'py>>> {
        let inverse_temperature = 1.0 / within("temperature", temperature, TEMPERATURES)?;
        let config = self.trainer().model.config().clone();
        within("top", top, 0..=config.vocab_size)?;
        for id in pairs.iter().flat_map(|it| it.0.iter().chain(&it.1)) {
            within("tokens", *id, 0..=config.vocab_size as u32 - 1)?;
        }
        if let Some(index) = pairs.iter().position(|(prompt, _)| prompt.is_empty()) {
            return Err(value_error("prompts", format!("{index} is empty, expected a token")));
        }
        let requests: Vec<_> = pairs
            .iter()
            .map(|(prompt, response)| ScoreRequest { prompt, response, inverse_temperature, top })
            .collect();
        let scored = py.detach(|| self.trainer().score(&requests, self.batching(temperature)));
        let scored = scored.map_err(|it| raised(py, &it.into(), None))?;
        let arrays = |it: hapo_core::TokenScores| {
            (it.log_probs.into_pyarray(py), it.entropies.into_pyarray(py), it.top)
        };
        Ok(scored.into_iter().map(arrays).collect())
    }

    /// Computes the loss of groups and its gradient, which the next update uses. Gives the numbers by name.
    fn gradient(
        &self,
        py: Python<'_>,
        groups: Vec<CreditedGroup<'_>>,
        loss: LossSettings,
    ) -> PyResult<Vec<(&'static str, f64)>> {
        let normaliser: NormaliserKind = word("normaliser", &loss.normaliser)?;
        within("temperature", loss.temperature, TEMPERATURES)?;
        within("clip_low", loss.clip_low.min(loss.clip_high), 0.0..=f64::MAX)?;
        within("entropy_coef", loss.entropy_coef, -1e6..=1e6)?;
        let made = Loss {
            clip: Clip { low: loss.clip_low, high: loss.clip_high },
            importance_ratio_level: word("importance_ratio_level", &loss.importance_ratio_level)?,
            entropy_coef: loss.entropy_coef,
            entropy_over: word("entropy_over", &loss.entropy_over)?,
            teacher_apart: loss.teacher_apart,
            ..Loss::new(normaliser.of(loss.max_response))
        };
        let mut token_groups: Vec<TokenGroup> = Vec::with_capacity(groups.len());
        for (prompt, group, raw) in &groups {
            let members = group.get().mixed.members().iter().zip(credit_of(raw)?);
            let tokens = prompt.get().0.tokens.clone();
            token_groups.push(token_group(members, tokens, |_| TrainPrompt::Sampled, &made));
        }
        let batching = self.batching(loss.temperature);
        let stats = py.detach(|| {
            let mut trainer = self.trainer();
            trainer.rescore(&mut token_groups, batching)?;
            trainer.gradient(&made, &token_groups, batching)
        });
        let stats = stats.map_err(|it| raised(py, &it.into(), None))?;
        Ok(std::iter::once(("loss", loss_of(&stats))).chain(stats.iter()).collect())
    }

    /// Moves the weights along the gradient, and gives its norm before it was clipped.
    fn update(&self, py: Python<'_>, settings: UpdateSettings) -> PyResult<f64> {
        let UpdateSettings { lr, betas: (beta1, beta2), eps, weight_decay, max_norm } = settings;
        for (name, it) in [("lr", lr), ("eps", eps), ("weight_decay", weight_decay)] {
            within(name, it, 0.0..=1e6)?;
        }
        within("betas", beta1.max(beta2), 0.0..=1.0 - f64::EPSILON)?;
        within("betas", beta1.min(beta2), 0.0..=1.0)?;
        within("max_norm", max_norm, 0.0..=f64::MAX)?;
        let optimizer = AdamW {
            learning_rate: lr,
            beta1,
            beta2,
            epsilon: eps,
            weight_decay,
            step: 0,
            gradient_scale: 1.0,
        };
        let moved = py.detach(|| {
            let mut trainer = self.trainer();
            let norm = trainer.gradient_norm()?;
            trainer.apply(optimizer, norm, max_norm)?;
            Ok::<_, hapo_core::Refusal>(norm)
        });
        moved.map_err(|it| raised(py, &it.into(), None))
    }

    /// Writes a model folder in f32.
    fn save(&self, py: Python<'_>, folder: PathBuf) -> PyResult<()> {
        let written = py.detach(|| {
            let trainer = self.trainer();
            let tokenizer_files = &self.tokenizer_files;
            let layout = Layout { dtype: Dtype::F32, tokenizer_files, ..Layout::default() };
            hapo_model::folder::write(&folder, trainer.model.config(), &layout, |spec| {
                trainer.model.tensor(&spec.name)
            })
        });
        written.map(drop).map_err(|it| raised(py, &it.into(), None))
    }

    /// The text of tokens.
    fn text(&self, tokens: Vec<u32>) -> PyResult<String> {
        self.chat.text(&tokens).map_err(|it| value_error("tokens", it))
    }

    /// The tokens of a text, without a template.
    fn encode<'py>(&self, py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyArray1<u32>>> {
        Ok(self.chat.tokenizer.encode(text).map_err(|it| value_error("text", it))?.into_pyarray(py))
    }
}

getters! { Prompt |self, py| {
        number: u64 = self.0.id.0;
        id: &str = &self.0.name;
        problem: &str = &self.0.problem;
        answer: &str = &self.0.answer;
        tokens: Bound<'py, PyArray1<u32>> = self.0.tokens.clone().into_pyarray(py);
        teachers: Vec<Bound<'py, PyArray1<u32>>> =
            arrays(py, self.0.teachers.iter().map(TeacherTrajectory::tokens));
    }

    fn __repr__(&self) -> String {
        format!("Prompt({:?}, {:?})", self.0.name, hapo_core::excerpt(&self.0.problem, 60))
    }
}

getters! { Rollout |self, py| {
        tokens: Bound<'py, PyArray1<u32>> = self.rollout.tokens.clone().into_pyarray(py);
        log_probs: Bound<'py, PyArray1<f32>> = self.rollout.log_probs.clone().into_pyarray(py);
        ended: bool = self.rollout.ended;
    }

    fn __repr__(&self) -> String {
        let (n, text) = (self.rollout.tokens.len(), hapo_core::excerpt(&self.text, 60));
        format!("Rollout({n} tokens, {text:?})")
    }
}

/// A prompt's rollouts with their rewards, as a group after the method's gate.
#[pyfunction]
#[pyo3(signature = (method, prompt, rollouts, rewards, step, *, seed=0, success_at=1.0))]
pub(crate) fn group(
    method: &Bound<'_, Method>,
    prompt: &Bound<'_, Prompt>,
    rollouts: Vec<Bound<'_, Rollout>>,
    rewards: Vec<f64>,
    step: u64,
    seed: u64,
    success_at: f64,
) -> PyResult<Group> {
    let (gated, prompt, step) = (&method.get().gated, &prompt.get().0, Step(step));
    crate::arguments::same("rewards", &rewards.len(), "rollouts", &rollouts.len())?;
    if let Some(index) = rewards.iter().position(|it| !it.is_finite()) {
        let problem = format!("{index} is {}, expected a finite number", rewards[index]);
        return Err(value_error("rewards", problem));
    }
    let verdict = |it: f64| if it >= success_at { Verdict::Correct } else { Verdict::Wrong };
    let graded = rewards.into_iter().map(|it| (it, verdict(it))).collect();
    let rollouts: Vec<_> = rollouts.iter().map(|it| it.get().rollout.clone()).collect();
    let sampled = SampledGroup::new(prompt.id, rollouts.len(), rollouts);
    let slot = Slot { rule: gated.slot, seed, step };
    let offer = Candidate { teachers: &prompt.teachers, stored: &[], scores: &[], slot };
    let scored = sampled.score_with_rewards(graded, success_at);
    let is_open = gated.success_limit(step).is_open(scored.successes());
    let mixed = gated.mix(scored, &offer, is_open);
    Ok(Group { mixed, at: gated.moment(step), scores: Scores::default(), memory: None })
}

/// Rows of the built-in task: id, problem, answer and, where there is one, the teacher's solution.
#[pyfunction]
pub(crate) fn task_rows(
    levels: Vec<(String, u32)>,
    count: usize,
    seed: u64,
    teacher_coverage: f64,
) -> PyResult<Vec<TaskRow>> {
    within("count", count, 1..=1_000_000)?;
    let (split, teacher_steps) = (Split::Train, TeacherSteps::Exact);
    let set = TaskSet { seed, levels, split, count, teacher_coverage, teacher_steps };
    let made = make_set(&set).map_err(|it| value_error("task", it))?;
    let row = |it: Example| (it.id, it.problem, it.answer, it.teachers.into_iter().next());
    Ok(made.examples.into_iter().map(row).collect())
}

/// The prompts of a step, as indices: a new order in each epoch.
#[pyfunction]
pub(crate) fn order(step: u64, prompts: usize, per_step: usize, seed: u64) -> PyResult<Vec<usize>> {
    within("step", step, 1..=1_000_000_000)?;
    if per_step == 0 || prompts < per_step || prompts > 1 << 24 {
        let got = format!("step {step}, {prompts} prompts, {per_step} in a step");
        let problem = format!("expected enough prompts, and at most 16777216, got {got}");
        return Err(value_error("order", problem));
    }
    Ok(Order { seed, prompts, per_step }.of_step(step).into_iter().map(|it| it.0).collect())
}
