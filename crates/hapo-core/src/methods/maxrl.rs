use super::prelude::*;

/// arXiv 2602.02710: `A_j = (r_j − mean(r)) / mean(r)`, 0 where the mean is 0.
///
/// `MaxRL`: GRPO with the mean as its scale, so that a prompt that is solved once in N counts N times as much as one
/// that is always nearly solved: the gradient of the likelihood of success, log of the pass rate, instead of the pass
/// rate itself.
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "maxrl",
    summary: "on-policy only: advantages over the group's mean reward, (r − mean)/mean",
    make: |settings| {
        if settings.advantage != AdvantageRule::default() {
            let what = "`maxrl` has an advantage of its own";
            return Err(expected("no key of [advantage]").about(what).at("advantage"));
        }
        let method = Method::new(|group, _, _| on_policy(group, advantages(&group.rewards())));
        Ok(Method { takes_negative_rewards: false, ..method })
    },
    ..MethodEntry::NEW
};

fn advantages(rewards: &[f64]) -> Vec<f64> {
    let mean = mean(rewards);
    let scaled = |reward: &f64| {
        // A group without reward has nothing to divide by and nothing to learn from.
        if mean == 0.0 { 0.0 } else { (reward - mean) / mean }
    };
    rewards.iter().map(scaled).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: one success of eight has mean 1/8 and A = 7, the failures −1; three of four have mean 3/4 and
    /// A = 1/3, the failure −1.
    #[test]
    fn advantages_are_those_of_the_formula() {
        assert_eq!(
            advantages(&[0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
            [-1.0, 7.0, -1.0, -1.0, -1.0, -1.0, -1.0, -1.0]
        );
        let third = (1.0 - 0.75) / 0.75;
        assert_eq!(advantages(&[1.0, 1.0, 0.0, 1.0]), [third, third, -1.0, third]);
        assert_eq!(advantages(&[0.0, 0.0, 0.0]), [0.0, 0.0, 0.0]);
        assert_eq!(advantages(&[1.0, 1.0]), [0.0, 0.0]);
        assert_eq!(advantages(&[0.1; 7]), [0.0; 7]);
        assert_eq!(advantages(&[0.5, 0.25]), [1.0 / 3.0, -1.0 / 3.0]);
        assert_eq!(advantages(&[]), [0.0; 0]);
    }
}
