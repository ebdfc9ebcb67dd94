use super::{GateRule, Round};

/// Open for as many groups of each step as a recorded run injected into, drawn at random whatever their rewards.
///
/// A control: a run yoked to one with another gate has its exposures in the same steps, on other groups.
#[derive(Debug)]
pub(super) struct Yoked;

impl GateRule for Yoked {
    fn name(&self) -> &'static str {
        "yoked"
    }

    fn summary(&self) -> &'static str {
        "random groups, as many in each step as in a recorded run: a control"
    }

    fn reads(&self) -> &'static [&'static str] {
        &["record"]
    }

    fn chooses(&self) -> bool {
        true
    }

    fn open(&self, round: &Round<'_>) -> Vec<bool> {
        let step = round.step.0.saturating_sub(1) as usize;
        let injections = round.settings.record.get(step).copied().unwrap_or(0);
        round.lowest(injections, |it| it.can_help, |_| 0.0)
    }
}
