use std::sync::Arc;

use serde::Deserialize;

use super::{Method, MethodEntry, check};
use crate::credit::{Credit, Moment};
use crate::group::MixedGroup;
use crate::growth::Needs;
use crate::refusal::Refusal;
use crate::scores::Scores;

/// `A_t = log π_T − log π_old`, and `L = −min(r·A_t, clip(r, 1 − ε_low, 1 + ε_high)·A_t)` for each token of a rollout.
///
/// On-policy distillation: the policy samples, the model of `[reference]` scores the same tokens, and the gap of the two
/// log-probabilities, both at the sampling temperature, is each token's advantage (D38). With one update a step the
/// ratio is 1 and the gradient is that of the sampled reverse KL to the teacher ("On-policy distillation", Thinking
/// Machines, 2025; `distillation/train_on_policy.py` of tinker-cookbook, without its discount).
///
/// `opd.clamp` bounds |`A_t`|, which the published code does not: a teacher's log-probability may be −40. Rewards are
/// logged and move nothing: problems need no gold answer.
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "opd",
    summary: "on-policy distillation: each token's advantage is log π of [reference] less log π",
    own_keys: &["clamp"],
    variants: &[],
    build: |settings| Ok(Arc::new(Opd { clamp: settings.opd.checked("opd.clamp")? })),
};

/// `[opd]` and `[sdpo]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Own {
    /// Bound on |`A_t`|.
    clamp: f32,
}

impl Own {
    /// The bound, if it is one.
    pub(super) fn checked(&self, key: &'static str) -> Result<f32, Refusal> {
        let clamp = self.clamp;
        check(key, clamp > 0.0, "a number above 0, or inf for no bound", clamp)?;
        Ok(clamp)
    }
}

impl Default for Own {
    fn default() -> Self {
        Self { clamp: f32::INFINITY }
    }
}

#[derive(Debug)]
struct Opd {
    clamp: f32,
}

impl Method for Opd {
    fn name(&self) -> &'static str {
        METHOD.name
    }

    fn needs(&self) -> Needs {
        Needs { reference: true, grades: false, ..Needs::ROLLOUTS }
    }

    // A ratio of a sequence has no token to be weighted.
    fn unread_keys(&self) -> &'static [&'static str] {
        &["advantage", "loss.importance_ratio_level"]
    }

    fn credit(&self, group: &MixedGroup, _: Moment, scores: &Scores) -> Credit {
        scores.gaps(group, self.clamp)
    }
}
