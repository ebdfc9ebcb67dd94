use super::prelude::*;

/// arXiv 2507.10628: GRPO's loss on the last of up to four groups of a prompt: plain, then under each hint in turn
/// while all rollouts fail.
///
/// GHPO: a group without a success is sampled again as a whole with the first quarter of the solution in the prompt,
/// then with half, then with three quarters. Only the last group is trained on, behind the prompt that it was sampled
/// behind (hkgc-1/GHPO). With `plain = true` it is trained on behind the plain prompt: HINT without its affinity
/// (<https://arxiv.org/abs/2510.09388>; ViviqwerAsd/HINT).
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "ghpo",
    summary: "GRPO; a failed group is sampled again under stronger and stronger hints",
    variants: &[Variant {
        name: "hint",
        summary: "what succeeds under a hint is trained on behind the plain prompt",
        settings: &["ghpo.plain=true"],
    }],
    make: |settings| {
        let plain = settings.ghpo.plain;
        Ok(Method {
            help: hints(Hints { whole: true, after: Some(0), plain }),
            unread_keys: &["teacher", "advantage.group", "guard.beta_rise"],
            ..Method::new(grpo(settings.advantage))
        })
    },
    ..MethodEntry::NEW
};

own! {
    /// `[ghpo]`.
    Own {
        /// Whether rollouts under a hint are trained on behind the plain prompt, as in HINT.
        plain: bool = false,
    }
}
