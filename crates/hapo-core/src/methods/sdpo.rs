use super::prelude::*;

/// arXiv 2601.20802: `A_t = log π(y_t | x, s) − log π_old(y_t | x)`, and `L = −min(r·A_t, clip(r, 1 − ε_low, 1 +
/// ε_high)·A_t)` for each token of a rollout whose group has another success s.
///
/// SDPO: the policy, shown another successful rollout of the same group as a solution, scores a rollout's tokens, and
/// the gap is each token's advantage. Here in the sampled form, the reverse KL on the sampled tokens, with the weights
/// of the step as the teacher (lasgroup/SDPO, whose runs take the divergence over the vocabulary and an average of the
/// weights).
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "sdpo",
    summary: "self-distillation: each token's advantage is log π behind another success less log π",
    make: |settings| {
        let clamp = settings.sdpo.checked("sdpo.clamp")?;
        let method = Method::new(move |group, _, scores| {
            let spans = |(member, teacher): (&Member, &TokenScores)| match &teacher.log_probs[..] {
                [] => Vec::new(),
                teacher => vec![gap(member.log_probs(), teacher, clamp)],
            };
            group.members().iter().zip(&scores.own).map(spans).collect()
        });
        Ok(Method {
            help: Help::needing(Needs { scores_members: true, ..Needs::ROLLOUTS }),
            scored_behind: another_success,
            // A ratio of a sequence has no token to be weighted.
            unread_keys: &["advantage", "loss.importance_ratio_level"],
            ..method
        })
    },
    ..MethodEntry::NEW
};

/// The first success of the group that is another rollout than the member.
fn another_success(group: &MixedGroup, member: usize) -> Option<Context> {
    let own = group.members()[member].sampled()?.index;
    let mut sampled = group.members().iter().filter_map(Member::sampled);
    let success = sampled.find(|it| it.is_success && it.index != own)?;
    Some(Context::Response(success.index))
}
