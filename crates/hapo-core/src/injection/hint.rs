use super::{Behind, Injection, Offer, help_succeeded, let_help_in, with_ratio};
use crate::credit::{Credit, Ratio};
use crate::group::{MixedGroup, ScoredGroup};
use crate::growth::{Growing, Growth, Needs};
use crate::rollout::Context;
use crate::scores::Scores;

/// A rollout under the weakest hint with which it succeeds: one rollout is sampled under each hint of the prompt, in
/// order, until one succeeds. It is trained on behind the plain prompt, so that the policy learns to do without, with
/// a ratio of 1: what was recorded under the hint is no probability of the plain prompt.
#[derive(Debug)]
pub(super) struct Hinted;

impl Injection for Hinted {
    fn name(&self) -> &'static str {
        "hint"
    }

    fn summary(&self) -> &'static str {
        "a rollout that succeeds under a hint, trained on behind the plain prompt"
    }

    fn needs(&self) -> Needs {
        Needs { parts: Context::MOST_HINTS, hints: true, ..Needs::ROLLOUTS }
    }

    fn grow(&self, group: &Growing<'_>) -> Growth {
        let level = group.part - 1;
        if level >= group.hints.min(Context::MOST_HINTS) || help_succeeded(group) {
            return Growth::Complete;
        }
        Growth::under(1, Context::Hint(level))
    }

    fn takes_trace(&self) -> bool {
        false
    }

    fn has_any(&self, _: &Offer<'_>) -> bool {
        true
    }

    fn mix(&self, group: ScoredGroup, offer: &Offer<'_>) -> MixedGroup {
        let_help_in(group, offer)
    }

    fn credit(&self, group: &MixedGroup, credit: Credit, _: &Scores) -> Credit {
        with_ratio(group, credit, Ratio::One, |member| !member.is_own())
    }

    fn trained_behind(&self) -> Behind {
        Behind::Plain
    }
}
