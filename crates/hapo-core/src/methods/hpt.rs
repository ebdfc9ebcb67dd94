use super::prelude::*;

/// arXiv 2509.04419: `L = −λ·mean(log π)` over the teacher's tokens where groups fail, plus `L = −min(r·A, clip(r, 1 −
/// ε_low, 1 + ε_high)·A)` for each token of the rollouts elsewhere, by the run's normaliser.
///
/// HPT's switch: a group that fails is dropped and its prompt's demonstration imitated instead; any other group is GRPO
/// (Eq. 9 with γ = 0 as its default). As in its code imitation is a mean over its own tokens, and what divides the
/// rollouts' terms counts the dropped ones: it does not depend on how many groups switch.
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "hpt",
    summary: "a failed group is dropped and one demonstration imitated instead",
    make: |settings| Ok(Method { plan: switch(true), ..imitating_failed(settings) }),
    ..MethodEntry::NEW
};

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
pub(super) fn imitating_failed(settings: &MethodSettings) -> Method {
    let terms = settings.with(&operators::SRFT);
    let method = Method::new(move |group, at, _| {
        let mut credit = terms.credit(group, at);
        for (spans, member) in credit.iter_mut().zip(group.members()) {
            if group.injected() && member.is_own() {
                spans.clear();
            }
        }
        credit
    });
    Method { unread_keys: &["teacher.d"], ..method }
}
