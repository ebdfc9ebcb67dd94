use super::{Injection, Offer};
use crate::group::{Intervention, Member, MixedGroup, ScoredGroup};

/// The teacher's whole trajectory (Eq. 5).
#[derive(Debug)]
pub(super) struct Trace;

impl Injection for Trace {
    fn name(&self) -> &'static str {
        "trace"
    }

    fn summary(&self) -> &'static str {
        "the teacher's whole trajectory, as in the paper"
    }

    fn mix(&self, group: ScoredGroup, offer: &Offer<'_>) -> MixedGroup {
        let slot = offer.slot_in(&group);
        let Some(teacher) = offer.teachers.first() else {
            return group.unchanged(Intervention::OpenWithoutTeacher);
        };
        let teacher = |replaced| Member::Teacher { trajectory: teacher.clone(), replaced };
        group.unchanged(Intervention::Injected).with(teacher, slot)
    }
}
