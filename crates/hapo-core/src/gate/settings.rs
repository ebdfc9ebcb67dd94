//! The settings of the confidence gate and what is wrong with them. The paper's gate compares two real numbers; the
//! rule that decides is an integer one (D1), made of these settings by [`Schedule`](crate::Schedule).

use serde::{Deserialize, Serialize};

use crate::{Decimal, Refusal, expected};

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
    /// The threshold falls along a sigmoid from γ0 to γ∞ = 1/(2(2 + N)) (Eq. 9). With the default m = 0 this is a hard
    /// cut at `turn_off_epoch`, whatever the steepness; the paper's smooth transition exists for m ≥ 1 only (D2).
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
pub fn check_slot_rule(gate: &Gate, rule: SlotRule) -> Result<(), Refusal> {
    if rule != SlotRule::Fixed || *gate == Gate::Always {
        return Ok(());
    }
    let what = "slot \"fixed\" leaves a slot free in every group";
    Err(expected("gate = \"always\"").about(what))
}

/// How the gate closes over the run, by name; [`Annealing`] carries its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnnealingMode {
    /// Along a sigmoid (Eq. 9).
    #[default]
    Sigmoid,
    /// It does not (D5).
    Off,
}
