use std::sync::Arc;

use super::{Method, MethodEntry, Plan};
use crate::credit::{Credit, Moment, PolicyAndTeacher};
use crate::group::MixedGroup;
use crate::operators;
use crate::scores::Scores;

/// `L = −min(r·A, clip(r, 1 − ε_low, 1 + ε_high)·A)` for each token of a rollout, `L = −λ·π/(π + d)` for each of the
/// teacher's.
///
/// LUFFY in the paper's fair-comparison setting: the teacher in slot 0 of every group, λ = 1, its tokens shaped
/// by π/(π + d) (D8, D14, D15).
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "luffy",
    summary: "GRPO with the teacher in every group, shaped by π/(π+d)",
    own_keys: &[],
    variants: &[],
    build: |settings| Ok(Arc::new(Luffy(settings.with(&operators::luffy::OPERATOR)))),
};

#[derive(Debug)]
struct Luffy(PolicyAndTeacher);

impl Method for Luffy {
    fn name(&self) -> &'static str {
        METHOD.name
    }

    fn plan(&self) -> Plan {
        Plan::TEACHER_SLOT
    }

    fn credit(&self, group: &MixedGroup, at: Moment, _: &Scores) -> Credit {
        self.0.credit(group, at)
    }
}
