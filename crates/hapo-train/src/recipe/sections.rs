//! The sections of a recipe: one line per key, with its meaning, type and default.
//!
//! The tables of docs/recipes.md are made from these lines. Defaults are the paper's RL settings
//! (section 5 and appendix C) unless a line says otherwise. The words that a key takes are spelled by
//! the crate that owns them. The price of one source is a macro.

use hapo_core::{
    AdvantageRule, AnnealingMode, Correction, CorrectionKind, Decimal, EntropyOver, GATES,
    GateRule, INJECTIONS, ImportanceRatioLevel, Injection, KlEstimator, METHODS, NormaliserKind,
    SlotRule, TeacherRule, Truncated,
};
use hapo_data::Columns;
use hapo_data::task::{Mixture, TeacherSteps};
use hapo_kernels::{Compute, NumberFormat};
use hapo_model::{ActivationCheckpointing, Dtype};
use hapo_net::reward::OnFailure;
use hapo_sampler::KvMemory;
use hapo_verify::{DEFAULT_GRADER, Extraction};
use serde::{Deserialize, Serialize};

use super::range::{ABOVE_0, ABOVE_0_OR_INF, ABOVE_1, CLIP_HIGH, CLIP_LOW, Range, SECONDS};
use super::values::{
    AUTO, DataSource, HintSource, LearningRateSchedule, LoraInit, LoraTargets, MethodName,
    MicroBatch, Overlong, RolloutEngine, Tracker,
};

/// Which recipes read a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Every,
    Rollouts,
    Samples,
    Teacher,
    MixedGroups,
    Trace,
    Operator,
    Hints,
    Slot,
    Memory,
    Annealed,
    Task,
    Files,
    Corpus,
    Rendered,
    Answers,
    Verdicts,
    CustomReward,
    Reference,
    Entropy,
    Kl,
    Served,
    Corrected,
    AllWeights,
}

/// A key of a recipe.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    pub name: &'static str,
    pub meaning: &'static str,
    pub(super) range: Option<fn() -> Range>,
    pub(super) scope: Scope,
    /// Its names in TRL, verl, transformers and axolotl.
    pub(super) synonyms: &'static [&'static str],
}

/// Lines `name; in RANGE; only Scope; aka "synonym",`: without a scope every recipe reads the key.
macro_rules! keys {
    ($($(#[doc = $doc:literal])+ $key:ident $(; in $range:expr)? $(; only $scope:ident)? $(; aka $($word:literal)+)?,)+) => {
        &[$(Key {
            name: stringify!($key),
            meaning: concat!($($doc),+),
            range: keys!(@range $($range)?),
            scope: keys!(@scope $($scope)?),
            synonyms: &[$($($word),+)?],
        },)+]
    };
    (@range) => { None };
    (@range $range:expr) => { Some(|| Range::from($range)) };
    (@scope) => { Scope::Every };
    (@scope $scope:ident) => { Scope::$scope };
}

/// The same lines with a type and a default, `key: type = default; …`, as a section of settings.
macro_rules! section {
    ($(#[doc = $about:literal])+ $section:ident {
        $($(#[doc = $doc:literal])+ $key:ident: $type:ty = $default:expr
            $(; in $range:expr)? $(; only $scope:ident)? $(; aka $($word:literal)+)?,)+
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
            const KEYS: &'static [Key] = keys![
                $($(#[doc = $doc])+ $key $(; in $range)? $(; only $scope)? $(; aka $($word)+)?,)+
            ];
        }
    };
}

/// Longest prompt and longest response.
const MOST_TOKENS: u64 = 1 << 20;

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
        name: Option<String> = None; aka "run_name",
        /// The method: an entry of `hapo list methods`.
        method: MethodName = MethodName(METHODS[0].name),
        /// Seed of every random draw.
        seed: u64 = 0,
        /// Batches of rollouts to train on (`sft`: of demonstrations).
        steps: u64 = 200; in 1..=1_000_000_000;
            aka "epochs" "max_steps" "num_epochs" "num_train_epochs" "total_epochs",
        /// Number format of both factors of matrix products; sums are f32: `f32`, nothing is rounded; `bf16`, on
        /// GPUs and on CPUs with AVX-512 BF16; `tf32`, on GPUs. Everything else is f32, the weights that updates move
        /// included, but activations on a GPU in bf16.
        compute: Compute = Compute::F32; aka "bf16",
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
        track: Option<Tracker> = None; aka "report_to",
    }
}

section! {
    /// `[model]`: exactly one of `path` and `init`.
    ModelSection {
        /// A Hugging Face folder, a GGUF file, `org/name[@revision]` of the hub, `builtin:base`, or an earlier stage (D33):
        /// `stage:NAME` hands on its best checkpoint where it has `[eval]`, what it started from included, else its
        /// last; `stage:NAME@best` and `stage:NAME@last` say which.
        path: Option<String> = None; aka "base_model" "model_name_or_path" "pretrained_model_name_or_path",
        /// Random weights of the shape of `[model.init]`.
        init: Option<InitSection> = None,
        /// Number format of the weights in checkpoints: `f32`, `bf16` or `f16`; `compute` says what is computed with.
        dtype: Dtype = Dtype::F32; only AllWeights,
    }
}

section! {
    /// `[model.init]`: a Qwen2-shaped decoder with random weights.
    InitSection {
        /// Width of the residual stream.
        hidden: usize = 0; in 1..=1 << 20,
        /// Decoder layers.
        layers: usize = 0; in 1..=1000,
        /// Query heads.
        heads: usize = 0; in 1..=1 << 20,
        /// Key/value heads.
        kv_heads: usize = 0; in 1..=1 << 20,
        /// Width of the `SwiGLU` block.
        ffn: usize = 0; in 1..=1 << 20,
        /// A `tokenizer.json`, or a folder that has one; the built-in one if absent.
        tokenizer: Option<String> = None,
        /// Base of the rotary frequencies.
        rope_theta: f64 = 1e4; in ABOVE_1,
        /// Standard deviation of the normal initialisation.
        std: f64 = 0.02; in ABOVE_0,
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
        rank: usize = 16; in 1..=4096; aka "lora_r",
        /// α of the scale s = α/r.
        alpha: f64 = 32.0; in ABOVE_0; aka "lora_alpha",
        /// The matrices that get a pair: `all-linear`, or names among `q_proj`, `k_proj`, `v_proj`, `o_proj`, `gate_proj`,
        /// `up_proj` and `down_proj`.
        targets: LoraTargets = LoraTargets::AllLinear; aka "lora_target_modules",
        /// How A is drawn; B begins with 0. `default`: uniform in ±1/√inputs, as PEFT's; `gaussian`: normal of
        /// standard deviation 1/r.
        init: LoraInit = LoraInit::Default,
        /// s = α/√r, which keeps the size of updates from falling with the rank.
        rslora: bool = false,
    }
}

section! {
    /// `[data]`.
    DataSection {
        /// A file of problems in any layout of [data.md](data.md), a folder or pattern of such files, a list of them, or
        /// `hf://datasets/org/name[@revision][/file]` of the hub; `builtin`: prompts of the built-in task; `builtin:corpus`: its documents, for a base model.
        train: DataSource = DataSource::Builtin; aka "dataset" "dataset_name" "datasets" "train_files",
        /// Names of the columns of `data.train`, where no layout fits: `{ problem = "q", answer = "gold", teacher =
        /// ["solution"] }`; `context`, `choices`, `id`, `source`, `level` and `subject` may be named too.
        columns: Option<Columns> = None; only Files,
        /// Columns of `data.train` to leave out, where one holds a part of the question and is not wanted: `["images"]`.
        drop: Vec<String> = Vec::new(); only Files,
        /// Prompts drawn from the built-in task.
        prompts: usize = 640; in 1..=1_000_000; only Task,
        /// Seed of the built-in task's prompts: its own, so that runs of different seeds share them.
        seed: u64 = 0; only Task,
        /// Families, levels and styles of `builtin:corpus`; the recommended ones if absent.
        mixture: Option<Mixture> = None; only Corpus,
        /// Levels of the built-in task, for example `["multiply:6"]`; empty = the hard ones.
        levels: Vec<String> = Vec::new(); only Task,
        /// Share of the built-in task's prompts that have a teacher trajectory.
        teacher_coverage: f64 = 0.25; in 0.0..=1.0; only Task,
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
        max_prompt_tokens: usize = 1024; in 1..=MOST_TOKENS; aka "max_prompt_length",
        /// Treatment of longer prompts: `drop` leaves them out and counts them, `error` refuses the first.
        overlong: Overlong = Overlong::Drop; only Rendered,
        /// Grader of completions, `hapo list graders`; or a custom reward: `command:PROGRAM`, `python:FILE.py:FUNCTION`,
        /// or the `http://` address of a server, see [own-reward.md](guides/own-reward.md).
        grader: String = DEFAULT_GRADER.to_owned(); only Rendered; aka "reward_funcs" "reward_model",
        /// Where an answer is read (D26): `boxed`, the last closed box; `announced`, the last statement that nothing
        /// takes back (a box, "the answer is …", a heading "Final answer", a line `#### …`); `whole`, that or else the
        /// whole text; `any`, whatever the grader finds, the last number of a text with `math`.
        extraction: Extraction = Extraction::default(); only Answers,
        /// A response without its end token (D27, D31): `wrong`, a wrong answer; `mask`, a wrong answer that is left out
        /// of the loss; `grade`, judged like any other.
        truncated: Truncated = Truncated::Wrong; only Rollouts,
        /// Hints: `solution`, the first 25, 50 and 75 % of the teacher's; `column`, those of `data.columns.hint`;
        /// `answer`, the gold answer.
        hints: HintSource = HintSource::Solution; only Hints,
        /// Share of the rollouts' verdicts that are flipped: an unreliable grader, for studies.
        verdict_noise: f64 = 0.0; in 0.0..1.0; only Verdicts,
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
        timeout: f64 = 30.0; in SECONDS; only CustomReward,
        /// Further seconds for the first answer of a process: a program loads its data.
        start_timeout: f64 = 120.0; in SECONDS; only CustomReward,
        /// Processes of a program, or requests at once to a server; 0 = one for each core of the CPU. No reward depends
        /// on it.
        workers: usize = 0; in 0..=1024; only CustomReward,
        /// A response that is not answered (a crash, the time limit, an answer that is none): `stop` ends the run and
        /// saves it; `wrong` gives it `reward.wrong` and counts it in `reward/failed`.
        on_failure: OnFailure = OnFailure::Stop; only CustomReward,
    }
}

section! {
    /// `[sampling]`.
    SamplingSection {
        /// N: members of a group.
        group_size: usize = 8; in 2..=65_535; only Rollouts; aka "num_generations" "rollout_n",
        /// M: groups of one step (`sft`: demonstrations).
        prompts_per_step: usize = 128; in 1..=1_000_000; aka "per_device_train_batch_size" "train_batch_size",
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
        max_new_tokens: usize = 8192; in 1..=MOST_TOKENS; aka "max_completion_length" "max_response_length",
        /// Most tokens of earlier rollouts that `hapo.injection = "replay"` remembers, 8 bytes each; the oldest leave first.
        remembered_tokens: usize = 4_194_304; in 1..=1 << 40; only Memory,
        /// Sequences decoded at once.
        max_sequences: usize = 256; in 1..=1_000_000; only Samples,
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
        correction_cap: f64 = 2.0; in 1.0..; only Corrected,
    }
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
        /// ε below 1.
        clip_low: f64 = 0.2; in CLIP_LOW; only Rollouts; aka "clip_ratio_low" "epsilon",
        /// ε above 1.
        clip_high: f64 = 0.2; in CLIP_HIGH; only Rollouts; aka "clip_ratio_high" "epsilon_high",
        /// Whose importance ratio is clipped: `token`, or `sequence` (GSPO).
        importance_ratio_level: ImportanceRatioLevel = ImportanceRatioLevel::Token; only Rollouts,
        /// `constant`: sequences × `max_new_tokens`; `length`: `max_new_tokens` alone; `token-mean`: response tokens of
        /// the step; `sequence-mean`: each sequence by its length, then their number.
        normaliser: NormaliserKind = NormaliserKind::Constant; only Rollouts; aka "loss_type",
        /// Weight of the entropy bonus (D17).
        entropy_coef: f64 = 0.0; in 0.0..; only Rollouts,
        /// Whose entropies it is of: `policy`, a sum over its tokens under the same normaliser; `response`, a mean over all
        /// response tokens of the step, the teacher's too (the code of LUFFY and HPT).
        entropy_over: EntropyOver = EntropyOver::Policy; only Entropy,
        /// Weight of the KL to the model of `[reference]` on the policy's tokens, under the same normaliser; 0 = none (D18).
        kl_coef: f64 = 0.0; in 0.0..; only Rollouts; aka "beta" "kl_loss_coef",
        /// Its estimator, with q = log `π_ref` − log π: `k1`, −q; `k2`, q²/2; `k3`, exp(q) − 1 − q.
        kl_estimator: KlEstimator = KlEstimator::K3; only Kl,
    }
}

/// `[advantage]`, which methods read as [`AdvantageRule`].
const ADVANTAGE: &[Key] = keys![
    /// Divide by the standard deviation.
    std; only Rollouts; aka "scale_rewards",
    /// Whose mean is subtracted: `mixed`, `sampled` or `policy-only`.
    group; only MixedGroups,
];

/// `[teacher]`, which methods read as [`TeacherRule`].
const TEACHER: &[Key] = keys![
    /// d of the operators that have one.
    d; only Teacher,
    /// λ: `one`, `one-minus-confidence`, `relative`, `advantage` or a number; 0 takes the teacher's term away.
    weight; only Teacher,
    /// F of a trace, or of a prefix, that `[hapo]` lets into the groups of a method without a term for a teacher: `luffy`,
    /// `srft`, `trapo` or `chord`. Required there.
    operator; only Operator,
    /// Which of a prompt's verified solutions may enter: `first`, `random`, anew at each step; `shortest`; `likeliest`, that
    /// of the highest mean log π by the weights of the step.
    pick; only Trace,
];

section! {
    /// `[hapo]`: when the teacher enters, and how long.
    HapoSection {
        /// A table of steps and success counts: `confidence` (Eq. 4–9), `always` or `never`. Others: `posterior`,
        /// confidence over a prompt's visits; `thompson`, a draw in the place of the confidence; `no-signal`, groups of
        /// equal rewards without a success; `budget`, `exposures` in all; `yoked`, random groups, as many in each step as
        /// in the run of `record`.
        gate: &'static GateRule = &GATES[0],
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
        /// ρ: the weight of a prompt's earlier visits at each new one; at 0 a group counts alone.
        discount: f64 = 0.5; in 0.0..=1.0; only Teacher,
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
        injection: &'static Injection = &INJECTIONS[0]; only Teacher,
    }
}

section! {
    /// `[optim]`.
    OptimSection {
        /// Peak learning rate.
        lr: f64 = 5e-6; in ABOVE_0; aka "learning_rate",
        /// `AdamW`'s β.
        betas: [f64; 2] = [0.9, 0.999]; in 0.0..1.0; aka "adam_beta1" "adam_beta2",
        /// `AdamW`'s ε.
        eps: f64 = 1e-8; in ABOVE_0; aka "adam_epsilon",
        /// Decoupled decay of every parameter.
        weight_decay: f64 = 0.01; in 0.0..=1000.0,
        /// Number format of `AdamW`'s moments: `f32`, or `bf16` with stochastic rounding, which takes 12 bytes for a
        /// parameter in all instead of 16.
        moments: NumberFormat = NumberFormat::F32,
        /// Largest global gradient norm. With `loss.normaliser = "constant"` norms are far below 1 and it seldom acts.
        max_grad_norm: f64 = 1.0; in ABOVE_0_OR_INF; aka "grad_clip",
        /// Shape of the learning rate after its warm-up: `constant`, `linear` or `cosine`.
        lr_schedule: LearningRateSchedule = LearningRateSchedule::Constant; aka "lr_scheduler_type",
        /// Share of all optimiser steps over which the rate rises from 0.
        warmup: f64 = 0.0; in 0.0..1.0; aka "warmup_ratio",
        /// Prompts (or demonstrations) of one optimiser step; 0 = all of the batch. Each is normalised by itself, which
        /// is warned about where they do not divide the batch.
        mini_batch_prompts: usize = 0; aka "ppo_mini_batch_size",
        /// Passes over a batch of rollouts.
        passes: usize = 1; in 1..=1000; aka "num_iterations" "ppo_epochs",
        /// Tokens of one forward and backward pass; changes memory, not the loss. `auto`: from 1024 to 8192, by the
        /// model's shape, so that activations take no more than weights, gradients and moments, or 1 GiB.
        micro_batch_tokens: MicroBatch = MicroBatch::Auto; in 1..=1 << 30,
        /// `none` keeps all activations, `layers` computes each layer's again in the backward pass, `auto` keeps all
        /// where they fit; results are the same.
        activation_checkpointing: ActivationCheckpointing = ActivationCheckpointing::None;
            aka "gradient_checkpointing",
    }
}

section! {
    /// `[checkpoint]`.
    CheckpointSection {
        /// Steps between checkpoints; 0 = only at the end.
        every: u64 = 0; aka "save_steps",
        /// How many of the latest to keep.
        keep: usize = 3; in 1..=1_000_000; aka "save_total_limit",
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
        window: usize = 10; in 1..=1_000_000; only Rollouts,
        /// Rise of the share of injected groups from one window to the next that is an alarm.
        beta_rise: f64 = 0.25; in ABOVE_0_OR_INF; only MixedGroups,
        /// Entropy over that of the first window that is an alarm.
        entropy_factor: f64 = 3.0; in ABOVE_0_OR_INF; only Rollouts,
        /// Gradient norm over the window's mean that is an alarm.
        grad_norm_factor: f64 = 20.0; in ABOVE_0_OR_INF; only Rollouts,
    }
}

section! {
    /// `[eval]`: problems that the run is evaluated on while it trains, rendered and graded as its own. The draws
    /// are its own too: the run's bits are those without it.
    EvalSection {
        /// A file of problems, in any layout of [data.md](data.md), or of the hub; beside `suite`, the folder of its
        /// files.
        data: Option<String> = None; aka "val_files",
        /// A suite or benchmarks of `hapo list`, or levels of the built-in task's held-out split, separated by commas.
        suite: Option<String> = None,
        /// Steps between evaluations; there is one after the last step as well.
        every: u64 = 10; in 1..=1_000_000_000; aka "eval_steps",
        /// Problems of each set at most, the first ones.
        problems: usize = 64; in 1..=1_000_000,
        /// k: completions of each problem.
        k: usize = 4; in 1..=65_535,
        /// Sampling temperature; 0 takes the most likely token, with k = 1.
        temperature: f64 = 0.6,
        /// Longest completion in tokens; `sampling.max_new_tokens` if absent.
        max_tokens: Option<usize> = None; in 1..=MOST_TOKENS,
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
