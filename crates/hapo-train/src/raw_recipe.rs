//! The text of a recipe: TOML with its defaults, unknown keys refused with the nearest known one.
//!
//! Defaults are the paper's RL settings (section 5 and appendix C) unless a line says otherwise.

use hapo_data::task::Mixture;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// A recipe as written. Every field has a default but `method` and `model`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawRecipe {
    /// Name of the run in tables and of its folder.
    #[serde(default)]
    pub name: Option<String>,
    /// Host method: an entry of `hapo list methods`.
    pub method: String,
    /// Seed of every random draw.
    #[serde(default)]
    pub seed: u64,
    /// Batches of rollouts (or of demonstrations) to train on.
    #[serde(default = "defaults::steps")]
    pub steps: u64,
    /// The model to start from.
    pub model: RawModel,
    /// Prompts and teachers.
    #[serde(default)]
    pub data: RawData,
    /// Rollouts.
    #[serde(default)]
    pub sampling: RawSampling,
    /// The on-policy objective.
    #[serde(default)]
    pub loss: RawLoss,
    /// Advantages.
    #[serde(default)]
    pub advantage: RawAdvantage,
    /// The teacher's term, for the methods that have one.
    #[serde(default)]
    pub teacher: RawTeacher,
    /// TRAPO's own mechanisms.
    #[serde(default)]
    pub trapo: RawTrapo,
    /// SRFT's own weights.
    #[serde(default)]
    pub srft: RawSrft,
    /// The HAPO wrapper; absent = the bare host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hapo: Option<RawHapo>,
    /// Optimiser and batching.
    #[serde(default)]
    pub optim: RawOptim,
    /// Checkpoints.
    #[serde(default)]
    pub checkpoint: RawCheckpoint,
    /// Metrics beside the loss.
    #[serde(default)]
    pub metrics: RawMetrics,
    /// Alarms (D23).
    #[serde(default)]
    pub guard: RawGuard,
}

/// `[model]`: exactly one of `path` and `init`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawModel {
    /// A Hugging Face folder, or `builtin:base`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Random weights of this shape.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init: Option<RawInit>,
    /// Number format of the weights that checkpoints write: `f32`, `bf16` or `f16`.
    pub dtype: String,
}

/// `[model.init]`: a Qwen2-shaped decoder from nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawInit {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Decoder layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Width of the `SwiGLU` block.
    pub ffn: usize,
    /// A `tokenizer.json`, or a folder that has one; absent = the built-in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<String>,
    /// Base of the rotary frequencies.
    #[serde(default = "defaults::rope_theta")]
    pub rope_theta: f64,
    /// Standard deviation of the normal initialisation.
    #[serde(default = "defaults::init_std")]
    pub std: f64,
}

/// `[data]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawData {
    /// A file of problems in any layout of docs/data.md, `builtin` (the built-in task's training prompts) or `builtin:corpus` (its
    /// documents for a base model).
    pub train: String,
    /// Prompts drawn from the built-in task.
    pub prompts: usize,
    /// Seed of the built-in task's prompts: its own, so that runs of different seeds share them.
    pub seed: u64,
    /// Documents of `builtin:corpus`; absent = the recommended mixture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mixture: Option<Mixture>,
    /// Levels of the built-in task, as `family:level`; empty = its hard levels.
    pub levels: Vec<String>,
    /// Share of the built-in task's prompts that come with a teacher trajectory.
    pub teacher_coverage: f64,
    /// Prompt template: an entry of `hapo list templates`.
    pub template: String,
    /// Text of the system turn; with `template = "chat"` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template_system: Option<String>,
    /// What follows the problem in the user's turn; with `template = "chat"` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template_suffix: Option<String>,
    /// Longest rendered prompt in tokens; longer ones are refused at load.
    pub max_prompt_tokens: usize,
    /// Grader of completions: an entry of `hapo list graders`.
    pub grader: String,
    /// Share of the rollouts' verdicts that are turned around: an unreliable grader, for studies.
    pub flip_verdicts: f64,
}

/// `[sampling]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawSampling {
    /// N: members of a group.
    pub group_size: usize,
    /// M: groups of one step.
    pub prompts_per_step: usize,
    /// Sampling temperature.
    pub temperature: f32,
    /// Nucleus mass; below 1 the ratio's distribution is not the sampled one (D25).
    pub top_p: f32,
    /// Most likely tokens to draw from; 0 = all (D25).
    pub top_k: usize,
    /// Only tokens at least this fraction as likely as the likeliest one; 0 = all (D25).
    pub min_p: f32,
    /// Strings that end a response. Its tokens are kept whole, its graded text is that of its tokens,
    /// the string included.
    pub stop: Vec<String>,
    /// Longest response in tokens, end token included; also the L of the constant normaliser.
    pub max_new_tokens: usize,
    /// Sequences decoded at once.
    pub max_sequences: usize,
    /// Rounds in which groups without signal are replaced by groups of fresh prompts (dynamic
    /// sampling); 0 = they stay.
    pub refill: usize,
}

/// `[loss]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawLoss {
    /// ε below 1.
    pub clip_low: f64,
    /// ε above 1.
    pub clip_high: f64,
    /// Whose importance ratio is clipped: `token` or `sequence` (GSPO).
    pub ratio: String,
    /// `constant`, `token_mean` or `sequence_mean` (D16).
    pub normaliser: String,
    /// Weight of the on-policy entropy bonus (D17).
    pub entropy_coef: f64,
}

/// `[advantage]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawAdvantage {
    /// Divide by the standard deviation (D12).
    pub std: bool,
    /// `mixed`, `sampled` or `policy-only` (D13).
    pub group: String,
}

/// `[teacher]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawTeacher {
    /// The operators' d (D14).
    pub d: f64,
    /// λ: `one`, `one-minus-confidence`, `relative`, `advantage` or a number (D15).
    #[serde(deserialize_with = "word_or_number")]
    pub weight: String,
    /// How the two terms are mixed over the run; absent = the method's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mu: Option<RawMu>,
}

/// `[teacher.mu]`: (1 − μ)·policy + μ·teacher.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawMu {
    /// μ at the first step.
    pub start: f64,
    /// μ at the end of the slope and after it.
    pub end: f64,
    /// Steps of the slope.
    pub steps: u64,
}

/// `[trapo]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawTrapo {
    /// `off` or `micro-groups` (D22).
    pub hints: String,
}

/// `[srft]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawSrft {
    /// `plain` or `entropy` (D21).
    pub weights: String,
}

/// `[hapo]`: when the teacher enters, and how long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawHapo {
    /// `confidence` (Eq. 4–9), `always` or `never`.
    pub gate: String,
    /// m: largest success count still treated as failure. Excludes `gamma0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_level: Option<u32>,
    /// γ0 by hand, as a decimal (D3). Excludes `failure_level`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gamma0: Option<f64>,
    /// `sigmoid` (Eq. 9) or `off` (D5).
    pub annealing: String,
    /// `e_off`: required by `sigmoid`; the paper never states it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_off_epoch: Option<f64>,
    /// k of Eq. 9.
    pub steepness: f64,
    /// Which rollout makes room: `lowest-reward`, `first`, `random` or `longest` (D7).
    pub slot: String,
}

/// `[optim]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawOptim {
    /// Peak learning rate.
    pub lr: f64,
    /// `AdamW`'s β.
    pub betas: [f64; 2],
    /// `AdamW`'s ε.
    pub eps: f64,
    /// Decoupled decay of every parameter.
    pub weight_decay: f64,
    /// Largest global gradient norm.
    pub max_grad_norm: f64,
    /// `constant`, `linear` or `cosine`.
    pub schedule: String,
    /// Share of all optimiser steps over which the rate rises from 0.
    pub warmup: f64,
    /// Prompts (or demonstrations) of one optimiser step; 0 = all of the batch.
    pub mini_batch_prompts: usize,
    /// Passes over a batch of rollouts.
    pub passes: usize,
    /// Tokens of one forward and backward pass.
    pub micro_batch_tokens: usize,
    /// Activation memory: `none` keeps all, `layers` recomputes each layer.
    pub recompute: String,
}

/// `[checkpoint]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawCheckpoint {
    /// Steps between checkpoints; 0 = only at the end.
    pub every: u64,
    /// How many of the latest to keep.
    pub keep: usize,
    /// The metric whose best checkpoint is kept too, by its mean since the checkpoint before; with a
    /// minus before the name the lowest is best, and an empty name keeps none.
    pub best: String,
}

/// `[metrics]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawMetrics {
    /// Steps between measurements of the KL to the initial policy; 0 = never (D18).
    pub kl_every: u64,
    /// Steps between those whose rollouts are kept; 0 = none are.
    pub rollouts_every: u64,
    /// Prompts sampled before the first step, to say what the run has to expect; 0 = none.
    pub preflight: usize,
}

/// `[guard]`: alarms (D23). They warn; with `stop` the run saves and ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawGuard {
    /// End the run at an alarm.
    pub stop: bool,
    /// Steps without alarms at the start.
    pub warmup: usize,
    /// Steps over which means are taken.
    pub window: usize,
    /// Rise of the mean β from one window to the next that is an alarm.
    pub beta_rise: f64,
    /// Entropy over that of the first window that is an alarm.
    pub entropy_factor: f64,
    /// Gradient norm over the window's mean that is an alarm.
    pub grad_norm_factor: f64,
}

impl Default for RawModel {
    fn default() -> Self {
        Self {
            path: None,
            init: None,
            dtype: "f32".to_owned(),
        }
    }
}

impl Default for RawData {
    fn default() -> Self {
        Self {
            train: "builtin".to_owned(),
            prompts: 640,
            seed: 0,
            mixture: None,
            levels: Vec::new(),
            teacher_coverage: 0.25,
            template: "chatml".to_owned(),
            template_system: None,
            template_suffix: None,
            max_prompt_tokens: 1024,
            grader: "math".to_owned(),
            flip_verdicts: 0.0,
        }
    }
}

impl Default for RawSampling {
    fn default() -> Self {
        Self {
            group_size: 8,
            prompts_per_step: 128,
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            stop: Vec::new(),
            max_new_tokens: 8192,
            max_sequences: 256,
            refill: 0,
        }
    }
}

impl Default for RawLoss {
    fn default() -> Self {
        Self {
            clip_low: 0.2,
            clip_high: 0.2,
            ratio: "token".to_owned(),
            normaliser: "constant".to_owned(),
            entropy_coef: 0.0,
        }
    }
}

impl Default for RawAdvantage {
    fn default() -> Self {
        Self {
            std: false,
            group: "mixed".to_owned(),
        }
    }
}

impl Default for RawTeacher {
    fn default() -> Self {
        Self {
            d: 0.1,
            weight: "one".to_owned(),
            mu: None,
        }
    }
}

impl Default for RawTrapo {
    fn default() -> Self {
        Self {
            hints: "off".to_owned(),
        }
    }
}

impl Default for RawSrft {
    fn default() -> Self {
        Self {
            weights: "plain".to_owned(),
        }
    }
}

impl Default for RawMetrics {
    fn default() -> Self {
        Self {
            kl_every: 0,
            rollouts_every: 1,
            preflight: 64,
        }
    }
}

impl Default for RawGuard {
    fn default() -> Self {
        Self {
            stop: false,
            warmup: 10,
            window: 10,
            beta_rise: 0.25,
            entropy_factor: 3.0,
            grad_norm_factor: 20.0,
        }
    }
}

impl RawData {
    /// The template that prompts are rendered with.
    pub fn template_choice(&self) -> hapo_data::TemplateChoice<'_> {
        hapo_data::TemplateChoice {
            name: &self.template,
            system: self.template_system.as_deref(),
            suffix: self.template_suffix.as_deref(),
        }
    }
}

/// A λ by name or as a number.
fn word_or_number<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> std::result::Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Word(String),
        Number(f64),
    }
    Ok(match Either::deserialize(from)? {
        Either::Word(it) => it,
        Either::Number(it) => it.to_string(),
    })
}

impl Default for RawHapo {
    fn default() -> Self {
        Self {
            gate: "confidence".to_owned(),
            failure_level: None,
            gamma0: None,
            annealing: "sigmoid".to_owned(),
            turn_off_epoch: None,
            steepness: 10.0,
            slot: "lowest-reward".to_owned(),
        }
    }
}

impl Default for RawOptim {
    fn default() -> Self {
        Self {
            lr: 5e-6,
            betas: [0.9, 0.999],
            eps: 1e-8,
            weight_decay: 0.01,
            max_grad_norm: 1.0,
            schedule: "constant".to_owned(),
            warmup: 0.0,
            mini_batch_prompts: 0,
            passes: 1,
            micro_batch_tokens: 8192,
            recompute: "none".to_owned(),
        }
    }
}

impl Default for RawCheckpoint {
    fn default() -> Self {
        Self {
            every: 0,
            keep: 3,
            best: "reward/policy_only".to_owned(),
        }
    }
}

/// Defaults of the two structs that also have required keys.
mod defaults {
    pub(super) fn steps() -> u64 {
        200
    }
    pub(super) fn rope_theta() -> f64 {
        1e4
    }
    pub(super) fn init_std() -> f64 {
        0.02
    }
}

impl RawRecipe {
    /// Reads a recipe and applies `overrides` (`section.key=value`) to it. `origin` names the text
    /// in messages.
    ///
    /// # Errors
    /// No TOML, unknown keys, values of another kind, or a recipe of several stages.
    pub fn parse(text: &str, origin: &str, overrides: &[String]) -> Result<Self> {
        let mut table: toml::Table = toml::from_str(text).map_err(|e| bad_toml(&e, origin))?;
        if table.contains_key("stage") {
            return Err(Error::Recipe {
                origin: origin.to_owned(),
                field: "stage".to_owned(),
                problem: "expected a recipe of one stage".to_owned(),
                hint: "`hapo train` runs the stages one after the other".to_owned(),
            });
        }
        for it in overrides {
            apply_override(&mut table, it)?;
        }
        // Deserialising the text itself, where nothing is overridden, keeps line numbers in messages.
        if overrides.is_empty() {
            return toml::from_str(text).map_err(|e| bad_toml(&e, origin));
        }
        table
            .try_into()
            .map_err(|e| bad_toml(&e, &format!("{origin} with --set")))
    }
}

/// The stages of a recipe, each with its name; one without a name for a recipe of one stage.
///
/// A `[[stage]]` has a `name` and any keys of a recipe; what it does not say it takes from the
/// recipe around it. `--set key=value` holds for every stage, `--set stage.NAME.key=value` for one.
pub(crate) fn parse_stages(
    text: &str,
    origin: &str,
    overrides: &[String],
) -> Result<Vec<(Option<String>, RawRecipe)>> {
    let mut table: toml::Table = toml::from_str(text).map_err(|e| bad_toml(&e, origin))?;
    let Some(stages) = table.remove("stage") else {
        return Ok(vec![(None, RawRecipe::parse(text, origin, overrides)?)]);
    };
    let bad = |problem: String, hint: &str| Error::Recipe {
        origin: origin.to_owned(),
        field: "stage".to_owned(),
        problem,
        hint: hint.to_owned(),
    };
    let stages: Vec<toml::Table> = stages
        .try_into()
        .map_err(|_| bad("expected a list of tables".to_owned(), "write [[stage]]"))?;
    let mut all: Vec<(Option<String>, RawRecipe)> = Vec::new();
    for (index, stage) in stages.into_iter().enumerate() {
        let name = match stage.get("name").and_then(toml::Value::as_str) {
            Some(it)
                if !it.is_empty()
                    && it
                        .bytes()
                        .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
                    && all.iter().all(|other| other.0.as_deref() != Some(it)) =>
            {
                it.to_owned()
            }
            _ => {
                return Err(bad(
                    format!("stage {}: expected a name of its own", index + 1),
                    "name it with letters, digits, `-` and `_`: it is the stage's folder",
                ));
            }
        };
        let mut merged = table.clone();
        merge(&mut merged, stage);
        for it in overrides {
            match it.strip_prefix("stage.") {
                Some(rest) => {
                    if let Some(own) = rest.strip_prefix(&format!("{name}.")) {
                        apply_override(&mut merged, own)?;
                    }
                }
                None => apply_override(&mut merged, it)?,
            }
        }
        let raw = merged
            .try_into()
            .map_err(|e| bad_toml(&e, &format!("{origin}, stage {name}")))?;
        all.push((Some(name), raw));
    }
    for it in overrides.iter().filter_map(|it| it.strip_prefix("stage.")) {
        let known = |name: &Option<String>| {
            name.as_ref()
                .is_some_and(|name| it.starts_with(&format!("{name}.")))
        };
        if !all.iter().any(|stage| known(&stage.0)) {
            return Err(bad(
                format!("--set stage.{it}: the recipe has no such stage"),
                "write --set stage.NAME.key=value",
            ));
        }
    }
    if all.is_empty() {
        return Err(bad(
            "expected at least one stage".to_owned(),
            "write [[stage]]",
        ));
    }
    Ok(all)
}

/// Lays `over` onto `table`: tables key by key, everything else as a whole.
fn merge(table: &mut toml::Table, over: toml::Table) {
    for (key, value) in over {
        match (table.get_mut(&key), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(above)) => merge(below, above),
            (_, value) => {
                table.insert(key, value);
            }
        }
    }
}

fn apply_override(table: &mut toml::Table, text: &str) -> Result<()> {
    let bad = |what: &str| Error::Recipe {
        origin: format!("--set {text}"),
        field: String::new(),
        problem: what.to_owned(),
        hint: "write --set section.key=value, for example --set optim.lr=5e-6".to_owned(),
    };
    let (path, value) = text
        .split_once('=')
        .ok_or_else(|| bad("expected key=value"))?;
    // What is no TOML value is a string: `--set method=luffy` needs no quotes.
    let value = toml::from_str::<toml::Table>(&format!("value = {value}"))
        .ok()
        .and_then(|mut it| it.remove("value"))
        .unwrap_or_else(|| toml::Value::String(value.to_owned()));
    let mut keys: Vec<&str> = path.trim().split('.').collect();
    let last = keys
        .pop()
        .filter(|it| !it.is_empty())
        .ok_or_else(|| bad("the key is empty"))?;
    let mut at = table;
    for key in keys {
        at = at
            .entry(key)
            .or_insert_with(|| toml::Value::Table(toml::Table::new()))
            .as_table_mut()
            .ok_or_else(|| bad(&format!("`{key}` is a value, not a section")))?;
    }
    at.insert(last.to_owned(), value);
    Ok(())
}

fn bad_toml(error: &toml::de::Error, origin: &str) -> Error {
    let message = error.message().to_owned();
    let hint = match unknown_and_known(&message) {
        Some((unknown, known)) => match nearest(unknown, &known) {
            Some(it) => format!("did you mean `{it}`?"),
            None => "docs/recipes.md lists every key".to_owned(),
        },
        None => "docs/recipes.md lists every key".to_owned(),
    };
    // The rendered error shows the line with the key under a caret; its first line is the place.
    let rendered = error.to_string();
    let place = rendered
        .lines()
        .next()
        .and_then(|it| it.split(" at ").nth(1))
        .unwrap_or_default()
        .to_owned();
    Error::Recipe {
        origin: origin.to_owned(),
        field: place,
        problem: message,
        hint,
    }
}

/// The two sides of serde's "unknown field `x`, expected one of `a`, `b`".
fn unknown_and_known(message: &str) -> Option<(&str, Vec<&str>)> {
    let rest = message.strip_prefix("unknown field ")?;
    let mut quoted = rest.split('`').skip(1).step_by(2);
    let unknown = quoted.next()?;
    Some((unknown, quoted.collect()))
}

/// The known word closest to `word`, if it is close enough to be what was meant.
pub(crate) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|it| (edit_distance(word, it), *it))
        .min()
        .filter(|(d, it)| *d <= 1 + it.len() / 3)
        .map(|it| it.1)
}

fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
