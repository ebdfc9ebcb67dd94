use super::GateRule;
use crate::gate::{Annealing, Gate, Threshold};

/// Open for every group (D4).
#[derive(Debug)]
pub(super) struct Always;

impl GateRule for Always {
    fn name(&self) -> &'static str {
        "always"
    }

    fn summary(&self) -> &'static str {
        "every group"
    }

    fn is_table(&self) -> bool {
        true
    }

    fn table(&self, _: Threshold, _: Annealing) -> Gate {
        Gate::Always
    }
}
