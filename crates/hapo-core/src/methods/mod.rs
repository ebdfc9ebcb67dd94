//! Methods: a gate, a help and terms each. The gate ([`Plan`], or HAPO's) decides when something enters a group, the
//! help ([`Help`]) what enters, the terms what each span of tokens is worth; [`Gated`] puts the three together. The
//! price of knowing no tensor is that the trainer carries log-probabilities to the host's memory and derivatives back,
//! a few bytes per token. A method is one file here, a row with the keys of its own table, and one line in [`METHODS`].

/// A method's own table: its keys, each with its published value.
macro_rules! own {
    ($(#[$about:meta])* Own { $($(#[$doc:meta])* $key:ident: $kind:ty = $published:expr,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub(crate) struct Own {
            $($(#[$doc])* $key: $kind,)+
        }

        impl Own {
            pub(super) const KEYS: &[&str] = &[$(stringify!($key)),+];
        }

        impl Default for Own {
            fn default() -> Self {
                Self { $($key: $published,)+ }
            }
        }
    };
}

mod ampo;
mod chord;
mod edge;
mod exgrpo;
mod gated;
mod ghpo;
mod grpo;
mod hpt;
mod kdrl;
mod luffy;
mod maxrl;
mod mfc;
mod ngrpo;
mod opd;
mod prefix_rft;
mod questa;
mod relift;
mod repo;
mod rlep;
mod scaf_grpo;
mod sdpo;
mod sft;
mod srft;
mod superrl;
mod tgopd;
mod trapo;
mod uft;
mod w_reinforce;

use std::fmt::{self, Display};
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::{
    AdvantageRule, Context, Credit, Gate, Help, Memory, MixedGroup, Needs, Operator,
    PolicyAndTeacher, Refusal, Scores, SlotRule, StepContext, TeacherPick, TeacherWeight, Terms,
    expected,
};

pub use gated::{Gated, HapoGate};
pub use sft::demonstration;

/// The names that a method's row is written with.
mod prelude {
    pub(super) use std::f64::consts::PI;

    pub(super) use serde::Deserialize;

    pub(super) use super::grpo::{grpo, on_policy};
    pub(super) use super::{check, half_cosine};
    pub(super) use crate::advantage::relative;
    pub(super) use crate::help::{Hints, hints, injecting, replaying};
    pub(super) use crate::scores::gap;
    pub(super) use crate::*;
}

/// A method: when something enters its groups, what enters, and what the tokens are worth. Grading, packing, the update
/// and the logs are shared.
#[derive(Clone)]
pub struct Method {
    /// Name in recipes and tables.
    pub name: &'static str,
    /// When and where the teacher enters.
    pub plan: Plan,
    /// What enters.
    pub help: Help,
    /// The worth of each span of tokens of each member (Eq. 2, Eq. 11).
    pub terms: Arc<Terms>,
    /// The prompt behind which the weights of the step score the tokens of a member, if they do (D38).
    pub scored_behind: fn(&MixedGroup, usize) -> Option<Context>,
    /// Keys of the recipe's shared sections, or whole sections, that mean nothing to it. Written, they are refused.
    pub unread_keys: &'static [&'static str],
    /// Whether it can learn from rewards below 0.
    pub takes_negative_rewards: bool,
    /// The other side of a method that is not of this build.
    pub foreign: Option<Arc<dyn Foreign>>,
}

/// A method of another language, where it is more than its functions.
pub trait Foreign: Send + Sync {
    /// Is told the memory before each step, of which it reads more than what may enter a group.
    fn recall(&self, memory: &Memory);

    /// Why it could not answer; the step cannot be finished then.
    fn failure(&self) -> Option<String>;

    /// The hash of its code: a run is not resumed with another.
    fn code_hash(&self) -> Option<String>;
}

impl fmt::Debug for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Method {
    /// A method of rollouts alone, with these terms; its entry names it.
    pub fn new(
        terms: impl Fn(&MixedGroup, StepContext, &Scores) -> Credit + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: "",
            plan: Plan::ON_POLICY,
            help: Help::trace(),
            terms: Arc::new(terms),
            scored_behind: |_, _| None,
            unread_keys: &[],
            takes_negative_rewards: true,
            foreign: None,
        }
    }

    /// The requirements of a run with it.
    pub fn needs(&self) -> Needs {
        self.help.needs
    }

    /// Whether responses are sampled.
    pub fn samples(&self) -> bool {
        self.needs().samples()
    }

    /// True for a method of rollouts alone, into whose groups HAPO lets something without a term of the method's.
    pub fn is_plain_host(&self) -> bool {
        self.plan == Plan::ON_POLICY && self.needs() == Needs::ROLLOUTS
    }

    /// The credit of a group without HAPO.
    pub fn credit(&self, group: &MixedGroup, at: StepContext, scores: &Scores) -> Credit {
        self.help.credit(&*self.terms, group, at, scores)
    }
}

/// Where the teacher is in the groups of a method.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// The gate without `[hapo]`.
    pub gate: Gate,
    /// The teacher's slot without `[hapo]`; in a fixed one a rollout fewer is sampled (D8).
    pub slot: SlotRule,
    /// Whether `[hapo]` may decide in place of `gate` when the teacher enters: the method gives the teacher's tokens
    /// a term, and does not decide by itself.
    pub can_be_gated: bool,
    /// Whether the teacher's term is a mean over its own tokens, apart from the rollouts' and their normaliser.
    pub teacher_apart: bool,
}

impl Plan {
    /// Rollouts alone.
    pub const ON_POLICY: Self = Self {
        gate: Gate::Never,
        slot: SlotRule::LowestReward,
        can_be_gated: false,
        teacher_apart: false,
    };

    /// The teacher in slot 0 of every group (D8), unless `[hapo]` decides.
    pub const TEACHER_SLOT: Self =
        Self { gate: Gate::Always, slot: SlotRule::Fixed, can_be_gated: true, ..Self::ON_POLICY };
}

/// The teacher's term of a method: a recipe's `[teacher]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TeacherRule {
    /// The operators' d (D14), in (0, 1).
    #[serde(deserialize_with = "probability")]
    pub d: f64,
    /// λ (D15).
    pub weight: TeacherWeight,
    /// F of a trace in the groups of a method that has no term for a teacher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<&'static Operator>,
    /// Which of several trajectories of a prompt may enter.
    pub pick: TeacherPick,
}

impl Default for TeacherRule {
    fn default() -> Self {
        Self { d: 0.1, weight: TeacherWeight::One, operator: None, pick: TeacherPick::First }
    }
}

fn probability<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let got = f64::deserialize(deserializer)?;
    if got > 0.0 && got < 1.0 {
        return Ok(got);
    }
    Err(de::Error::custom(format!("expected a probability in (0, 1), got {got}")))
}

impl MethodSettings {
    /// The two terms with these settings and the method's operator.
    fn with(&self, operator: &'static Operator) -> PolicyAndTeacher {
        let TeacherRule { weight, d, .. } = self.teacher;
        PolicyAndTeacher { advantage: self.advantage, weight, operator, d }
    }
}

/// A method of that name, before its settings are known.
#[derive(Clone, Copy, Debug)]
pub struct MethodEntry {
    /// Name in recipes.
    pub name: &'static str,
    /// One line for `hapo list methods`.
    pub summary: &'static str,
    /// The keys of the method's own table `[NAME]`.
    pub own_keys: &'static [&'static str],
    /// Published methods that are this one with other settings.
    pub variants: &'static [Variant],
    make: fn(&MethodSettings) -> Result<Method, Refusal>,
}

impl MethodEntry {
    /// What most entries leave as it is.
    const NEW: Self = Self {
        name: "",
        summary: "",
        own_keys: &[],
        variants: &[],
        make: |settings| Ok(Method::new(grpo::grpo(settings.advantage))),
    };

    /// Builds the method, or refuses a setting: [`Refusal::place`] is its key.
    pub fn build(&self, settings: &MethodSettings) -> Result<Method, Refusal> {
        Ok(Method { name: self.name, ..(self.make)(settings)? })
    }
}

/// A published method that is another one with these settings.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// Its name in the literature.
    pub name: &'static str,
    /// Its difference from others.
    pub summary: &'static str,
    /// `key=value` as a recipe writes them.
    pub settings: &'static [&'static str],
}

/// The list of methods, and with it [`MethodSettings`]: a method that has a table of its own says so in its line.
macro_rules! methods {
    ($($module:ident::$entry:ident $(with $table:ident: $settings:ty)?,)+) => {
        /// Every method.
        pub const METHODS: &[MethodEntry] =
            &[$(MethodEntry { $(own_keys: <$settings>::KEYS,)? ..$module::$entry },)+];

        /// What methods are told, by the names of a recipe: `sampling.group_size`, `[advantage]`, `[teacher]` and the
        /// tables of single methods, of which each method reads its own.
        #[derive(Clone, Debug, PartialEq, Deserialize)]
        #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
        pub struct MethodSettings {
            /// N.
            #[serde(rename = "group_size")]
            pub group_size: usize,
            /// How A is taken within a group (D12, D13).
            pub advantage: AdvantageRule,
            /// The teacher's term.
            pub teacher: TeacherRule,
            $($(pub(crate) $table: $settings,)?)+
        }

        impl Default for MethodSettings {
            fn default() -> Self {
                Self {
                    group_size: 8,
                    advantage: AdvantageRule::default(),
                    teacher: TeacherRule::default(),
                    $($($table: <$settings>::default(),)?)+
                }
            }
        }
    };
}

methods! {
    sft::METHOD,
    grpo::METHOD,
    maxrl::METHOD,
    luffy::METHOD,
    srft::METHOD with srft: srft::Own,
    trapo::METHOD with trapo: trapo::Own,
    uft::METHOD with uft: uft::Own,
    hpt::METHOD,
    chord::MU with chord_mu: chord::Own,
    chord::PHI with chord_phi: chord::Own,
    opd::METHOD with opd: opd::Own,
    ngrpo::METHOD with ngrpo: ngrpo::Own,
    w_reinforce::METHOD with w_reinforce: w_reinforce::Own,
    scaf_grpo::METHOD with scaf_grpo: scaf_grpo::Own,
    ghpo::METHOD with ghpo: ghpo::Own,
    superrl::METHOD,
    ampo::METHOD with ampo: ampo::Own,
    relift::METHOD with relift: relift::Own,
    rlep::METHOD with rlep: rlep::Own,
    repo::METHOD with repo: repo::Own,
    exgrpo::METHOD with exgrpo: exgrpo::Own,
    kdrl::METHOD with kdrl: kdrl::Own,
    prefix_rft::METHOD with prefix_rft: prefix_rft::Own,
    sdpo::METHOD with sdpo: opd::Own,
    questa::METHOD with questa: questa::Own,
    edge::METHOD with edge: edge::Own,
    tgopd::METHOD with tgopd: tgopd::Own,
    mfc::METHOD with mfc: mfc::Own,
}

/// The method of that name.
pub fn method(name: &str) -> Option<&'static MethodEntry> {
    METHODS.iter().find(|it| it.name == name)
}

/// Refuses a setting that does not fit.
fn check(key: &str, fits: bool, range: impl Display, got: impl Display) -> Result<(), Refusal> {
    if fits { Ok(()) } else { Err(expected(range).got(got).at(key)) }
}

/// A number that falls from `high` to `low` while the angle goes from 0 to π.
fn half_cosine(high: f64, low: f64, angle: f64) -> f64 {
    low + (high - low) * (0.5 * (1.0 + libm::cos(angle)))
}
