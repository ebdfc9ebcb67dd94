use std::sync::Arc;

use serde::Deserialize;

use super::grpo::on_policy;
use super::{Method, MethodEntry, Variant, check};
use crate::credit::{Credit, Moment};
use crate::group::{Member, MixedGroup};
use crate::scores::Scores;

/// `A_j` is λ for a success and −1 for a failure, without a baseline.
///
/// W-REINFORCE: learning from failures is kept whole, learning from successes weighted down, which keeps the policy's
/// diversity. With `positive = 1, negative = 0` it is PSR, with `positive = 0` NSR ("The surprising effectiveness of
/// negative reinforcement in LLM reasoning", <https://arxiv.org/abs/2506.01347>; TianHongZXY/RLVR-Decomposed).
///
/// A departure: the authors' code takes the rollouts that PSR and NSR do not train on out of the batch, here they stay
/// in the divisor.
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "w-reinforce",
    summary: "on-policy only: successes weighted by λ, failures by −1, no baseline",
    own_keys: &["positive", "negative"],
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
    build: |settings| {
        let Own { positive, negative } = settings.w_reinforce;
        let is_weight = |it: f64| it >= 0.0 && it.is_finite();
        let fits = is_weight(positive) && is_weight(negative) && positive + negative > 0.0;
        let got = format!("positive = {positive}, negative = {negative}");
        check("w-reinforce", fits, "weights from 0 of which one is above 0", got)?;
        Ok(Arc::new(WReinforce { positive, negative }))
    },
};

/// `[w-reinforce]`; what is not written is as published.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Own {
    /// λ, the advantage of a success.
    positive: f64,
    /// The advantage of a failure, with its sign turned.
    negative: f64,
}

impl Default for Own {
    fn default() -> Self {
        Self { positive: 0.1, negative: 1.0 }
    }
}

#[derive(Debug)]
struct WReinforce {
    positive: f64,
    negative: f64,
}

impl Method for WReinforce {
    fn name(&self) -> &'static str {
        METHOD.name
    }

    fn unread_keys(&self) -> &'static [&'static str] {
        &["advantage"]
    }

    fn credit(&self, group: &MixedGroup, _: Moment, _: &Scores) -> Credit {
        let advantage = |it: &Member| if it.is_success() { self.positive } else { -self.negative };
        on_policy(group, group.members().iter().map(advantage).collect())
    }
}
