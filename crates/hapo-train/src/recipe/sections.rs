//! The sections of a recipe: one line per key, with its meaning, type and default.
//!
//! The tables of docs/recipes.md are made from these lines. Defaults are the paper's RL settings
//! (section 5 and appendix C) unless a line says otherwise. The words that a key takes are spelled by
//! the crate that owns them. The price of one source is a macro.

use std::sync::LazyLock;

use hapo_core::{
    AdvantageRule, AnnealingMode, Correction, CorrectionKind, Decimal, EntropyOver, GATES,
    GateRule, INJECTIONS, ImportanceRatioLevel, Injection, KlEstimator, METHODS, MethodEntry,
    NormaliserKind, SlotRule, TeacherRule, Truncated,
};
use hapo_data::Columns;
use hapo_data::task::{Mixture, TeacherSteps};
use hapo_kernels::{Compute, NumberFormat};
use hapo_model::{ActivationCheckpointing, Dtype, Projection};
use hapo_net::reward::OnFailure;
use hapo_sampler::KvMemory;
use hapo_verify::Extraction;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::LearningRateSchedule;
use super::registered::registered;
use super::scope::Scope;

/// A key of a recipe.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name within its section.
    pub name: &'static str,
    /// The explanation, in Markdown.
    pub meaning: &'static str,
    /// Which recipes read it.
    pub(super) scope: Scope,
}

/// A line `key: type = default; only Scope,` of a section: without a scope every recipe reads the key.
macro_rules! scope {
    () => {
        Scope::Every
    };
    ($scope:ident) => {
        Scope::$scope
    };
}

macro_rules! section {
    ($(#[doc = $about:literal])+ $section:ident {
        $($(#[doc = $doc:literal])+ $key:ident: $type:ty = $default:expr $(; only $scope:ident)?,)+
    }) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $section {
            $($(#[doc = $doc])+ pub $key: $type,)+
        }

        impl Default for $section {
            fn default() -> Self {
                Self { $($key: $default,)+ }
            }
        }

        impl $section {
            const KEYS: &'static [Key] = &[
                $(Key {
                    name: stringify!($key),
                    meaning: concat!($($doc),+),
                    scope: scope!($($scope)?),
                },)+
            ];
        }
    };
}

/// The sections with their keys, in the order of the documentation. The first has no name.
pub const SECTIONS: &[(&str, &[Key])] = &[
    ("", Settings::KEYS),
    ("model", ModelSection::KEYS),
    ("model.init", InitSection::KEYS),
    ("lora", LoraSection::KEYS),
    ("reference", ReferenceSection::KEYS),
    ("data", DataSection::KEYS),
    ("reward", RewardSection::KEYS),
    ("sampling", SamplingSection::KEYS),
    ("rollouts", RolloutsSection::KEYS),
    ("loss", LossSection::KEYS),
    ("advantage", ADVANTAGE),
    ("teacher", TEACHER),
    ("hapo", HapoSection::KEYS),
    ("optim", OptimSection::KEYS),
    ("checkpoint", CheckpointSection::KEYS),
    ("metrics", MetricsSection::KEYS),
    ("guard", GuardSection::KEYS),
    ("eval", EvalSection::KEYS),
];

/// Every key with its section, in the order of the documentation; sections are no keys themselves.
pub(super) fn sections_and_keys() -> impl Iterator<Item = (&'static str, &'static Key)> {
    let all =
        SECTIONS.iter().flat_map(|(section, keys)| keys.iter().map(move |key| (*section, key)));
    all.filter(|(section, key)| !section.is_empty() || SECTIONS.iter().all(|it| it.0 != key.name))
}

/// A key as it is set: `section.name`.
pub(super) fn path_of(section: &str, name: &str) -> String {
    if section.is_empty() { name.to_owned() } else { format!("{section}.{name}") }
}

/// Keys that have no default; those of a section are required where the section is there.
pub const REQUIRED: &[&str] = &[
    "method",
    "model",
    "model.init.hidden",
    "model.init.layers",
    "model.init.heads",
    "model.init.kv_heads",
    "model.init.ffn",
    "reference.path",
];

section! {
    /// A recipe as it is written, with its defaults filled in.
    Settings {
        /// Name of the run in tables and of its folder; the file's name if absent.
        name: Option<String> = None,
        /// The method: an entry of `hapo list methods`.
        method: MethodName = MethodName(METHODS[0].name),
        /// Seed of every random draw.
        seed: u64 = 0,
        /// Batches of rollouts to train on (`sft`: of demonstrations).
        steps: u64 = 200,
        /// Number format of both factors of matrix products; sums are f32: `f32`, nothing is rounded; `bf16`, on
        /// GPUs and on CPUs with AVX-512 BF16; `tf32`, on GPUs. Everything else is f32, the weights that updates move
        /// included, but activations on a GPU in bf16.
        compute: Compute = Compute::F32,
        /// The model to start from, see below.
        model: ModelSection = ModelSection::default(),
        /// A low-rank adapter; absent = all weights are trained.
        lora: Option<LoraSection> = None,
        /// A second model that scores the rollouts' tokens; absent = none.
        reference: Option<ReferenceSection> = None; only Reference,
        /// Prompts and teachers.
        data: DataSection = DataSection::default(),
        /// Rewards: what counts as success, and a custom reward's program or server.
        reward: RewardSection = RewardSection::default(),
        /// Rollouts.
        sampling: SamplingSection = SamplingSection::default(),
        /// A server that samples, and the correction of its rollouts.
        rollouts: RolloutsSection = RolloutsSection::default(),
        /// The on-policy objective.
        loss: LossSection = LossSection::default(),
        /// Advantages.
        advantage: AdvantageRule = AdvantageRule::default(),
        /// The teacher's term, for the methods that have one.
        teacher: TeacherRule = TeacherRule::default(),
        /// The HAPO gate; absent = the bare method.
        hapo: Option<HapoSection> = None,
        /// Optimiser and batching.
        optim: OptimSection = OptimSection::default(),
        /// Checkpoints.
        checkpoint: CheckpointSection = CheckpointSection::default(),
        /// Metrics beside the loss.
        metrics: MetricsSection = MetricsSection::default(),
        /// Alarms (D23).
        guard: GuardSection = GuardSection::default(),
        /// Evaluation while the run trains; absent = none.
        eval: Option<EvalSection> = None,
        /// A tracker that gets each step from its own Python package: `wandb`, `trackio` or `mlflow`. It never stops the
        /// run, see [trackers.md](guides/trackers.md).
        track: Option<Tracker> = None,
    }
}

/// A tracker of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tracker {
    /// Weights & Biases.
    Wandb,
    /// Trackio.
    Trackio,
    /// `MLflow`.
    Mlflow,
}

impl Tracker {
    /// The name of its Python package.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wandb => "wandb",
            Self::Trackio => "trackio",
            Self::Mlflow => "mlflow",
        }
    }
}

section! {
    /// `[model]`: exactly one of `path` and `init`.
    ModelSection {
        /// A Hugging Face folder, `org/name[@revision]` of the hub, `builtin:base`, or an earlier stage (D33):
        /// `stage:NAME` hands on its best checkpoint where it has `[eval]`, what it started from included, else its
        /// last; `stage:NAME@best` and `stage:NAME@last` say which.
        path: Option<String> = None,
        /// Random weights of this shape, see below.
        init: Option<InitSection> = None,
        /// Number format of the weights in checkpoints: `f32`, `bf16` or `f16`; `compute` says what is computed with.
        dtype: Dtype = Dtype::F32; only AllWeights,
    }
}

section! {
    /// `[model.init]`: a Qwen2-shaped decoder with random weights.
    InitSection {
        /// Width of the residual stream.
        hidden: usize = 0,
        /// Decoder layers.
        layers: usize = 0,
        /// Query heads.
        heads: usize = 0,
        /// Key/value heads.
        kv_heads: usize = 0,
        /// Width of the `SwiGLU` block.
        ffn: usize = 0,
        /// A `tokenizer.json`, or a folder that has one; the built-in one if absent.
        tokenizer: Option<String> = None,
        /// Base of the rotary frequencies.
        rope_theta: f64 = 1e4,
        /// Standard deviation of the normal initialisation.
        std: f64 = 0.02,
    }
}

section! {
    /// `[reference]`: a model that is not trained and scores the rollouts' tokens: the teacher of `opd`, and what the KL of
    /// `loss.kl_coef` is taken to. Its tokenizer is that of the model.
    ReferenceSection {
        /// As `model.path`.
        path: String = String::new(); only Reference,
    }
}

section! {
    /// `[lora]`: an adapter of PEFT's kind is trained and the model's weights stay as they are: y = x·W + s·(x·A)·B.
    LoraSection {
        /// r: columns of A and rows of B.
        rank: usize = 16,
        /// α of the scale s = α/r.
        alpha: f64 = 32.0,
        /// The matrices that get a pair: `all-linear`, or names among `q_proj`, `k_proj`, `v_proj`, `o_proj`, `gate_proj`,
        /// `up_proj` and `down_proj`.
        targets: LoraTargets = LoraTargets::AllLinear,
        /// How A is drawn; B begins with 0. `default`: uniform in ±1/√inputs, as PEFT's; `gaussian`: normal of
        /// standard deviation 1/r.
        init: LoraInit = LoraInit::Default,
        /// s = α/√r, which keeps the size of updates from falling with the rank.
        rslora: bool = false,
    }
}

/// How A of an adapter is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoraInit {
    /// Uniform in ±1/√inputs.
    #[default]
    Default,
    /// Normal of standard deviation 1/r.
    Gaussian,
}

/// The matrices that have a pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Names", into = "Names")]
pub enum LoraTargets {
    /// Every matrix of every layer.
    AllLinear,
    /// These, at least one.
    Named(Vec<Projection>),
}

const ALL_LINEAR: &str = "all-linear";

impl LoraTargets {
    /// The matrices.
    pub fn projections(&self) -> Vec<Projection> {
        match self {
            Self::AllLinear => Projection::ALL.to_vec(),
            Self::Named(it) => it.clone(),
        }
    }
}

impl TryFrom<Names> for LoraTargets {
    type Error = String;

    fn try_from(names: Names) -> Result<Self, String> {
        let names = match names {
            Names::One(it) if it == ALL_LINEAR => return Ok(Self::AllLinear),
            Names::One(it) => vec![it],
            Names::Several(it) => it,
        };
        let known = || Projection::ALL.map(Projection::name).join(", ");
        let named = |name: &String| {
            let found = Projection::ALL.into_iter().find(|it| it.name() == name);
            found.ok_or_else(|| {
                format!("expected {ALL_LINEAR} or some of {}, got `{name}`", known())
            })
        };
        let mut all = names.iter().map(named).collect::<Result<Vec<_>, _>>()?;
        if all.is_empty() {
            return Err(format!("expected {ALL_LINEAR} or some of {}, got none", known()));
        }
        all.sort_unstable();
        all.dedup();
        Ok(Self::Named(all))
    }
}

impl From<LoraTargets> for Names {
    fn from(it: LoraTargets) -> Self {
        match it {
            LoraTargets::AllLinear => Self::One(ALL_LINEAR.to_owned()),
            LoraTargets::Named(it) => {
                Self::Several(it.iter().map(|it| it.name().to_owned()).collect())
            }
        }
    }
}

section! {
    /// `[data]`.
    DataSection {
        /// A file of problems in any layout of [data.md](data.md), a folder or pattern of such files, a list of them, or
        /// `hf://datasets/org/name[@revision][/file]` of the hub; `builtin`: prompts of the built-in task; `builtin:corpus`: its documents, for a base model.
        train: DataSource = DataSource::Builtin,
        /// Names of the columns of `data.train`, where no layout fits:
        /// `{ problem = "q", answer = "gold", teacher = ["solution"] }`; `id`, `source`, `level` and `subject` may be named too.
        columns: Option<Columns> = None; only Files,
        /// Prompts drawn from the built-in task.
        prompts: usize = 640; only Task,
        /// Seed of the built-in task's prompts: its own, so that runs of different seeds share them.
        seed: u64 = 0; only Task,
        /// Families, levels and styles of `builtin:corpus`; the recommended ones if absent.
        mixture: Option<Mixture> = None; only Corpus,
        /// Levels of the built-in task, for example `["multiply:6"]`; empty = the hard ones.
        levels: Vec<String> = Vec::new(); only Task,
        /// Share of the built-in task's prompts that have a teacher trajectory.
        teacher_coverage: f64 = 0.25; only Task,
        /// How the built-in task's teacher writes, for studies: `exact`; `repeated`, in a style that only 58 % of the hard
        /// problems can be finished in; `flawed`, with a wrong step in 30 % of the traces; `two`, an exact trace and one in the
        /// style of the base model for each prompt.
        teacher_steps: TeacherSteps = TeacherSteps::Exact; only Task,
        /// Prompt template, `hapo list templates`; `chat` is the model's own. `auto`: the one the model was
        /// trained with by `hapo train`, else its own, see [templates.md](templates.md).
        template: String = AUTO.to_owned(); only Rendered,
        /// Text of the system turn; with `template = "chat"` only.
        template_system: Option<String> = None; only Rendered,
        /// Text after the problem in the user's turn, its spaces included; with `template = "chat"` only.
        template_suffix: Option<String> = None; only Rendered,
        /// Longest rendered prompt in tokens.
        max_prompt_tokens: usize = 1024,
        /// Treatment of longer prompts: `drop` leaves them out and counts them, `error` refuses the first.
        overlong: Overlong = Overlong::Drop; only Rendered,
        /// Grader of completions, `hapo list graders`; or a custom reward: `command:PROGRAM`, `python:FILE.py:FUNCTION`,
        /// or the `http://` address of a server, see [own-reward.md](guides/own-reward.md).
        grader: String = "math".to_owned(); only Rendered,
        /// Where an answer is read (D26): `boxed`, the last closed box; `announced`, that or else an announced answer
        /// ("the answer is …", "Final answer: …", a last line `#### …`); `any`, whatever the grader finds, the last
        /// number of a text with `math`.
        extraction: Extraction = Extraction::Announced; only Answers,
        /// A response without its end token (D27, D31): `wrong`, a wrong answer; `mask`, a wrong answer that is left out
        /// of the loss; `grade`, judged like any other.
        truncated: Truncated = Truncated::Wrong; only Rollouts,
        /// Hints: `solution`, the first 25, 50 and 75 % of the teacher's; `column`, those of `data.columns.hint`;
        /// `answer`, the gold answer.
        hints: HintSource = HintSource::Solution; only Hints,
        /// Share of the rollouts' verdicts that are flipped: an unreliable grader, for studies.
        verdict_noise: f64 = 0.0; only Verdicts,
    }
}

section! {
    /// `[reward]`: which rewards are successes, what an answer without a verdict is worth, and the program or server
    /// that `data.grader` names ([own-reward.md](guides/own-reward.md)).
    RewardSection {
        /// Smallest reward that counts as a success (D28): the gate counts successes, and a teacher's solution enters
        /// if its reward is one. In (0, 1] with a built-in grader.
        success_at: f64 = 1.0,
        /// Reward of an answer without a verdict (D31): cut off, without an answer, or whose program failed. A
        /// response that was cut off gets the lowest reward graded in its group where that is lower. Below
        /// `success_at`; at most 0 with a built-in grader.
        wrong: f64 = 0.0; only Rollouts,
        /// Longest time of one answer, in seconds.
        timeout: f64 = 30.0; only CustomReward,
        /// Further seconds for the first answer of a process: a program loads its data.
        start_timeout: f64 = 120.0; only CustomReward,
        /// Processes of a program, or requests at once to a server; 0 = one for each core of the CPU. No reward depends
        /// on it.
        workers: usize = 0; only CustomReward,
        /// A response that is not answered (a crash, the time limit, an answer that is none): `stop` ends the run and
        /// saves it; `wrong` gives it `reward.wrong` and counts it in `reward/failed`.
        on_failure: OnFailure = OnFailure::Stop; only CustomReward,
    }
}

section! {
    /// `[sampling]`.
    SamplingSection {
        /// N: members of a group.
        group_size: usize = 8; only Rollouts,
        /// M: groups of one step (`sft`: demonstrations).
        prompts_per_step: usize = 128,
        /// Sampling temperature.
        temperature: f64 = 1.0; only Rollouts,
        /// Nucleus mass. Below 1 the ratio's distribution is not the sampled one, which is warned about.
        top_p: f64 = 1.0; only Rollouts,
        /// Most likely tokens to draw from; 0 = all. Warned about likewise.
        top_k: usize = 0; only Rollouts,
        /// Only tokens at least this fraction as likely as the likeliest one; 0 = all. Warned about likewise.
        min_p: f64 = 0.0; only Rollouts,
        /// Strings that end a response, looked for in its text across tokens. The tokens stay complete and the
        /// graded text keeps the string.
        stop: Vec<String> = Vec::new(); only Samples,
        /// Longest response in tokens, end token included; also the L of the constant normaliser.
        max_new_tokens: usize = 8192,
        /// Most tokens of earlier rollouts that `hapo.injection = "replay"` remembers, 8 bytes each; the oldest leave first.
        remembered_tokens: usize = 4_194_304; only Memory,
        /// Sequences decoded at once.
        max_sequences: usize = 256; only Samples,
        /// Memory of keys and values: a size such as `6GB`, or `auto` for nine tenths of what is free beside the rest,
        /// the limits of control groups included; never more than the sequences can use. It decides how many of them
        /// run at once and how often one is read again, not what is sampled.
        kv_memory: KvMemory = KvMemory::Auto; only Samples,
        /// Rounds in which groups without signal are replaced by groups of fresh prompts; 0 = they stay.
        dynamic_sampling: usize = 0; only Rollouts,
    }
}

section! {
    /// `[rollouts]`: a server that samples, and the correction of an engine whose distribution is not quite the trainer's
    /// (D41, [rollouts-from-a-server.md](guides/rollouts-from-a-server.md)).
    RolloutsSection {
        /// Address of the server, such as `http://127.0.0.1:8000`; absent = this process samples.
        server: Option<String> = None; only Rollouts,
        /// Its interface: `vllm`, `sglang`, or `hapo` for `hapo serve`.
        engine: RolloutEngine = RolloutEngine::Hapo; only Served,
        /// Folder that trainer and server both see: new weights are written there, by version, and the server reads them.
        weights: String = String::new(); only Served,
        /// The weight `π_old/π_sampler` of each token's term, with `π_old` by the trainer's own forward pass:
        /// `token-truncate` bounds it by `correction_cap`, `token-mask` leaves tokens outside [1/cap, cap] out;
        /// `sequence-truncate` and `sequence-mask` do so with the product over a response; `none` is 1. Absent =
        /// `token-truncate` with `vllm` and `sglang`; our own sampler needs none: its recorded numbers are `π_old` (D19).
        correction: Option<CorrectionKind> = None; only Rollouts,
        /// C, the largest weight.
        correction_cap: f64 = 2.0; only Corrected,
    }
}

/// The interface of a server that samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RolloutEngine {
    /// `hapo serve`.
    Hapo,
    /// vLLM's server.
    Vllm,
    /// `SGLang`'s server.
    Sglang,
}

impl RolloutsSection {
    /// The correction of the rollouts; `None` where the recorded log-probabilities are `π_old` (D19).
    pub fn correction(&self) -> Option<Correction> {
        let is_foreign = self.server.is_some() && self.engine != RolloutEngine::Hapo;
        let kind = self.correction.or(is_foreign.then_some(CorrectionKind::TokenTruncate))?;
        let is_wanted = is_foreign || kind != CorrectionKind::None;
        is_wanted.then_some(Correction { kind, cap: self.correction_cap })
    }
}

section! {
    /// `[loss]`.
    LossSection {
        /// ε below 1; `inf` for no clip.
        clip_low: f64 = 0.2; only Rollouts,
        /// ε above 1; `inf` for no clip.
        clip_high: f64 = 0.2; only Rollouts,
        /// Whose importance ratio is clipped: `token`, or `sequence` (GSPO).
        importance_ratio_level: ImportanceRatioLevel = ImportanceRatioLevel::Token; only Rollouts,
        /// `constant`: sequences × `max_new_tokens`; `length`: `max_new_tokens` alone; `token-mean`: response tokens of
        /// the step; `sequence-mean`: each sequence by its length, then their number.
        normaliser: NormaliserKind = NormaliserKind::Constant; only Rollouts,
        /// Weight of the entropy bonus (D17).
        entropy_coef: f64 = 0.0; only Rollouts,
        /// Whose entropies it is of: `policy`, a sum over its tokens under the same normaliser; `response`, a mean over all
        /// response tokens of the step, the teacher's too (the code of LUFFY and HPT).
        entropy_over: EntropyOver = EntropyOver::Policy; only Entropy,
        /// Weight of the KL to the model of `[reference]` on the policy's tokens, under the same normaliser; 0 = none (D18).
        kl_coef: f64 = 0.0; only Rollouts,
        /// Its estimator, with q = log `π_ref` − log π: `k1`, −q; `k2`, q²/2; `k3`, exp(q) − 1 − q.
        kl_estimator: KlEstimator = KlEstimator::K3; only Kl,
    }
}

/// `[advantage]`, which methods read as [`AdvantageRule`].
const ADVANTAGE: &[Key] = &[
    Key { name: "std", meaning: " Divide by the standard deviation.", scope: Scope::Rollouts },
    Key {
        name: "group",
        meaning: " Whose mean is subtracted: `mixed`, `sampled` or `policy-only`.",
        scope: Scope::MixedGroups,
    },
];

/// `[teacher]`, which methods read as [`TeacherRule`].
const TEACHER: &[Key] = &[
    Key { name: "d", meaning: " d of the operators that have one.", scope: Scope::Teacher },
    Key {
        name: "weight",
        meaning: " λ: `one`, `one-minus-confidence`, `relative`, `advantage` or a number; 0 takes the teacher's term away.",
        scope: Scope::Teacher,
    },
    Key {
        name: "operator",
        meaning: " F of a trace, or of a prefix, that `[hapo]` lets into the groups of a method without a term for a teacher: `luffy`, `srft`, `trapo` or `chord`. Required there.",
        scope: Scope::Operator,
    },
    Key {
        name: "pick",
        meaning: " Which of a prompt's verified solutions may enter: `first`, `random`, anew at each step; `shortest`; `likeliest`, that of the highest mean log π by the weights of the step.",
        scope: Scope::Trace,
    },
];

section! {
    /// `[hapo]`: when the teacher enters, and how long.
    HapoSection {
        /// A table of steps and success counts: `confidence` (Eq. 4–9), `always` or `never`. Others: `posterior`,
        /// confidence over a prompt's visits; `thompson`, a draw in the place of the confidence; `no-signal`, groups of
        /// equal rewards without a success; `budget`, `exposures` in all; `yoked`, random groups, as many in each step as
        /// in the run of `record`.
        gate: GateName = GateName(GATES[0]),
        /// m: the gate opens for groups with at most m successes; 0 if absent. Excludes `gamma0`.
        success_limit: Option<usize> = None; only Teacher,
        /// The threshold by hand, as a decimal; at N = 8, 0.3, 0.5 and 0.7 mean m = 1, 3 and 5.
        gamma0: Option<Decimal> = None; only Teacher,
        /// `sigmoid` (Eq. 9) or `off`.
        annealing: AnnealingMode = AnnealingMode::Sigmoid; only Teacher,
        /// `e_off`, which the paper never states: required by `sigmoid`.
        turn_off_epoch: Option<Decimal> = None; only Annealed,
        /// k of Eq. 9.
        steepness: Decimal = Decimal::from(10); only Annealed,
        /// ρ: the weight of a prompt's earlier visits at each new one, from 0 to 1; at 0 a group counts alone.
        discount: f64 = 0.5; only Teacher,
        /// Groups of the whole run that something may enter: required by `budget`.
        exposures: u64 = 0; only Teacher,
        /// The folder of a finished run, or its `metrics.jsonl`: required by `yoked`.
        record: String = String::new(); only Teacher,
        /// Which rollout the teacher replaces: `lowest-reward`, `first`, `random`, `longest`; `fixed` with
        /// `gate = "always"`.
        slot: SlotRule = SlotRule::LowestReward; only Slot,
        /// The injection: `trace`, the teacher's whole trajectory; `prefix`, a rollout that succeeds behind 25, 50 or 75 %
        /// of it; `hint`, a rollout that succeeds under a hint; `distill`, nothing, and the group's rollouts are distilled
        /// from `[reference]`; `replay`, the policy's own latest success of the prompt.
        injection: InjectionName = InjectionName(INJECTIONS[0]); only Teacher,
    }
}

/// Where hints come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HintSource {
    /// The first parts of the teacher's solution.
    Solution,
    /// Columns of the data.
    Column,
    /// The gold answer.
    Answer,
}

/// Entries of lists, by their names.
macro_rules! names {
    ($($(#[doc = $about:literal])+ $name:ident($entry:ty) of $entries:ident, $find:path;)+) => {$(
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug)]
        pub struct $name(pub &'static $entry);

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.0.name() == other.0.name()
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.0.name())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                static NAMES: LazyLock<Vec<&'static str>> =
                    LazyLock::new(|| $entries.iter().map(|it| it.name()).collect());
                let name = String::deserialize(deserializer)?;
                $find(&name).map(Self).ok_or_else(|| de::Error::unknown_variant(&name, &NAMES))
            }
        }
    )+};
}

names! {
    /// An entry of [`GATES`], by its name.
    GateName(dyn GateRule) of GATES, hapo_core::gate_rule;
    /// An entry of [`INJECTIONS`], by its name.
    InjectionName(dyn Injection) of INJECTIONS, hapo_core::injection;
}

section! {
    /// `[optim]`.
    OptimSection {
        /// Peak learning rate.
        lr: f64 = 5e-6,
        /// `AdamW`'s β.
        betas: [f64; 2] = [0.9, 0.999],
        /// `AdamW`'s ε.
        eps: f64 = 1e-8,
        /// Decoupled decay of every parameter.
        weight_decay: f64 = 0.01,
        /// Number format of `AdamW`'s moments: `f32`, or `bf16` with stochastic rounding, which takes 12 bytes for a
        /// parameter in all instead of 16.
        moments: NumberFormat = NumberFormat::F32,
        /// Largest global gradient norm. With `loss.normaliser = "constant"` norms are far below 1 and it seldom acts.
        max_grad_norm: f64 = 1.0,
        /// Shape of the learning rate after its warm-up: `constant`, `linear` or `cosine`.
        lr_schedule: LearningRateSchedule = LearningRateSchedule::Constant,
        /// Share of all optimiser steps over which the rate rises from 0.
        warmup: f64 = 0.0,
        /// Prompts (or demonstrations) of one optimiser step; 0 = all of the batch. Each is normalised by itself, which
        /// is warned about where they do not divide the batch.
        mini_batch_prompts: usize = 0,
        /// Passes over a batch of rollouts.
        passes: usize = 1,
        /// Tokens of one forward and backward pass; changes memory, not the loss. `auto`: from 1024 to 8192, by the
        /// model's shape, so that activations take no more than weights, gradients and moments, or 1 GiB.
        micro_batch_tokens: MicroBatch = MicroBatch::Auto,
        /// `none` keeps all activations, `layers` computes each layer's again in the backward pass, `auto` keeps all
        /// where they fit; results are the same.
        activation_checkpointing: ActivationCheckpointing = ActivationCheckpointing::None,
    }
}

section! {
    /// `[checkpoint]`.
    CheckpointSection {
        /// Steps between checkpoints; 0 = only at the end.
        every: u64 = 0,
        /// How many of the latest to keep.
        keep: usize = 3,
        /// Keep the best one too, by this metric's mean since the checkpoint before; `-loss` for the lowest loss, empty for
        /// none. A metric of `eval/` is that of the checkpoint's own weights, and there is a checkpoint after each
        /// evaluation that is the best so far. `auto`: `eval/avg@k` with `[eval]`, else `reward/policy_only`.
        best: String = AUTO.to_owned(),
    }
}

section! {
    /// `[metrics]`.
    MetricsSection {
        /// Steps between measurements of the KL to the initial policy (k3 on the step's own tokens, one forward
        /// pass and one copy of the weights); 0 = never.
        kl_every: u64 = 0; only Rollouts,
        /// Steps between measurements of `sampler/logprob_gap_max` where a step makes several updates: the mini-batches
        /// after the first take a forward pass of their own; 0 = never. A single update measures it always.
        gap_every: u64 = 10; only Rollouts,
        /// Steps between those whose rollouts are kept in `rollouts/`; 0 = none are.
        rollouts_every: u64 = 1; only Rollouts,
        /// Prompts that `hapo train` samples before the first step, to say what to expect: at most those of a step;
        /// 0 = none.
        preflight: usize = 64; only Rollouts,
    }
}

section! {
    /// `[guard]`: alarms (D23). They warn; with `stop` the run saves and ends.
    GuardSection {
        /// End the run at an alarm.
        stop: bool = false; only Rollouts,
        /// Steps without alarms at the start.
        warmup: usize = 10; only Rollouts,
        /// Steps over which means are taken.
        window: usize = 10; only Rollouts,
        /// Rise of the share of injected groups from one window to the next that is an alarm.
        beta_rise: f64 = 0.25; only MixedGroups,
        /// Entropy over that of the first window that is an alarm.
        entropy_factor: f64 = 3.0; only Rollouts,
        /// Gradient norm over the window's mean that is an alarm.
        grad_norm_factor: f64 = 20.0; only Rollouts,
    }
}

/// The treatment of prompts above `data.max_prompt_tokens`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overlong {
    /// They are left out and counted.
    Drop,
    /// The run does not start.
    Error,
}

/// The value of a key that is left to the model.
pub const AUTO: &str = "auto";

/// Tokens of a micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MicroBatch {
    /// By the model's shape.
    Auto,
    /// A number.
    Tokens(usize),
}

impl Serialize for MicroBatch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str(AUTO),
            Self::Tokens(it) => serializer.serialize_u64(*it as u64),
        }
    }
}

impl<'de> Deserialize<'de> for MicroBatch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Tokens;
        impl de::Visitor<'_> for Tokens {
            type Value = MicroBatch;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number of tokens, or \"auto\"")
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<MicroBatch, E> {
                let tokens = usize::try_from(value).map(MicroBatch::Tokens);
                tokens.map_err(|_| E::invalid_value(de::Unexpected::Signed(value), &self))
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<MicroBatch, E> {
                match word {
                    AUTO => Ok(MicroBatch::Auto),
                    _ => Err(E::invalid_value(de::Unexpected::Str(word), &self)),
                }
            }
        }
        deserializer.deserialize_any(Tokens)
    }
}

section! {
    /// `[eval]`: problems that the run is evaluated on while it trains, rendered and graded as its own. The draws
    /// are its own too: the run's bits are those without it.
    EvalSection {
        /// A file of problems, in any layout of [data.md](data.md), or of the hub; beside `suite`, the folder of its
        /// files.
        data: Option<String> = None,
        /// A suite or benchmarks of `hapo list`, or levels of the built-in task's held-out split, separated by commas.
        suite: Option<String> = None,
        /// Steps between evaluations; there is one after the last step as well.
        every: u64 = 10,
        /// Problems of each set at most, the first ones.
        problems: usize = 64,
        /// k: completions of each problem.
        k: usize = 4,
        /// Sampling temperature; 0 takes the most likely token, with k = 1.
        temperature: f64 = 0.6,
        /// Longest completion in tokens; `sampling.max_new_tokens` if absent.
        max_tokens: Option<usize> = None,
        /// Evaluations in a row without a better `eval/avg@k`, or another metric of `eval/` that `checkpoint.best`
        /// names, after which the run ends; 0 = it goes to its last step.
        patience: u64 = 0,
    }
}

impl Settings {
    /// The metric of `checkpoint.best` and its sign: 1 where higher is better, −1 where lower is.
    pub(crate) fn best_metric(&self) -> (&str, f64) {
        match (self.checkpoint.best.as_str(), &self.eval) {
            (AUTO, Some(_)) => ("eval/avg@k", 1.0),
            (AUTO, None) => ("reward/policy_only", 1.0),
            (named, _) => named.strip_prefix('-').map_or((named, 1.0), |metric| (metric, -1.0)),
        }
    }
}

impl DataSection {
    /// The template that prompts are rendered with.
    pub fn template_choice(&self) -> hapo_data::TemplateChoice<'_> {
        hapo_data::TemplateChoice {
            name: &self.template,
            system: self.template_system.as_deref(),
            suffix: self.template_suffix.as_deref(),
        }
    }
}

/// The training data of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Names", into = "Names")]
pub enum DataSource {
    /// Prompts of the built-in task.
    Builtin,
    /// Documents of the built-in task, for a base model.
    Corpus,
    /// Files, folders or patterns, by their paths or their names on the hub.
    Files(Vec<String>),
}

/// One name or several.
#[derive(Deserialize, Serialize)]
#[serde(untagged, expecting = "a name or a list of names")]
enum Names {
    One(String),
    Several(Vec<String>),
}

impl DataSource {
    /// The word or the names in the recipe.
    pub fn name(&self) -> String {
        match self {
            Self::Builtin => "builtin".to_owned(),
            Self::Corpus => "builtin:corpus".to_owned(),
            Self::Files(names) => names.join(", "),
        }
    }
}

impl From<Names> for DataSource {
    fn from(names: Names) -> Self {
        match names {
            Names::One(name) if name == "builtin" => Self::Builtin,
            Names::One(name) if name == "builtin:corpus" => Self::Corpus,
            Names::One(name) => Self::Files(vec![name]),
            Names::Several(names) => Self::Files(names),
        }
    }
}

impl From<DataSource> for Names {
    fn from(it: DataSource) -> Self {
        match it {
            DataSource::Files(names) if names.len() != 1 => Self::Several(names),
            it => Self::One(it.name()),
        }
    }
}

/// The name of a method of [`METHODS`], or of a registered one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MethodName(&'static str);

impl MethodName {
    /// The name.
    pub fn name(self) -> &'static str {
        self.0
    }

    /// Its entry of the table; none for a registered method.
    pub(super) fn entry(self) -> Option<&'static MethodEntry> {
        hapo_core::method(self.0)
    }
}

impl<'de> Deserialize<'de> for MethodName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        static NAMES: LazyLock<Vec<&'static str>> =
            LazyLock::new(|| METHODS.iter().map(|it| it.name).collect());
        let name = String::deserialize(deserializer)?;
        if name == "chord" {
            let now = "`chord` was neither published variant: expected `chord-mu` or `chord-phi`";
            return Err(de::Error::custom(now));
        }
        let known = NAMES.iter().find(|it| **it == name).copied();
        let known = known.or_else(|| registered(&name).map(|it| it.name));
        known.map(Self).ok_or_else(|| de::Error::unknown_variant(&name, &NAMES))
    }
}
