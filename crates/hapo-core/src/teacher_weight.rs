//! λ, the weight of the teacher's term (Eq. 11, D15).

use serde::{Deserialize, Serialize};

use crate::group::{MixedGroup, confidence};

/// How the teacher's term is weighted while the gate is open (D15).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TeacherWeight {
    /// λ = 1, the paper's indicator.
    #[default]
    One,
    /// λ = 1 − c.
    OneMinusConfidence,
    /// λ = (γ0 − c) / (γ0 − `c_min`), kept within 0 and 1: 1 for an all-failed group, 0 at the threshold.
    Relative,
    /// A constant.
    Constant(f64),
    /// The teacher's own advantage, as LUFFY's code has it.
    Advantage,
}

/// λ(c) of an injected group (Eq. 11, D15). `initial_threshold` is γ0 of the schedule and
/// `advantage` is the teacher's own, of [`advantages`](crate::advantages); each is read by one rule only.
///
/// All rules but [`TeacherWeight::Advantage`] are monotone non-increasing in c.
pub fn teacher_weight(
    rule: TeacherWeight,
    group: &MixedGroup,
    initial_threshold: f64,
    advantage: f64,
) -> f64 {
    match rule {
        TeacherWeight::One => 1.0,
        TeacherWeight::OneMinusConfidence => 1.0 - group.confidence(),
        TeacherWeight::Relative => {
            let smallest = confidence(0, group.n_eff());
            // With few samples (D6) the whole ladder may lie above γ0; the order is kept then too.
            if group.successes() == 0 {
                1.0
            } else if initial_threshold <= smallest {
                0.0
            } else {
                ((initial_threshold - group.confidence()) / (initial_threshold - smallest)).max(0.0)
            }
        }
        TeacherWeight::Constant(weight) => weight,
        TeacherWeight::Advantage => advantage,
    }
}
