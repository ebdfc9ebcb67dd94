use super::GateRule;

/// Open for the groups of the lowest posterior mean among those with S ≤ m, as many as are left of `hapo.exposures`.
///
/// The exposures are paced: after step t of T at most ⌊exposures·t/T⌋ are spent, and what a step leaves stays for the
/// next. The posterior is that of the gate `posterior`; a draw decides among equals.
pub(super) const GATE: GateRule = GateRule {
    name: "budget",
    summary: "a total of exposures, spent on the prompts of the lowest confidence",
    reads: &["success_limit", "discount", "exposures"],
    remembers: true,
    chooses: true,
    open: |round| {
        let settings = round.settings;
        let total = u128::from(settings.exposures);
        let due = total * u128::from(round.step.0) / u128::from(settings.steps.max(1));
        let left = (due.min(total) as u64).saturating_sub(round.memory.exposures);
        let limit = round.success_limit;
        round.lowest(
            left,
            |group| group.can_help && limit.is_open(group.successes),
            |group| round.posterior_mean(group),
        )
    },
    ..GateRule::NEW
};
