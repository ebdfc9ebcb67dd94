//! The words by which a recipe chooses gate and annealing; [`Gate`](crate::Gate) and
//! [`Annealing`](crate::Annealing) carry the numbers that belong to each.

use serde::{Deserialize, Serialize};

/// When the teacher may enter a group, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GateMode {
    /// Groups of low confidence (Eq. 7).
    #[default]
    Confidence,
    /// Every group (D4).
    Always,
    /// No group.
    Never,
}

/// How the gate closes over the run, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnnealingMode {
    /// Along a sigmoid (Eq. 9).
    #[default]
    Sigmoid,
    /// It does not (D5).
    Off,
}
