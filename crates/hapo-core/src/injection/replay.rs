use super::{Injection, Offer, with_ratio};
use crate::credit::{Credit, Ratio};
use crate::group::{Intervention, Member, MixedGroup, ScoredGroup};
use crate::growth::Needs;
use crate::memory::Memory;
use crate::rollout::Step;
use crate::scores::Scores;

/// The prompt's latest own success (D39). It has the advantage of a member of the group and the policy's term; the ratio
/// is taken to the weights at the start of the step, as RLEP's code does: what was recorded is of older weights.
#[derive(Debug)]
pub(super) struct Replay;

impl Injection for Replay {
    fn name(&self) -> &'static str {
        "replay"
    }

    fn summary(&self) -> &'static str {
        "the policy's own latest success of the same prompt"
    }

    fn needs(&self) -> Needs {
        Needs { parts: 0, memory: true, ..Needs::ROLLOUTS }
    }

    fn takes_trace(&self) -> bool {
        false
    }

    fn has_any(&self, offer: &Offer<'_>) -> bool {
        !offer.stored.is_empty()
    }

    fn mix(&self, group: ScoredGroup, offer: &Offer<'_>) -> MixedGroup {
        let slot = offer.slot_in(&group);
        let Some(trace) = offer.stored.first() else {
            return group.unchanged(Intervention::OpenWithoutTeacher);
        };
        let replayed = |replaced| Member::Replayed { trace: trace.clone(), replaced };
        group.unchanged(Intervention::Injected).with(replayed, slot)
    }

    fn credit(&self, group: &MixedGroup, credit: Credit, _: &Scores) -> Credit {
        with_ratio(group, credit, Ratio::Rescored, |member| !member.is_own())
    }

    fn remember(&self, before: Memory, step: &[MixedGroup], at: Step) -> Memory {
        before.with_successes(step, at, 1)
    }
}
