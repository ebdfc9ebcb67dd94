//! Methods: what a group's tokens are worth, and when the teacher enters.
//!
//! A host method says which rollouts are sampled, when the teacher enters a group and which operator shapes its
//! tokens; [`Gated`] wraps any host that has a teacher and decides *when* in its place (HAPO). The price of
//! knowing no tensor is that the trainer carries log-probabilities to the host's memory and derivatives back,
//! a few bytes per token.
//!
//! A host is one file and one line in [`METHODS`].

mod chord;
mod gated;
mod grpo;
mod hpt;
mod luffy;
mod mu;
mod sft;
mod srft;
mod trapo;

use crate::{
    Annealing, Gate, GateError, Schedule, SlotRule, Step, SuccessLimit, Threshold,
    WHOLE_TEACHER_BELOW,
};

use crate::Objective;

pub use gated::Gated;
pub use mu::Mu;

/// What a training step asks of a method.
pub trait Method: Send + Sync {
    /// Name in tables: the host's, with `-hapo` when it is gated.
    fn name(&self) -> String;

    /// The largest success count at which the teacher enters a group in this step (D1).
    fn success_limit(&self, step: Step) -> SuccessLimit;

    /// The threshold `γ_t`, for logs and plots only (D1).
    fn threshold(&self, step: Step) -> f64;

    /// γ0, for the teacher weight that is relative to it (D15).
    fn initial_threshold(&self) -> f64;

    /// Which member makes room for the teacher (D7, D8).
    fn slot(&self) -> SlotRule;

    /// What the tokens are worth.
    fn objective(&self) -> &Objective;
}

/// A host method: one file, one entry in [`METHODS`]. The doc comment of its constant is its page
/// in the documentation.
#[derive(Clone, Copy, Debug)]
pub struct MethodSpec {
    /// Name in recipes.
    pub name: &'static str,
    /// One line for `hapo list methods`.
    pub summary: &'static str,
    /// What it trains on.
    pub kind: MethodKind,
    /// How its two terms are mixed, where they are not simply added.
    pub mu: Option<Mu>,
}

/// What a method trains on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MethodKind {
    /// Teacher trajectories only; nothing is sampled.
    Imitation,
    /// Rollouts only; the teacher never enters unless a gate lets it in.
    OnPolicy,
    /// Rollouts and, in every group, the teacher in a fixed slot (D8).
    Mixed {
        /// Operator on the teacher's tokens.
        operator: &'static str,
    },
    /// Rollouts, and for a group that fails the teacher alone: the rollouts are dropped.
    Switch {
        /// Operator on the teacher's tokens.
        operator: &'static str,
    },
}

impl MethodKind {
    /// Whether rollouts are sampled and a teacher may enter their groups: what a gate can wrap.
    pub fn has_teacher(self) -> bool {
        matches!(self, Self::Mixed { .. } | Self::Switch { .. })
    }

    /// The operator on the teacher's tokens. Plain imitation where the host names none.
    pub fn operator(self) -> &'static str {
        match self {
            Self::Imitation | Self::OnPolicy => "srft",
            Self::Mixed { operator } | Self::Switch { operator } => operator,
        }
    }
}

/// Every host method.
pub const METHODS: &[MethodSpec] = &[
    sft::METHOD,
    grpo::METHOD,
    luffy::METHOD,
    srft::METHOD,
    trapo::METHOD,
    hpt::METHOD,
    chord::METHOD,
];

/// The method of that name.
pub fn method(name: &str) -> Option<&'static MethodSpec> {
    METHODS.iter().find(|it| it.name == name)
}

/// A host that runs bare.
#[derive(Clone, Debug)]
pub struct Host {
    spec: &'static MethodSpec,
    objective: Objective,
    /// Always open or never: a host without a gate.
    schedule: Schedule,
}

impl Host {
    /// A host for groups of `group_size` members.
    pub fn new(
        spec: &'static MethodSpec,
        objective: Objective,
        group_size: usize,
    ) -> Result<Self, GateError> {
        let gate = match spec.kind {
            MethodKind::Mixed { .. } => Gate::Always,
            MethodKind::OnPolicy | MethodKind::Imitation => Gate::Never,
            MethodKind::Switch { .. } => Gate::Confidence {
                threshold: Threshold::Derived { success_limit: 0 },
                annealing: Annealing::Off,
            },
        };
        Ok(Self {
            spec,
            objective,
            schedule: Schedule::new(&gate, group_size, 1)?,
        })
    }
}

impl Host {
    /// The host with hints: its teacher enters when fewer than [`WHOLE_TEACHER_BELOW`] of the rollouts
    /// sampled before it succeeded (D22).
    ///
    /// # Errors
    /// Groups of fewer members than that.
    pub fn with_hints(mut self, group_size: usize) -> Result<Self, GateError> {
        let gate = Gate::Confidence {
            threshold: Threshold::Derived {
                success_limit: WHOLE_TEACHER_BELOW - 1,
            },
            annealing: Annealing::Off,
        };
        self.schedule = Schedule::new(&gate, group_size, 1)?;
        Ok(self)
    }
}

impl Method for Host {
    fn name(&self) -> String {
        self.spec.name.to_owned()
    }

    fn success_limit(&self, step: Step) -> SuccessLimit {
        self.schedule.success_limit(step)
    }

    fn threshold(&self, step: Step) -> f64 {
        self.schedule.threshold(step)
    }

    fn initial_threshold(&self) -> f64 {
        self.schedule.initial_threshold()
    }

    fn slot(&self) -> SlotRule {
        // An on-policy host has no slot for a teacher; every rollout is sampled.
        match self.spec.kind {
            MethodKind::Mixed { .. } => SlotRule::Fixed,
            MethodKind::OnPolicy | MethodKind::Imitation | MethodKind::Switch { .. } => {
                SlotRule::LowestReward
            }
        }
    }

    fn objective(&self) -> &Objective {
        &self.objective
    }
}
