//! The word by which a recipe chooses the annealing; [`Annealing`](crate::Annealing) carries its numbers.

use serde::{Deserialize, Serialize};

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
