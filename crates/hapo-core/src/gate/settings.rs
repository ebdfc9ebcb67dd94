//! The settings of the confidence gate and what is wrong with them.
//!
//! The paper's gate compares two real numbers; the rule that decides is an integer one (D1), made of these
//! settings by [`Schedule`](crate::Schedule).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::decimal::Decimal;

/// When the teacher may enter a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gate {
    /// No injection.
    Never,
    /// Injection into every group; its own mode, never m = N (D4).
    Always,
    /// Injection into groups of low confidence: c < `γ_t`, decided as S ≤ `m_t` (Eq. 7, D1).
    Confidence {
        /// Where the gate is when the run begins.
        threshold: Threshold,
        /// How it closes.
        annealing: Annealing,
    },
}

/// The threshold γ0 at the cold start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Threshold {
    /// γ0 = (m + 3/2) / (2 + N) (Eq. 8).
    Derived {
        /// m, the largest number of successes still treated as a failed group: 0 ≤ m ≤ N − 1 (D4).
        success_limit: usize,
    },
    /// γ0 as given; m = ⌈(2 + N) γ0⌉ − 2 (D3).
    Manual {
        /// γ0, above 1/(2 + N) and at most (N + 1)/(2 + N).
        gamma0: Decimal,
    },
}

/// How the gate closes over the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Annealing {
    /// It does not: `m_t` = m for every t (D5).
    Off,
    /// The threshold falls along a sigmoid from γ0 to γ∞ = 1/(2(2 + N)) (Eq. 9).
    ///
    /// With the default m = 0 this is a hard cut at `turn_off_epoch`, whatever the steepness; the paper's
    /// smooth transition exists for m ≥ 1 only (D2).
    Sigmoid {
        /// `e_off`, in epochs, above 0 and at most 10⁶. The paper never states it.
        turn_off_epoch: Decimal,
        /// k, per epoch, from 0.001 to 10⁶. The paper's is 10.
        steepness: Decimal,
    },
}

/// Which rollout gives its slot to the teacher (D7, D8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlotRule {
    /// The lowest reward; then truncated before ended, then the longest, then the lowest index (D7).
    #[default]
    LowestReward,
    /// The first rollout (D7).
    First,
    /// A rollout drawn by (seed, step, prompt) (D7).
    Random,
    /// The longest rollout, the lowest index among equals (D7).
    Longest,
    /// Slot 0, in which no rollout was sampled: N − 1 rollouts and the teacher (D8).
    Fixed,
}

/// Checks that the slot rule fits the gate: the fixed slot samples one rollout fewer before the gate could
/// look, so it needs injection into every group (D8).
pub fn check_slot_rule(gate: &Gate, rule: SlotRule) -> Result<(), GateError> {
    match (rule, gate) {
        (SlotRule::Fixed, Gate::Never | Gate::Confidence { .. }) => Err(GateError::FixedSlot),
        _ => Ok(()),
    }
}

/// A setting of the gate that is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GateError {
    /// The group size is 0 or above 65,535.
    GroupSize {
        /// The given value.
        got: usize,
    },
    /// m is not within 0 ..= N − 1 (D4).
    SuccessLimit {
        /// The given value.
        got: usize,
        /// N.
        group_size: usize,
    },
    /// γ0 ≤ 1/(2 + N): the gate would never open (D3).
    NeverOpens {
        /// The given value.
        gamma0: Decimal,
        /// N.
        group_size: usize,
    },
    /// γ0 > (N + 1)/(2 + N): the gate would be open for every group (D4).
    AlwaysOpen {
        /// The given value.
        gamma0: Decimal,
        /// N.
        group_size: usize,
    },
    /// `e_off` is 0 or above 10⁶ epochs.
    TurnOffEpoch {
        /// The given value.
        got: Decimal,
    },
    /// k is below 0.001 or above 10⁶.
    Steepness {
        /// The given value.
        got: Decimal,
    },
    /// The number of steps per epoch is 0 or above 10⁹.
    StepsPerEpoch {
        /// The given value.
        got: u64,
    },
    /// The fixed slot with a gate that may be closed (D8).
    FixedSlot,
    /// The method has no teacher's term to gate, or decides by itself when the teacher enters.
    NotGated {
        /// Its name.
        method: &'static str,
    },
}

impl fmt::Display for GateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GroupSize { got } => write!(f, "group size, expected 1 to 65535, got {got}"),
            Self::SuccessLimit { got, group_size } => write!(
                f,
                "success limit for groups of {group_size}, expected 0 to {}, got {got}; \
                 to inject into every group use gate = \"always\"",
                group_size - 1
            ),
            Self::NeverOpens { gamma0, group_size } => write!(
                f,
                "threshold gamma0 for groups of {group_size}, expected more than 1/{}, got {gamma0}, \
                 which never opens the gate",
                group_size + 2
            ),
            Self::AlwaysOpen { gamma0, group_size } => write!(
                f,
                "threshold gamma0 for groups of {group_size}, expected at most {}/{}, got {gamma0}; \
                 to inject into every group use gate = \"always\"",
                group_size + 1,
                group_size + 2
            ),
            Self::TurnOffEpoch { got } => {
                write!(f, "turn-off epoch, expected more than 0 and at most 1000000, got {got}")
            }
            Self::Steepness { got } => write!(f, "steepness, expected 0.001 to 1000000, got {got}"),
            Self::StepsPerEpoch { got } => {
                write!(f, "steps per epoch, expected 1 to 1000000000, got {got}")
            }
            Self::NotGated { method } => write!(
                f,
                "method `{method}`, expected one with a teacher's term that leaves the decision to the gate"
            ),
            Self::FixedSlot => {
                write!(
                    f,
                    "slot \"fixed\" leaves a slot free in every group, expected gate = \"always\""
                )
            }
        }
    }
}

impl std::error::Error for GateError {}

/// A setting of the gate that is accepted and probably not meant.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GateWarning {
    /// `m_1` < m: a small `e_off` erodes the first step already (D4).
    ErodedAtFirstStep {
        /// `m_1`, −1 for closed.
        at_first_step: i32,
        /// m.
        success_limit: usize,
    },
}

impl fmt::Display for GateWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ErodedAtFirstStep { at_first_step: -1, success_limit } => write!(
                f,
                "the gate is closed at the first step already, with success limit {success_limit}: \
                 the turn-off epoch is too small for it"
            ),
            Self::ErodedAtFirstStep { at_first_step, success_limit } => write!(
                f,
                "the gate is open up to {at_first_step} successes at the first step, not up to the success limit \
                 {success_limit}: the turn-off epoch is too small for it"
            ),
        }
    }
}
