use super::GateRule;
use crate::gate::Gate;

/// Open for every group (D4).
pub(super) const GATE: GateRule = GateRule {
    name: "always",
    summary: "every group",
    is_table: true,
    table: |_, _| Gate::Always,
    ..GateRule::NEW
};
