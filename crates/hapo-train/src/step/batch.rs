//! The groups of a step: all that were sampled, and those of them that are trained on.

use hapo_core::MixedGroup;
use hapo_sampler::Sampled;

use crate::grading::verifier::AnswerCounts;
use crate::pack::TokenGroup;

/// Groups after the gate. Dynamic sampling puts new ones in the slots of those without signal.
#[derive(Default)]
pub(crate) struct Batch {
    /// Every group that was sampled, in order.
    sampled: Vec<MixedGroup>,
    /// What the objective makes of each, until it is taken.
    credited: Vec<TokenGroup>,
    /// Whether it gives each a term (D20).
    has_terms: Vec<bool>,
    /// Indices of those that are trained on, by slot.
    slots: Vec<usize>,
    /// Groups that lost so many rollouts that they cannot be used (D6).
    pub(crate) dropped: usize,
    pub(crate) tokens: SampledTokens,
    pub(crate) answers: AnswerCounts,
}

impl Batch {
    /// Every group that was sampled, in order.
    pub(crate) fn sampled(&self) -> &[MixedGroup] {
        &self.sampled
    }

    /// The groups that are trained on.
    pub(crate) fn trained(&self) -> impl Iterator<Item = &MixedGroup> {
        self.slots.iter().map(|it| &self.sampled[*it])
    }

    /// What the objective makes of them. They can be taken once.
    pub(crate) fn take_credited(&mut self) -> Vec<TokenGroup> {
        let mut all: Vec<_> = std::mem::take(&mut self.credited).into_iter().map(Some).collect();
        let taken = self.slots.iter().map(|it| all[*it].take().expect("a group has one slot"));
        taken.collect()
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

    /// Adds a round's groups: all of the first round, later ones in slots without signal.
    pub(crate) fn add(&mut self, groups: Vec<MixedGroup>, credited: Vec<TokenGroup>) {
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
        self.sampled.extend(groups);
        self.has_terms.extend(credited.iter().map(TokenGroup::has_terms));
        self.credited.extend(credited);
    }
}

/// What the logs want to know of sampled tokens.
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
