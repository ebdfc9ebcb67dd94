use std::sync::Arc;

use super::{Method, MethodEntry, Plan};
use crate::credit::{Credit, Moment, PolicyAndTeacher};
use crate::gate::{Annealing, Gate, SlotRule, Threshold};
use crate::group::{Member, MixedGroup};
use crate::operators;
use crate::scores::Scores;

/// `L = −λ·mean(log π)` over the teacher's tokens where groups fail, plus
/// `L = −min(r·A, clip(r, 1 − ε_low, 1 + ε_high)·A)` for each token of the rollouts elsewhere, by the run's normaliser.
///
/// HPT's switch: a group that fails is dropped and its prompt's demonstration imitated instead; any other group is
/// GRPO ("Towards a unified view of large language model post-training", <https://arxiv.org/abs/2509.04419>, Eq. 9
/// with γ = 0 as its default). As in its code imitation is a mean over its own tokens, and what divides the rollouts'
/// terms counts the dropped ones: it does not depend on how many groups switch.
///
/// Left out: HPT's schedule of the two coefficients, which its own experiments hold at 0 and 1. With `[hapo]` the
/// switch's threshold anneals.
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "hpt",
    summary: "a failed group is dropped and one demonstration imitated instead",
    own_keys: &[],
    variants: &[],
    build: |settings| Ok(Arc::new(Hpt(settings.with(&operators::srft::OPERATOR)))),
};

#[derive(Debug)]
struct Hpt(PolicyAndTeacher);

impl Method for Hpt {
    fn name(&self) -> &'static str {
        METHOD.name
    }

    fn plan(&self) -> Plan {
        switch(true)
    }

    fn unread_keys(&self) -> &'static [&'static str] {
        &["teacher.d"]
    }

    fn credit(&self, group: &MixedGroup, at: Moment, _: &Scores) -> Credit {
        imitating_failed(self.0, group, at)
    }
}

/// The plan of a method that imitates where all rollouts fail.
pub(super) fn switch(teacher_apart: bool) -> Plan {
    let threshold = Threshold::Derived { success_limit: 0 };
    Plan {
        gate: Gate::Confidence { threshold, annealing: Annealing::Off },
        slot: SlotRule::LowestReward,
        can_be_gated: true,
        teacher_apart,
    }
}

/// The two terms, without those of the rollouts of a group that the teacher is in.
pub(super) fn imitating_failed(terms: PolicyAndTeacher, group: &MixedGroup, at: Moment) -> Credit {
    let mut credit = terms.credit(group, at);
    if group.injected() {
        for (spans, member) in credit.iter_mut().zip(group.members()) {
            if matches!(member, Member::Policy(_)) {
                spans.clear();
            }
        }
    }
    credit
}
