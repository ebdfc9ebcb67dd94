//! Help: what enters a group, and what is sampled for it. A help is one of five: the teacher's whole trajectory
//! ([`Help::trace`]), a rollout behind a prefix of it, rollouts under hints, the prompt's own earlier successes, or
//! distillation from a second model. A method is a gate, a help and terms; HAPO's gate puts the help of [`INJECTIONS`]
//! that a recipe names in the place of the method's own. Being functions, a help prints as its requirements alone.

mod candidate;

use std::fmt;
use std::sync::Arc;

use crate::{
    Context, Credit, GroupSoFar, Growth, Intervention, Member, Memory, MixedGroup, Needs,
    PolicyMember, Prefix, Ratio, ScoredGroup, Scores, Step, StepContext, StoredTrace, Term,
};

pub(crate) use candidate::injecting;
pub use candidate::{Candidate, Slot, TeacherPick, apply_gate, rollouts_to_sample};

/// The next part of a group (D35).
pub type Grow = dyn Fn(&GroupSoFar<'_>) -> Growth + Send + Sync;
/// The group that is trained on, of everything that was sampled, and of whether its gate is open (Eq. 5).
pub type Mix = dyn Fn(ScoredGroup, &Candidate<'_>, bool) -> MixedGroup + Send + Sync;
/// The memory after a step, of the one before and of the groups that were trained on (D39).
pub type Remember = dyn Fn(Memory, &[MixedGroup], Step) -> Memory + Send + Sync;
/// The worth of each span of tokens of each member (Eq. 2, Eq. 11).
pub type Terms = dyn Fn(&MixedGroup, StepContext, &Scores) -> Credit + Send + Sync;

/// What enters the groups of a method, by what it asks the sampler for.
#[derive(Clone)]
pub struct Help {
    /// The requirements of a run, those of the group's own rollouts included.
    pub needs: Needs,
    /// The prompt behind which rollouts are trained on (D36).
    pub trained_behind: TrainPrompt,
    /// The ratio of the policy's terms on rollouts with help and on members that are not the policy's own;
    /// [`Ratio::Recorded`] leaves it to the terms.
    pub ratio: Ratio,
    /// Terms of the groups that it entered, in the place of the method's.
    pub terms: Option<Arc<Terms>>,
    /// By default all of the group at once.
    pub grow: Arc<Grow>,
    /// By default every rollout, and the teacher's trajectory if the gate is open.
    pub mix: Arc<Mix>,
    /// By default the memory stays as it was.
    pub remember: Arc<Remember>,
}

impl fmt::Debug for Help {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.needs.fmt(f)
    }
}

/// The prompt behind which a rollout is trained on (D36).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrainPrompt {
    /// That behind which it was sampled.
    Sampled,
    /// The plain one.
    Plain,
}

impl Help {
    /// The teacher's whole trajectory at an open gate, as in the paper.
    pub fn trace() -> Self {
        Self {
            needs: Needs::ROLLOUTS,
            trained_behind: TrainPrompt::Sampled,
            ratio: Ratio::Recorded,
            terms: None,
            grow: Arc::new(Growth::once),
            mix: Arc::new(|group, offer, is_open| offer.mix(group, is_open)),
            remember: Arc::new(|before, _, _| before),
        }
    }

    /// Nothing enters: the rollouts of the group are distilled from the second model, as `opd` does, in the place of
    /// the method's terms (D38).
    pub(crate) fn distill() -> Self {
        let enter = |group: ScoredGroup, _: &Candidate<'_>| group.unchanged(Intervention::Injected);
        Self {
            terms: Some(Arc::new(|group, _, scores| scores.gaps(group, f32::INFINITY))),
            ..Self::needing(Needs { reference: true, ..Needs::ROLLOUTS }).entering(enter)
        }
    }

    /// [`Help::trace`] with other requirements.
    pub fn needing(needs: Needs) -> Self {
        Self { needs, ..Self::trace() }
    }

    /// The same with parts of its own.
    pub fn growing(self, grow: impl Fn(&GroupSoFar<'_>) -> Growth + Send + Sync + 'static) -> Self {
        Self { grow: Arc::new(grow), ..self }
    }

    /// The same with another group to train on.
    pub fn mixing(
        self,
        mix: impl Fn(ScoredGroup, &Candidate<'_>, bool) -> MixedGroup + Send + Sync + 'static,
    ) -> Self {
        Self { mix: Arc::new(mix), ..self }
    }

    /// The same with another group to train on where the gate is open.
    pub fn entering(
        self,
        enter: impl Fn(ScoredGroup, &Candidate<'_>) -> MixedGroup + Send + Sync + 'static,
    ) -> Self {
        self.mixing(move |group, offer, is_open| {
            if is_open { enter(group, offer) } else { group.unchanged(Intervention::GateClosed) }
        })
    }

    /// The same with a memory (D39).
    pub fn remembering(
        self,
        remember: impl Fn(Memory, &[MixedGroup], Step) -> Memory + Send + Sync + 'static,
    ) -> Self {
        Self { remember: Arc::new(remember), ..self }
    }

    /// Whether a teacher's trajectory enters, or a part of one.
    pub fn takes_trace(&self) -> bool {
        !(self.needs.hints || self.needs.reference || self.needs.memory)
    }

    /// Whether something may enter the prompt's group.
    pub fn has_any(&self, offer: &Candidate<'_>) -> bool {
        let Needs { memory, .. } = self.needs;
        (!self.takes_trace() || !offer.teachers.is_empty()) && (!memory || !offer.stored.is_empty())
    }

    /// The credit of a group by the terms of a method.
    pub(crate) fn credit(
        &self,
        terms: &Terms,
        group: &MixedGroup,
        at: StepContext,
        scores: &Scores,
    ) -> Credit {
        let own = self.terms.as_deref().filter(|_| group.injected());
        let mut credit = own.unwrap_or(terms)(group, at, scores);
        if self.ratio == Ratio::Recorded {
            return credit;
        }
        let is_unaided = |member: &Member| {
            member.is_own() && member.sampled().is_some_and(|it| it.rollout.is_unaided())
        };
        let helped = credit.iter_mut().zip(group.members()).filter(|(_, it)| !is_unaided(it));
        for span in helped.flat_map(|(spans, _)| spans) {
            if let Term::Policy { ratio, .. } = &mut span.term {
                *ratio = self.ratio;
            }
        }
        credit
    }
}

/// A help of HAPO's gate, by its name in recipes.
#[derive(Clone, Copy, Debug)]
pub struct Injection {
    /// Name in recipes.
    pub name: &'static str,
    /// One line for lists.
    pub summary: &'static str,
    /// What enters.
    pub help: fn() -> Help,
}

/// Every help that HAPO's gate may let in; the first is the paper's.
pub const INJECTIONS: &[Injection] = &[
    Injection {
        name: "trace",
        summary: "the teacher's whole trajectory, as in the paper",
        help: Help::trace,
    },
    Injection {
        name: "prefix",
        summary: "a rollout that succeeds behind 25, 50 or 75 % of the teacher's trajectory",
        help: prefix,
    },
    Injection {
        name: "hint",
        summary: "a rollout that succeeds under a hint, trained on behind the plain prompt",
        help: hint,
    },
    Injection {
        name: "distill",
        summary: "no trajectory: the group's rollouts are distilled from [reference]",
        help: Help::distill,
    },
    Injection {
        name: "replay",
        summary: "the policy's own latest success of the same prompt",
        help: replay,
    },
];

/// The injection of that name.
pub fn injection(name: &str) -> Option<&'static Injection> {
    INJECTIONS.iter().find(|injection| injection.name == name)
}

/// Shares of the teacher's trajectory that are shown, in percent.
const PERCENT: [usize; 3] = [25, 50, 75];

/// A rollout behind the shortest prefix of the teacher's trajectory with which it succeeds: one rollout is sampled
/// behind each until one succeeds. The prefix has the method's term for the teacher, what follows that for the policy.
fn prefix() -> Help {
    let needs = Needs { parts: 1 + PERCENT.len(), prefixes: true, ..Needs::ROLLOUTS };
    let grow = |group: &GroupSoFar<'_>| {
        let Some(level) = group.part.checked_sub(1) else { return Growth::once(group) };
        match (PERCENT.get(level), group.teacher()) {
            (Some(percent), Some(teacher)) if group.is_open && !help_succeeded(group) => {
                Growth::behind(1, Prefix::Teacher(teacher.tokens().len() * percent / 100))
            }
            _ => Growth::Complete,
        }
    };
    Help::needing(needs).growing(grow).entering(let_help_in)
}

/// The prompt's latest own success (D39). It has the advantage of a member of the group and the policy's term; the ratio
/// is taken to the weights at the start of the step, as RLEP's code does: what was recorded is of older weights.
fn replay() -> Help {
    let help = Help::needing(Needs { memory: true, ..Needs::ROLLOUTS })
        .remembering(|before, step, at| before.with_successes(step, at, 1))
        .entering(|group, offer| {
            let slot = offer.slot_in(&group);
            let latest = offer.stored.first().map(|trace| (trace.clone(), slot));
            replaying(group.unchanged(Intervention::OpenWithoutTeacher), latest)
        });
    Help { ratio: Ratio::Rescored, ..help }
}

/// The group with earlier responses, each in its slot or in front.
pub(crate) fn replaying(
    mixed: MixedGroup,
    chosen: impl IntoIterator<Item = (StoredTrace, Option<usize>)>,
) -> MixedGroup {
    chosen.into_iter().fold(mixed, |mixed, (trace, slot)| {
        mixed.with(|replaced| Member::Replayed { trace, replaced }, slot)
    })
}

/// Whether a rollout with help has succeeded.
fn help_succeeded(group: &GroupSoFar<'_>) -> bool {
    group.members().iter().any(|member| member.rollout.part > 0 && member.is_success)
}

/// The group with its first success among the rollouts with help; the others of them are thrown away (D35).
fn let_help_in(mut group: ScoredGroup, offer: &Candidate<'_>) -> MixedGroup {
    let slot = offer.slot_in(&group);
    let is_helped = |member: &PolicyMember| member.rollout.part > 0;
    let intervention = if group.members.iter().any(is_helped) {
        Intervention::HelpFailed
    } else {
        Intervention::OpenWithoutTeacher
    };
    let success = group.members.iter().position(|member| is_helped(member) && member.is_success);
    let success = success.map(|index| group.members.remove(index));
    let mixed = group.unchanged(intervention).discarding(|member| !is_helped(member));
    let Some(member) = success else { return mixed };
    mixed.with(|replaced| Member::Helped { member, replaced }, slot)
}

/// How rollouts under hints are sampled: under each hint of the prompt, the weakest first, until one succeeds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hints {
    /// Whether whole groups are sampled, of which the last is trained on, or single rollouts until one joins the group.
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
fn hint() -> Help {
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
