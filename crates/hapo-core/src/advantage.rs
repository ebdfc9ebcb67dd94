//! Group-relative advantages (Eq. 2). By default over the mixed group and without division by the standard deviation
//! (D12, D13). The price of the other choices is stated at each of them.

use serde::{Deserialize, Serialize};

use crate::group::{Member, MixedGroup};

/// Advantages `A_j` of the members, in order (Eq. 2, D12, D13): the reward less the mean of the chosen group, and if
/// `std` is set divided by its Bessel-corrected standard deviation + 1e-6. All are zero if `std` is set and the chosen
/// group is constant. The teacher's own advantage is measured against the same mean and deviation, also where it is not
/// part of them; only [`TeacherWeight::Advantage`](crate::TeacherWeight::Advantage) reads it.
pub fn advantages(group: &MixedGroup, rule: AdvantageRule) -> Vec<f64> {
    match rule.group {
        AdvantageGroup::Mixed => advantages_among(group, rule.std, |_| true),
        AdvantageGroup::PolicyOnly => advantages_among(group, rule.std, Member::is_own),
        AdvantageGroup::Sampled => {
            let reference: Vec<f64> = group.sampled().map(|it| it.reward).collect();
            relative(&group.rewards(), &reference, rule.std)
        }
    }
}

/// Advantages of all members against the mean (and deviation) of those that `among` picks, as of one source (D37).
pub fn advantages_among(
    group: &MixedGroup,
    std: bool,
    among: impl Fn(&Member) -> bool,
) -> Vec<f64> {
    let picked = group.members().iter().filter(|it| among(it));
    let reference: Vec<f64> = picked.map(Member::reward).collect();
    relative(&group.rewards(), &reference, std)
}

pub(crate) fn relative(rewards: &[f64], reference: &[f64], std: bool) -> Vec<f64> {
    // A group in which the teacher is alone has nothing to be compared with.
    if reference.is_empty() || std && is_constant(reference) {
        return vec![0.0; rewards.len()];
    }
    let mean = mean(reference);
    let scale = if std { deviation(reference) + 1e-6 } else { 1.0 };
    rewards.iter().map(|it| (it - mean) / scale).collect()
}

/// The mean, 0 of nothing. That of equal numbers is the number itself: their sum may round, and a group that got one
/// fractional reward would have something to learn from.
pub fn mean(rewards: &[f64]) -> f64 {
    if is_constant(rewards) {
        return rewards.first().copied().unwrap_or(0.0);
    }
    rewards.iter().sum::<f64>() / rewards.len() as f64
}

/// The Bessel-corrected standard deviation, 0 of equal numbers.
pub fn deviation(rewards: &[f64]) -> f64 {
    if is_constant(rewards) {
        return 0.0;
    }
    let mean = mean(rewards);
    let squares = rewards.iter().map(|it| (it - mean) * (it - mean)).sum::<f64>();
    (squares / (rewards.len() as f64 - 1.0)).sqrt()
}

fn is_constant(rewards: &[f64]) -> bool {
    rewards.windows(2).all(|pair| pair[0] == pair[1])
}

/// How advantages are computed. The default is HAPO's: the mixed group, no division (D12, D13).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdvantageRule {
    /// The trajectories whose mean (and deviation) is the reference (D13).
    pub group: AdvantageGroup,
    /// Divide by the standard deviation (D12).
    pub std: bool,
}

/// The trajectories whose mean is the reference (D13). The three agree on a group without teacher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdvantageGroup {
    /// The group after injection, the teacher included: with N = 8 and S = 0 the seven failures get −1/8.
    #[default]
    Mixed,
    /// The sampled rollouts, the replaced one included. With m = 0 an injected group has advantage zero
    /// on all its rollouts, which is the decomposition of the paper's appendix.
    Sampled,
    /// The policy's rollouts that are left after injection.
    PolicyOnly,
}
