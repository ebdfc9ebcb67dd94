use super::GateRule;
use crate::gate::Gate;

/// Open for no group.
pub(super) const GATE: GateRule = GateRule {
    name: "never",
    summary: "no group",
    is_table: true,
    table: |_, _| Gate::Never,
    ..GateRule::NEW
};
