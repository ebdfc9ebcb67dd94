use super::prelude::*;

/// arXiv 2504.14945: `L = −min(r·A, clip(r, 1 − ε_low, 1 + ε_high)·A)` for each token of a rollout, `L = −λ·π/(π + d)`
/// for each of the teacher's.
///
/// LUFFY in the paper's fair-comparison setting: the teacher in slot 0 of every group, λ = 1, its tokens shaped by π/(π
/// + d) (D8, D14, D15).
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "luffy",
    summary: "GRPO with the teacher in every group, shaped by π/(π+d)",
    make: |settings| {
        let terms = settings.with(&operators::LUFFY);
        Ok(Method {
            plan: Plan::TEACHER_SLOT,
            ..Method::new(move |group, at, _| terms.credit(group, at))
        })
    },
    ..MethodEntry::NEW
};
