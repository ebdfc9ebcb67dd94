use super::Help;
use crate::credit::Ratio;
use crate::group::{Intervention, Member, MixedGroup};
use crate::growth::Needs;
use crate::rollout::StoredTrace;

/// The prompt's latest own success (D39). It has the advantage of a member of the group and the policy's term; the ratio
/// is taken to the weights at the start of the step, as RLEP's code does: what was recorded is of older weights.
pub(super) fn replay() -> Help {
    let help = Help::needing(Needs { memory: true, ..Needs::ROLLOUTS })
        .remembering(|before, step, at| before.with_successes(step, at, 1))
        .entering(|group, offer| {
            let slot = offer.slot_in(&group);
            let latest = offer.stored.first().map(|trace| (trace.clone(), slot));
            replaying(group.unchanged(Intervention::OpenWithoutTeacher), latest)
        });
    Help { ratio: Ratio::Rescored, ..help }
}

/// The group with earlier responses, each in its slot or in front.
pub(crate) fn replaying(
    mixed: MixedGroup,
    chosen: impl IntoIterator<Item = (StoredTrace, Option<usize>)>,
) -> MixedGroup {
    chosen.into_iter().fold(mixed, |mixed, (trace, slot)| {
        mixed.with(|replaced| Member::Replayed { trace, replaced }, slot)
    })
}
