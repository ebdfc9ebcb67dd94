use super::{ANNEALED, GateRule};

/// Open iff S ≤ `m_t`: the paper's gate (Eq. 7, D1).
pub(super) const GATE: GateRule = GateRule {
    name: "confidence",
    summary: "groups of low confidence, until the gate has annealed: the paper's",
    reads: ANNEALED,
    is_table: true,
    ..GateRule::NEW
};
