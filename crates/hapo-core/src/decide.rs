//! Synthetic success injection: whether the teacher enters a group, and in whose place.
//!
//! The gate is the integer rule S ≤ `m_t` (D1); the slot rules make the paper's argmin a total order, so
//! that one rollout is replaced and always the same one. The price is one rule more than the paper has.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use crate::group::{Intervention, Member, MixedGroup, PolicyMember, ScoredGroup};
use crate::random::{Draws, Place, Purpose};
use crate::rollout::{Step, TeacherTrajectory};
use crate::schedule::OpenUpTo;

/// Applies 𝒯 to a group if the gate is open and there is a teacher (Eq. 5, Algorithm 1): the teacher takes the place of
/// exactly one rollout, which stays known as the replaced one, or the free slot 0 of a fixed rule (D7, D8). In a group
/// of which no rollout came back the teacher is alone; such groups are dropped before (D6).
pub fn intervene(
    group: ScoredGroup,
    teacher: Option<&TeacherTrajectory>,
    open_up_to: OpenUpTo,
    slot: Slot,
) -> MixedGroup {
    let (successes, n_eff) = (group.successes(), group.n_eff());
    let ScoredGroup {
        prompt,
        requested,
        members,
    } = group;
    let (members, intervention) = if !open_up_to.is_open(successes) {
        (
            members.into_iter().map(Member::Policy).collect(),
            Intervention::GateClosed,
        )
    } else if let Some(teacher) = teacher {
        let replaced = slot_index(&members, slot, prompt.0);
        (inject(members, teacher, replaced), Intervention::Injected)
    } else {
        (
            members.into_iter().map(Member::Policy).collect(),
            Intervention::OpenWithoutTeacher,
        )
    };
    MixedGroup {
        prompt,
        requested,
        members,
        intervention,
        successes,
        n_eff,
    }
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
    /// Whose place the teacher takes.
    pub rule: SlotRule,
    /// Seed of the run.
    pub seed: u64,
    /// The training step.
    pub step: Step,
}

/// Whose place the teacher takes (D7, D8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlotRule {
    /// The lowest reward; then truncated before ended, then the longest, then the lowest index (D7).
    #[default]
    LowestReward,
    /// The first rollout (D7).
    First,
    /// A rollout drawn by (seed, step, prompt) (D7).
    Random,
    /// The longest rollout, the lowest index among equals (D7).
    Longest,
    /// Slot 0, in which no rollout was sampled: N − 1 rollouts and the teacher (D8).
    Fixed,
}

/// Index of the rollout that gives way; none for the fixed slot, or if no rollout came back.
fn slot_index(members: &[PolicyMember], slot: Slot, prompt: u64) -> Option<usize> {
    if members.is_empty() {
        return None;
    }
    match slot.rule {
        SlotRule::Fixed => None,
        SlotRule::First => Some(0),
        SlotRule::Random => {
            let place = Place {
                step: slot.step.0,
                prompt,
                rollout: 0,
                position: 0,
            };
            let drawn = Draws::new(slot.seed, Purpose::Slot, place).below(members.len() as u64);
            Some(drawn as usize)
        }
        SlotRule::Longest => {
            (0..members.len()).min_by_key(|&it| Reverse(members[it].rollout.tokens.len()))
        }
        SlotRule::LowestReward => (0..members.len()).min_by_key(|&it| {
            let PolicyMember {
                rollout, verdict, ..
            } = &members[it];
            (
                verdict.is_correct(),
                rollout.ended,
                Reverse(rollout.tokens.len()),
            )
        }),
    }
}

fn inject(
    members: Vec<PolicyMember>,
    teacher: &TeacherTrajectory,
    replaced: Option<usize>,
) -> Vec<Member> {
    let trajectory = teacher.clone();
    let mut mixed: Vec<Member> = Vec::with_capacity(members.len() + 1);
    if replaced.is_none() {
        mixed.push(Member::Teacher {
            trajectory: trajectory.clone(),
            replaced: None,
        });
    }
    for (index, member) in members.into_iter().enumerate() {
        mixed.push(if Some(index) == replaced {
            Member::Teacher {
                trajectory: trajectory.clone(),
                replaced: Some(member),
            }
        } else {
            Member::Policy(member)
        });
    }
    mixed
}
