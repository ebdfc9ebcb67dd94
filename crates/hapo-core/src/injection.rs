//! Synthetic success injection: whether the teacher enters a group, and in which slot.
//!
//! The gate is the integer rule S ≤ `m_t` (D1); the slot rules make the paper's argmin a total order, so
//! that one rollout is replaced and always the same one. The price is one rule more than the paper has.

use std::cmp::Reverse;

use crate::gate::{SlotRule, SuccessLimit};
use crate::group::{Intervention, Member, MixedGroup, PolicyMember, ScoredGroup};
use crate::rng::{CounterRng, RngCounter, RngStream};
use crate::rollout::{Step, TeacherTrajectory};

/// Applies 𝒯 to a group if the gate is open and there is a teacher (Eq. 5, Algorithm 1): the teacher takes the slot of
/// exactly one rollout, which stays known as the replaced one, or the free slot 0 of a fixed rule (D7, D8). In a group
/// of which no rollout came back the teacher is alone; such groups are dropped before (D6).
pub fn apply_gate(
    group: ScoredGroup,
    teacher: Option<&TeacherTrajectory>,
    success_limit: SuccessLimit,
    slot: Slot,
) -> MixedGroup {
    let (successes, n_eff) = (group.successes(), group.n_eff());
    let ScoredGroup { prompt, requested, members } = group;
    let (members, intervention) = match teacher {
        _ if !success_limit.is_open(successes) => (untouched(members), Intervention::GateClosed),
        None => (untouched(members), Intervention::OpenWithoutTeacher),
        Some(teacher) => {
            let replaced = slot_index(&members, slot, prompt.0);
            (inject(members, teacher, replaced), Intervention::Injected)
        }
    };
    MixedGroup { prompt, requested, members, intervention, successes, n_eff }
}

/// How many rollouts to sample for a prompt of a group of `group_size` trajectories: one fewer where a
/// teacher takes the fixed slot (D8). A prompt without an admissible teacher gets a full group, so that
/// every group of a step has `group_size` members.
pub fn rollouts_to_sample(
    rule: SlotRule,
    group_size: usize,
    teacher: Option<&TeacherTrajectory>,
) -> usize {
    match (rule, teacher) {
        (SlotRule::Fixed, Some(_)) => group_size.saturating_sub(1),
        _ => group_size,
    }
}

/// The slot rule, and the key of the draw that [`SlotRule::Random`] makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Which slot the teacher takes.
    pub rule: SlotRule,
    /// Seed of the run.
    pub seed: u64,
    /// The training step.
    pub step: Step,
}

/// Index of the rollout that gives way. `None` for the fixed slot, or if no rollout came back.
fn slot_index(members: &[PolicyMember], slot: Slot, prompt: u64) -> Option<usize> {
    if members.is_empty() {
        return None;
    }
    match slot.rule {
        SlotRule::Fixed => None,
        SlotRule::First => Some(0),
        SlotRule::Random => {
            let counter = RngCounter { step: slot.step.0, prompt, rollout: 0, position: 0 };
            let drawn =
                CounterRng::new(slot.seed, RngStream::Slot, counter).below(members.len() as u64);
            Some(drawn as usize)
        }
        SlotRule::Longest => {
            (0..members.len()).min_by_key(|&it| Reverse(members[it].rollout.tokens.len()))
        }
        SlotRule::LowestReward => (0..members.len()).min_by(|&a, &b| {
            let tie = |it: usize| {
                let rollout = &members[it].rollout;
                (rollout.ended, Reverse(rollout.tokens.len()))
            };
            let rewards = members[a].reward.total_cmp(&members[b].reward);
            rewards.then_with(|| tie(a).cmp(&tie(b)))
        }),
    }
}

fn untouched(members: Vec<PolicyMember>) -> Vec<Member> {
    members.into_iter().map(Member::Policy).collect()
}

fn inject(
    members: Vec<PolicyMember>,
    teacher: &TeacherTrajectory,
    replaced: Option<usize>,
) -> Vec<Member> {
    let teacher = |replaced| Member::Teacher { trajectory: teacher.clone(), replaced };
    let Some(replaced) = replaced else {
        let rollouts = members.into_iter().map(Member::Policy);
        return std::iter::once(teacher(None)).chain(rollouts).collect();
    };
    let in_slot = |(index, member)| {
        if index == replaced { teacher(Some(member)) } else { Member::Policy(member) }
    };
    members.into_iter().enumerate().map(in_slot).collect()
}
