use super::GateRule;

/// Open iff all rewards are equal and none is a success: the group's own advantages are 0.
///
/// With rewards of 0 and 1 that is S = 0; with graded rewards a failed group may rank its rollouts and is left alone.
pub(super) const GATE: GateRule = GateRule {
    name: "no-signal",
    summary: "groups whose rewards are all equal and no success",
    open: |round| {
        round.groups.iter().map(|group| group.is_constant && group.successes == 0).collect()
    },
    ..GateRule::NEW
};
