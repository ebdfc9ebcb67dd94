use super::GateRule;

/// Open iff S ≤ `m_t`: the paper's gate (Eq. 7, D1).
#[derive(Debug)]
pub(super) struct Confidence;

/// The keys of the success limit and its annealing.
pub(super) const ANNEALED: &[&str] =
    &["success_limit", "gamma0", "annealing", "turn_off_epoch", "steepness"];

impl GateRule for Confidence {
    fn name(&self) -> &'static str {
        "confidence"
    }

    fn summary(&self) -> &'static str {
        "groups of low confidence, until the gate has annealed: the paper's"
    }

    fn reads(&self) -> &'static [&'static str] {
        ANNEALED
    }

    fn is_table(&self) -> bool {
        true
    }
}
