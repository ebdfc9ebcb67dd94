use super::prelude::*;

/// arXiv 2609.02998: `A_t = log π_T − log π_old` for each token of the rollouts of a trusted prompt, `A_j = r_j −
/// mean(r)` for those of any other, and PPO's clip on both.
///
/// TGOPD: the teacher's own answers say where it can be trusted, once, before the run; the two advantages are never
/// blended. Here those answers are the prompt's traces, and it is trusted where at least `traces` are verified.
/// Unverified: from a summary, β = 1. HAPO asks whether the policy fails, this gate whether the teacher succeeds.
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "tgopd",
    summary: "on-policy distillation where the teacher's own answers are right, GRPO elsewhere",
    make: |settings| {
        let traces = settings.tgopd.traces;
        check("tgopd.traces", traces > 0, "at least 1", traces)?;
        let needs = Needs { reference: true, traces: usize::MAX, ..Needs::ROLLOUTS };
        let help = Help { needs, ..Help::distill() }.mixing(move |group, offer, _| {
            let is_trusted = offer.teachers.len() >= traces;
            let closed = Intervention::GateClosed;
            group.unchanged(if is_trusted { Intervention::Injected } else { closed })
        });
        Ok(Method {
            plan: Plan { gate: Gate::Always, ..Plan::ON_POLICY },
            help,
            // A ratio of a sequence has no token to be weighted.
            unread_keys: &[
                "teacher",
                "advantage",
                "guard.beta_rise",
                "loss.importance_ratio_level",
            ],
            ..Method::new(grpo(settings.advantage))
        })
    },
    ..MethodEntry::NEW
};

own! {
    /// `[tgopd]`.
    Own {
        /// Verified traces from which on a prompt is trusted: 2 of the 3 answers of the paper.
        traces: usize = 2,
    }
}
