use super::GateRule;
use crate::gate::{Annealing, Gate, Threshold};

/// Open for no group.
#[derive(Debug)]
pub(super) struct Never;

impl GateRule for Never {
    fn name(&self) -> &'static str {
        "never"
    }

    fn summary(&self) -> &'static str {
        "no group"
    }

    fn is_table(&self) -> bool {
        true
    }

    fn table(&self, _: Threshold, _: Annealing) -> Gate {
        Gate::Never
    }
}
