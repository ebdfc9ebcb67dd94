use super::{ANNEALED, GateRule, Glance};

/// Open iff θ < (`m_t` + 3/2)/(2 + N), with θ drawn from Beta(1 + S, 1 + N − S), whose mean is the confidence of Eq. 4.
///
/// The paper's title says Thompson sampling, and Algorithm 1 compares the mean: this gate draws. θ is the (S + 1)-th
/// smallest of N + 1 uniform numbers, so that no function but the comparison is evaluated.
pub(super) const GATE: GateRule = GateRule {
    name: "thompson",
    summary: "groups whose success rate, drawn from its posterior, is low",
    reads: ANNEALED,
    open: |round| {
        let Some(threshold) = round.threshold() else {
            return vec![false; round.groups.len()];
        };
        let is_open = |group: &Glance| {
            let mut rng = round.rng(group);
            (0..=group.n_eff).filter(|_| rng.uniform() < threshold).count() > group.successes
        };
        round.groups.iter().map(is_open).collect()
    },
    ..GateRule::NEW
};
