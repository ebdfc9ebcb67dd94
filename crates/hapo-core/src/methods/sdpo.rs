use std::sync::Arc;

use super::{Method, MethodEntry};
use crate::credit::{Credit, Moment};
use crate::group::{Member, MixedGroup};
use crate::growth::Needs;
use crate::rollout::Context;
use crate::scores::{Scores, gap};

/// `A_t = log π(y_t | x, s) − log π_old(y_t | x)`, and `L = −min(r·A_t, clip(r, 1 − ε_low, 1 + ε_high)·A_t)` for each token
/// of a rollout whose group has another success s.
///
/// SDPO: the policy, shown another successful rollout of the same group as a solution, scores a rollout's tokens, and the
/// gap is each token's advantage. Here in the sampled form, the reverse KL on the sampled tokens, with the weights of the step as
/// the teacher ("Reinforcement learning via self-distillation", <https://arxiv.org/abs/2601.20802>; lasgroup/SDPO, whose
/// runs take the divergence over the vocabulary and an average of the weights).
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "sdpo",
    summary: "self-distillation: each token's advantage is log π behind another success less log π",
    own_keys: &["clamp"],
    variants: &[],
    build: |settings| Ok(Arc::new(Sdpo { clamp: settings.sdpo.checked("sdpo.clamp")? })),
};

#[derive(Debug)]
struct Sdpo {
    clamp: f32,
}

impl Method for Sdpo {
    fn name(&self) -> &'static str {
        METHOD.name
    }

    fn needs(&self) -> Needs {
        Needs { scores_members: true, ..Needs::ROLLOUTS }
    }

    // A ratio of a sequence has no token to be weighted.
    fn unread_keys(&self) -> &'static [&'static str] {
        &["advantage", "loss.importance_ratio_level"]
    }

    /// The first success of the group that is another rollout.
    fn scored_behind(&self, group: &MixedGroup, member: usize) -> Option<Context> {
        let own = group.members()[member].sampled()?.index;
        let mut sampled = group.members().iter().filter_map(Member::sampled);
        let success = sampled.find(|it| it.is_success && it.index != own)?;
        Some(Context::Response(success.index))
    }

    fn credit(&self, group: &MixedGroup, _: Moment, scores: &Scores) -> Credit {
        let scored = group.members().iter().zip(&scores.own);
        scored
            .map(|(member, teacher)| match teacher.log_probs.as_slice() {
                [] => Vec::new(),
                teacher => vec![gap(member.log_probs(), teacher, self.clamp)],
            })
            .collect()
    }
}
