use super::{GateRule, Round};

/// Open for the groups of the lowest posterior mean among those with S ≤ m, as many as are left of `hapo.exposures`.
///
/// The exposures are paced: after step t of T at most ⌊exposures·t/T⌋ are spent, and what a step leaves stays for the
/// next. The posterior is that of the gate `posterior`; a draw decides among equals.
#[derive(Debug)]
pub(super) struct Budget;

impl GateRule for Budget {
    fn name(&self) -> &'static str {
        "budget"
    }

    fn summary(&self) -> &'static str {
        "a total of exposures, spent on the prompts of the lowest confidence"
    }

    fn reads(&self) -> &'static [&'static str] {
        &["success_limit", "discount", "exposures"]
    }

    fn remembers(&self) -> bool {
        true
    }

    fn chooses(&self) -> bool {
        true
    }

    fn open(&self, round: &Round<'_>) -> Vec<bool> {
        let settings = round.settings;
        let total = u128::from(settings.exposures);
        let due = total * u128::from(round.step.0) / u128::from(settings.steps.max(1));
        let left = (due.min(total) as u64).saturating_sub(round.memory.exposures);
        let limit = round.success_limit;
        round.lowest(
            left,
            |it| it.can_help && limit.is_open(it.successes),
            |it| round.posterior_mean(it),
        )
    }
}
