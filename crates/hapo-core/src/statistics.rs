//! What a step logs about its groups.

use serde::Serialize;

use crate::group::{Intervention, MixedGroup};
use crate::rollout::Verdict;

/// Counts and means over the groups of one step. Groups are classified by their **sampled** rollouts,
/// before injection.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct BatchStatistics {
    /// Groups that are trained on.
    pub groups: usize,
    /// Groups without a successful rollout (D20).
    pub all_fail: usize,
    /// Groups in which every rollout is successful (D20).
    pub all_solved: usize,
    /// Groups in which some rollouts are successful and some are not.
    pub partially_solved: usize,
    /// Groups dropped because fewer than two of their rollouts came back (D6).
    pub dropped: usize,
    /// Groups that cannot move the weights: constant rewards and not injected (D20).
    pub without_signal: usize,
    /// Groups with the teacher in them.
    pub injected: usize,
    /// Groups at an open gate without an admissible teacher (D9).
    pub open_no_teacher: usize,
    /// `β_t`: `injected` over `groups`, 0 for an empty step.
    pub beta: f64,
    /// Teacher trajectories over all trajectories trained on, 0 for an empty step.
    pub teacher_trajectories: f64,
    /// Mean reward of the trajectories trained on, the teacher's included (D11), 0 for an empty step.
    pub reward_mean: f64,
    /// Mean reward of the sampled rollouts, the replaced ones included and those with a prefix (D22) left
    /// out; 0 for an empty step.
    pub reward_policy_only: f64,
    /// Sampled rollouts that are correct.
    pub correct: usize,
    /// Sampled rollouts that are wrong.
    pub wrong: usize,
    /// Sampled rollouts without a readable answer.
    pub unparsable: usize,
}

impl BatchStatistics {
    /// The statistics of one step: its groups and the number of groups dropped on the way (D6).
    pub fn of(groups: &[MixedGroup], dropped: usize) -> Self {
        let mut it = Self { groups: groups.len(), dropped, ..Self::default() };
        let (mut trajectories, mut rewards) = (0_usize, 0.0);
        let (mut unaided, mut unaided_reward) = (0, 0.0);
        for group in groups {
            match (group.successes(), group.n_eff()) {
                (0, _) => it.all_fail += 1,
                (successes, n_eff) if successes == n_eff => it.all_solved += 1,
                _ => it.partially_solved += 1,
            }
            match group.intervention() {
                Intervention::Injected => it.injected += 1,
                Intervention::OpenWithoutTeacher => it.open_no_teacher += 1,
                Intervention::GateClosed => {}
            }
            it.without_signal += usize::from(!group.has_signal());
            for member in group.sampled() {
                if member.rollout.prefix == 0 {
                    unaided += 1;
                    unaided_reward += member.reward;
                }
                match member.verdict {
                    Verdict::Correct => it.correct += 1,
                    Verdict::Wrong => it.wrong += 1,
                    Verdict::Unparsable(_) => it.unparsable += 1,
                }
            }
            trajectories += group.members().len();
            rewards += group.rewards().iter().sum::<f64>();
        }
        it.beta = ratio(it.injected as f64, it.groups);
        it.teacher_trajectories = ratio(it.injected as f64, trajectories);
        it.reward_mean = ratio(rewards, trajectories);
        it.reward_policy_only = ratio(unaided_reward, unaided);
        it
    }

    /// The numbers by their names in logs, in their order there.
    pub fn entries(&self) -> impl Iterator<Item = (&'static str, f64)> {
        [
            ("reward/mean", self.reward_mean),
            ("reward/policy_only", self.reward_policy_only),
            ("groups/all_fail", self.all_fail as f64),
            ("groups/all_solved", self.all_solved as f64),
            ("groups/partially_solved", self.partially_solved as f64),
            ("groups/without_signal", self.without_signal as f64),
            ("groups/dropped", self.dropped as f64),
            ("gate/beta", self.beta),
            ("gate/beta_trajectories", self.teacher_trajectories),
            ("gate/open_no_teacher", self.open_no_teacher as f64),
            ("verify/correct", self.correct as f64),
            ("verify/wrong", self.wrong as f64),
            ("verify/unparsable", self.unparsable as f64),
        ]
        .into_iter()
    }
}

fn ratio(part: f64, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part / whole as f64 }
}
