//! The groups of a step: all that were sampled, and those of them that are trained on.

use hapo_core::{Credit, Member, MixedGroup, Scores};
use hapo_sampler::Sampled;

use super::clock::Clock;
use crate::grading::verifier::AnswerCounts;
use crate::pack::TokenGroup;

/// A group after the gate, with the method's credit and its tokens.
pub(crate) struct Credited {
    pub(crate) group: MixedGroup,
    /// By member.
    pub(crate) credit: Credit,
    pub(crate) scores: Scores,
    pub(crate) tokens: TokenGroup,
}

/// Groups after the gate. Dynamic sampling puts new ones in the slots of those without signal.
pub(crate) struct Batch {
    /// Every group that was sampled, in order.
    sampled: Vec<Credited>,
    /// True for each that the objective gives a term (D20).
    has_terms: Vec<bool>,
    /// Indices of those that are trained on, by slot.
    slots: Vec<usize>,
    /// Groups that lost too many rollouts to be used (D6).
    pub(crate) dropped: usize,
    pub(crate) tokens: SampledTokens,
    pub(crate) answers: AnswerCounts,
    pub(crate) clock: Clock,
}

impl Batch {
    /// No group yet, and the step's clock started.
    pub(crate) fn begin() -> Self {
        Self {
            sampled: Vec::new(),
            has_terms: Vec::new(),
            slots: Vec::new(),
            dropped: 0,
            tokens: SampledTokens::default(),
            answers: AnswerCounts::default(),
            clock: Clock::start(),
        }
    }

    /// Every group that was sampled, in order.
    pub(crate) fn sampled(&self) -> impl Iterator<Item = (&MixedGroup, &Credit)> {
        self.sampled.iter().map(|it| (&it.group, &it.credit))
    }

    /// The groups that are trained on.
    pub(crate) fn trained(&self) -> impl Iterator<Item = (&MixedGroup, &Credit)> {
        self.slots.iter().map(|it| (&self.sampled[*it].group, &self.sampled[*it].credit))
    }

    /// Their tokens. They can be taken once.
    pub(crate) fn take_tokens(&mut self) -> Vec<TokenGroup> {
        let sampled = &mut self.sampled;
        self.slots.iter().map(|it| std::mem::take(&mut sampled[*it].tokens)).collect()
    }

    /// How many of them cannot move the weights: the objective gives them no term (D20).
    pub(crate) fn without_signal(&self) -> usize {
        self.slots.iter().filter(|it| !self.has_terms[**it]).count()
    }

    /// How many of all that were sampled cannot move the weights.
    pub(crate) fn sampled_without_signal(&self) -> usize {
        self.has_terms.iter().filter(|it| !**it).count()
    }

    /// Groups that were sampled after the first round.
    pub(crate) fn resampled(&self) -> usize {
        self.sampled.len() - self.slots.len()
    }

    /// The groups that are trained on, by slot.
    pub(crate) fn into_trained(self) -> Vec<MixedGroup> {
        let mut sampled: Vec<_> = self.sampled.into_iter().map(|it| Some(it.group)).collect();
        self.slots.into_iter().filter_map(|it| sampled[it].take()).collect()
    }

    /// Mean of log π − log `π_ref` over the tokens that the policy's members were sampled in, but for those that are
    /// trained on behind another prompt: k1 of the KL to the second model. Is `None` without one, or without a token.
    pub(crate) fn kl_to_reference(&self, is_moved: impl Fn(&Member) -> bool) -> Option<f64> {
        let (mut sum, mut tokens) = (0.0, 0_usize);
        for it in &self.sampled {
            let scored = it.group.members().iter().zip(&it.scores.reference);
            for (member, scores) in scored.filter(|it| !is_moved(it.0)) {
                let own = member.sampled().map_or(&[][..], |it| &it.rollout.log_probs);
                let of_own = &scores.log_probs[scores.log_probs.len() - own.len()..];
                let gaps = own.iter().zip(of_own).map(|(own, other)| f64::from(*own - *other));
                sum += gaps.sum::<f64>();
                tokens += own.len();
            }
        }
        (tokens > 0).then(|| sum / tokens as f64)
    }

    /// Adds a round's groups: all of the first round, later ones in slots without signal.
    pub(crate) fn add(&mut self, groups: Vec<Credited>) {
        let fresh = self.sampled.len()..self.sampled.len() + groups.len();
        if self.sampled.is_empty() {
            self.slots = fresh.collect();
        } else {
            let known = &self.has_terms;
            let without_signal = self.slots.iter_mut().filter(|it| !known[**it]);
            for (slot, index) in without_signal.zip(fresh) {
                *slot = index;
            }
        }
        self.has_terms.extend(groups.iter().map(|it| it.tokens.has_terms()));
        self.sampled.extend(groups);
    }
}

/// Counts of sampled tokens for the log.
#[derive(Default)]
pub(crate) struct SampledTokens {
    /// Length of each response.
    pub(crate) lengths: Vec<usize>,
    /// Responses without an end token.
    pub(crate) truncated: usize,
    /// Σ H over the tokens, at temperature 1.
    pub(crate) entropy: f64,
}

impl SampledTokens {
    pub(crate) fn add(&mut self, sampled: &[Sampled]) {
        let all = || sampled.iter().flat_map(Sampled::completions);
        self.lengths.extend(all().map(|it| it.0.tokens.len()));
        self.truncated += all().filter(|it| !it.0.ended).count();
        let entropies = all().flat_map(|it| &it.1.entropies);
        self.entropy += entropies.map(|it| f64::from(*it)).sum::<f64>();
    }
}
