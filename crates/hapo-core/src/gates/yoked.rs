use super::GateRule;

/// Open for as many groups of each step as a recorded run injected into, drawn at random whatever their rewards.
///
/// A control: a run yoked to one with another gate has its exposures in the same steps, on other groups.
pub(super) const GATE: GateRule = GateRule {
    name: "yoked",
    summary: "random groups, as many in each step as in a recorded run: a control",
    reads: &["record"],
    chooses: true,
    open: |round| {
        let step = round.step.0.saturating_sub(1) as usize;
        let injections = round.settings.record.get(step).copied().unwrap_or(0);
        round.lowest(injections, |group| group.can_help, |_| 0.0)
    },
    ..GateRule::NEW
};
