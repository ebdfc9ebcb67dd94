use super::prelude::*;

/// arXiv 2506.01347: `A_j` is λ for a success and −1 for a failure, without a baseline.
///
/// W-REINFORCE: learning from failures is kept whole, learning from successes weighted down, which keeps the policy's
/// diversity. With `positive = 1, negative = 0` it is PSR, with `positive = 0` NSR (TianHongZXY/RLVR-Decomposed).
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "w-reinforce",
    summary: "on-policy only: successes weighted by λ, failures by −1, no baseline",
    variants: &[
        Variant {
            name: "psr",
            summary: "successes alone",
            settings: &["w-reinforce.positive=1", "w-reinforce.negative=0"],
        },
        Variant {
            name: "nsr",
            summary: "failures alone",
            settings: &["w-reinforce.positive=0", "w-reinforce.negative=1"],
        },
    ],
    make: |settings| {
        let Own { positive, negative } = settings.w_reinforce;
        let is_weight = |weight: f64| weight >= 0.0 && weight.is_finite();
        let fits = is_weight(positive) && is_weight(negative) && positive + negative > 0.0;
        let got = format!("positive = {positive}, negative = {negative}");
        check("w-reinforce", fits, "weights from 0 of which one is above 0", got)?;
        let method = Method::new(move |group, _, _| {
            let of = |member: &Member| if member.is_success() { positive } else { -negative };
            on_policy(group, group.members().iter().map(of).collect())
        });
        Ok(Method { unread_keys: &["advantage"], ..method })
    },
    ..MethodEntry::NEW
};

own! {
    /// `[w-reinforce]`; what is not written is as published.
    Own {
        /// λ, the advantage of a success.
        positive: f64 = 0.1,
        /// The advantage of a failure, with its sign turned.
        negative: f64 = 1.0,
    }
}
