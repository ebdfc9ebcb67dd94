use super::prelude::*;

/// arXiv 2510.19807: GRPO's loss on a group whose first rollout is replaced, if all failed, by the one that succeeds
/// under the weakest hint.
///
/// Scaf-GRPO: after `warmup` steps a group without a success is sampled once more under each hint in turn until one
/// rollout succeeds. It is trained on behind the prompt with its hint, as in the authors' code; with `plain = true`
/// behind the plain prompt, with its ratio to the weights at the start of the step (dvlab-research/Scaf-GRPO, which
/// samples under all eight hints at once and takes the weakest that succeeds).
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "scaf-grpo",
    summary: "GRPO; a failed group gets a rollout under the weakest hint with which it succeeds",
    make: |settings| {
        let Own { warmup, plain } = settings.scaf_grpo;
        Ok(Method {
            plan: Plan { slot: SlotRule::First, ..Plan::ON_POLICY },
            help: hints(Hints { whole: false, after: Some(warmup), plain }),
            unread_keys: &["teacher", "guard.beta_rise"],
            ..Method::new(grpo(settings.advantage))
        })
    },
    ..MethodEntry::NEW
};

own! {
    /// `[scaf-grpo]`; what is not written is as published.
    Own {
        /// Steps without hints.
        warmup: u64 = 50,
        /// Whether a helped rollout is trained on behind the plain prompt.
        plain: bool = false,
    }
}
