use super::prelude::*;

/// arXiv 2306.13649: `A_t = log π_T − log π_old`, and `L = −min(r·A_t, clip(r, 1 − ε_low, 1 + ε_high)·A_t)` for each
/// token of a rollout.
///
/// On-policy distillation: the policy samples, the model of `[reference]` scores the same tokens, and the gap of the
/// two log-probabilities, both at the sampling temperature, is each token's advantage (D38). With one update a step the
/// ratio is 1 and the gradient is that of the sampled reverse KL to the teacher (Thinking Machines, 2025;
/// `distillation/train_on_policy.py` of tinker-cookbook, without its discount).
/// Rewards are logged and move nothing: problems need no gold answer.
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "opd",
    summary: "on-policy distillation: each token's advantage is log π of [reference] less log π",
    make: |settings| {
        let clamp = settings.opd.checked("opd.clamp")?;
        Ok(Method {
            help: Help::needing(Needs { reference: true, grades: false, ..Needs::ROLLOUTS }),
            // A ratio of a sequence has no token to be weighted.
            unread_keys: &["advantage", "loss.importance_ratio_level"],
            ..Method::new(move |group, _, scores| scores.gaps(group, clamp))
        })
    },
    ..MethodEntry::NEW
};

own! {
    /// `[opd]` and `[sdpo]`.
    Own {
        /// Bound on |`A_t`|.
        clamp: f32 = f32::INFINITY,
    }
}

impl Own {
    /// The bound, if it is one.
    pub(super) fn checked(self, key: &str) -> Result<f32, Refusal> {
        let clamp = self.clamp;
        check(key, clamp > 0.0, "a number above 0, or inf for no bound", clamp)?;
        Ok(clamp)
    }
}
