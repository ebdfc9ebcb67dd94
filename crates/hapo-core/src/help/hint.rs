use super::{Help, TrainPrompt, help_succeeded, let_help_in};
use crate::{
    Context, GroupSoFar, Growth, Intervention, MixedGroup, Needs, Ratio, ScoredGroup, Step,
};

/// How rollouts under hints are sampled: under each hint of the prompt, the weakest first, until one succeeds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hints {
    /// Whether whole groups are sampled, of which the last is trained on, or single rollouts, of which a success joins
    /// the group.
    pub(crate) whole: bool,
    /// Steps after which groups without a success are helped; none where the gate decides.
    pub(crate) after: Option<u64>,
    /// Whether they are trained on behind the plain prompt, their ratio taken to the weights at the start of the step.
    pub(crate) plain: bool,
}

impl Hints {
    fn help(self, group: &ScoredGroup, step: Step, is_open: bool) -> bool {
        self.after.map_or(is_open, |after| group.all_fail() && step.0 > after)
    }
}

/// Rollouts under hints.
pub(crate) fn hints(hints: Hints) -> Help {
    let needs = Needs { parts: 1 + Context::MOST_HINTS, hints: true, ..Needs::ROLLOUTS };
    let grow = move |group: &GroupSoFar<'_>| {
        let Some(level) = group.part.checked_sub(1) else { return Growth::once(group) };
        let is_open = hints.help(group.group, group.at.step, group.is_open);
        if level >= group.hints.min(Context::MOST_HINTS) || !is_open || help_succeeded(group) {
            return Growth::Complete;
        }
        Growth::under(if hints.whole { group.size } else { 1 }, Context::Hint(level))
    };
    let help = Help::needing(needs).growing(grow).mixing(move |group, offer, is_open| {
        if hints.whole {
            last_group(group)
        } else if hints.help(&group, offer.slot.step, is_open) {
            let_help_in(group, offer)
        } else {
            group.unchanged(Intervention::GateClosed)
        }
    });
    if hints.plain {
        return Help { trained_behind: TrainPrompt::Plain, ratio: Ratio::Rescored, ..help };
    }
    help
}

/// A rollout under the weakest hint with which it succeeds. It is trained on behind the plain prompt, so that the policy
/// learns to do without, with a ratio of 1: what was recorded under the hint is no probability of the plain prompt.
pub(super) fn at_gate() -> Help {
    Help { ratio: Ratio::One, ..hints(Hints { whole: false, after: None, plain: true }) }
}

/// The last of the groups of a prompt; the others are thrown away.
fn last_group(group: ScoredGroup) -> MixedGroup {
    let last = group.members().iter().map(|member| member.rollout.part).max().unwrap_or(0);
    let intervention = match (last, group.all_successes()) {
        (0, _) => Intervention::GateClosed,
        (_, 0) => Intervention::HelpFailed,
        _ => Intervention::Injected,
    };
    group.unchanged(intervention).discarding(|member| member.rollout.part == last)
}
