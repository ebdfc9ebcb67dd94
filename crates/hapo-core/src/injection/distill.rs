use super::{Injection, Offer};
use crate::credit::Credit;
use crate::group::{Intervention, MixedGroup, ScoredGroup};
use crate::growth::Needs;
use crate::scores::Scores;

/// Nothing enters: the rollouts of the group are distilled from the second model, as `opd` does, in the place of the
/// method's terms (D38).
#[derive(Debug)]
pub(super) struct Distill;

impl Injection for Distill {
    fn name(&self) -> &'static str {
        "distill"
    }

    fn summary(&self) -> &'static str {
        "no trajectory: the group's rollouts are distilled from [reference]"
    }

    fn needs(&self) -> Needs {
        Needs { parts: 0, reference: true, ..Needs::ROLLOUTS }
    }

    fn takes_trace(&self) -> bool {
        false
    }

    fn has_any(&self, _: &Offer<'_>) -> bool {
        true
    }

    fn mix(&self, group: ScoredGroup, _: &Offer<'_>) -> MixedGroup {
        group.unchanged(Intervention::Injected)
    }

    fn credit(&self, group: &MixedGroup, credit: Credit, scores: &Scores) -> Credit {
        if group.injected() { scores.gaps(group, f32::INFINITY) } else { credit }
    }
}
