use super::{GateRule, Round};

/// Open iff all rewards are equal and none is a success: the group's own advantages are 0.
///
/// With rewards of 0 and 1 that is S = 0; with graded rewards a failed group may rank its rollouts and is left alone.
#[derive(Debug)]
pub(super) struct NoSignal;

impl GateRule for NoSignal {
    fn name(&self) -> &'static str {
        "no-signal"
    }

    fn summary(&self) -> &'static str {
        "groups whose rewards are all equal and no success"
    }

    fn open(&self, round: &Round<'_>) -> Vec<bool> {
        round.groups.iter().map(|it| it.is_constant && it.successes == 0).collect()
    }
}
