//! Who may enter a group, and in which slot. The gate is the integer rule S ≤ `m_t` (D1); the slot rules make the
//! paper's argmin a total order, so that one rollout is replaced and always the same one.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use crate::{
    CounterRng, Intervention, Member, MixedGroup, PromptId, RngStream, ScoredGroup, SlotRule, Step,
    StoredTrace, SuccessLimit, TeacherTrajectory, TokenScores,
};

/// A candidate to enter a group, and its slot.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The prompt's admitted trajectories (D9).
    pub teachers: &'a [TeacherTrajectory],
    /// The prompt's earlier successes, the latest first (D39).
    pub stored: &'a [StoredTrace],
    /// The scores of each by the step's weights, the teachers' first; empty where none are asked for, or no choice is.
    pub scores: &'a [TokenScores],
    /// The slot.
    pub slot: Slot,
}

/// Which of several verified trajectories of a prompt may enter: by seed, step and prompt, and by the step's weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TeacherPick {
    /// The first, in the order of the data.
    #[default]
    First,
    /// One drawn anew at each step.
    Random,
    /// The one of the fewest tokens, the first among equals.
    Shortest,
    /// That of the highest mean log π, the first among equals.
    Likeliest,
}

impl Candidate<'_> {
    /// The offer with the trajectory that is picked; whole with [`TeacherPick::First`], which leaves the choice to what enters.
    pub fn picking(self, pick: TeacherPick, prompt: PromptId) -> Self {
        let all = 0..self.teachers.len();
        let picked = match pick {
            TeacherPick::First => None,
            TeacherPick::Random if all.is_empty() => None,
            TeacherPick::Random => {
                Some(self.slot.draws(RngStream::Pick, prompt).below(all.len() as u64) as usize)
            }
            TeacherPick::Shortest => all.min_by_key(|it| self.teachers[*it].tokens().len()),
            TeacherPick::Likeliest => {
                let score = |it: usize| self.mean_score(it, |log_pi| log_pi);
                all.min_by(|a, b| score(*b).total_cmp(&score(*a)))
            }
        };
        let Some(index) = picked else { return self };
        Self { teachers: std::slice::from_ref(&self.teachers[index]), scores: &[], ..self }
    }

    /// Draws while the group of a prompt is mixed.
    pub(crate) fn rng(&self, prompt: PromptId) -> CounterRng {
        self.slot.draws(RngStream::Slot, prompt)
    }

    /// The mean of a function of log π over the scored tokens of a candidate, 0 where none are.
    pub(crate) fn mean_score(&self, candidate: usize, of: impl Fn(f64) -> f64) -> f64 {
        let tokens = self.scores.get(candidate).map_or(&[][..], |it| &it.log_probs);
        tokens.iter().map(|it| of(f64::from(*it))).sum::<f64>() / tokens.len().max(1) as f64
    }

    /// The group with the teacher's trajectory if `is_open` (Eq. 5).
    pub fn mix(&self, group: ScoredGroup, is_open: bool) -> MixedGroup {
        if !is_open {
            return group.unchanged(Intervention::GateClosed);
        }
        let slot = self.slot_in(&group);
        injecting(group, self.teachers.first().map(|teacher| (teacher, slot)))
    }

    /// Index of the rollout of the first part that gives way; none for a fixed slot, or where no rollout came back.
    pub fn slot_in(&self, group: &ScoredGroup) -> Option<usize> {
        let first = group.members.partition_point(|it| it.rollout.part == 0);
        let members = &group.members[..first];
        if members.is_empty() {
            return None;
        }
        let all = 0..first;
        let length = |it: usize| Reverse(members[it].rollout.tokens.len());
        match self.slot.rule {
            SlotRule::Fixed => None,
            SlotRule::First => Some(0),
            SlotRule::Random => Some(self.rng(group.prompt).below(first as u64) as usize),
            SlotRule::Longest => all.min_by_key(|it| length(*it)),
            SlotRule::LowestReward => all.min_by(|&a, &b| {
                let tie = |it: usize| (members[it].rollout.ended, length(it));
                let rewards = members[a].reward.total_cmp(&members[b].reward);
                rewards.then_with(|| tie(a).cmp(&tie(b)))
            }),
        }
    }
}

/// The group with trajectories of teachers, each in its slot or in front.
pub(crate) fn injecting<'t>(
    group: ScoredGroup,
    chosen: impl IntoIterator<Item = (&'t TeacherTrajectory, Option<usize>)>,
) -> MixedGroup {
    let mixed = group.unchanged(Intervention::OpenWithoutTeacher);
    chosen.into_iter().fold(mixed, |mixed, (teacher, slot)| {
        let trajectory = teacher.clone();
        mixed.with(|replaced| Member::Teacher { trajectory, replaced }, slot)
    })
}

/// Applies 𝒯 to a group if the gate is open and there is a teacher (Eq. 5, Algorithm 1): the teacher takes the slot of
/// exactly one rollout, which stays known as the replaced one, or the free slot 0 of a fixed rule (D7, D8). In a group
/// of which no rollout came back the teacher is alone; such groups are dropped before (D6).
pub fn apply_gate(
    group: ScoredGroup,
    teacher: Option<&TeacherTrajectory>,
    success_limit: SuccessLimit,
    slot: Slot,
) -> MixedGroup {
    let is_open = success_limit.is_open(group.successes());
    let teachers = teacher.map_or(&[][..], std::slice::from_ref);
    Candidate { teachers, stored: &[], scores: &[], slot }.mix(group, is_open)
}

/// How many rollouts to sample for a group of `group_size` trajectories: one fewer where a teacher takes the fixed slot
/// (D8). A prompt without an admissible teacher gets a full group, so that all groups have `group_size` members.
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
    /// Which slot is taken.
    pub rule: SlotRule,
    /// Seed of the run.
    pub seed: u64,
    /// The training step.
    pub step: Step,
}

impl Slot {
    fn draws(self, stream: RngStream, prompt: PromptId) -> CounterRng {
        CounterRng::of_prompt(self.seed, stream, self.step.0, prompt.0)
    }
}
