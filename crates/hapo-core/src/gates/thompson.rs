use super::{GateRule, Glance, Round};

/// Open iff θ < (`m_t` + 3/2)/(2 + N), with θ drawn from Beta(1 + S, 1 + N − S), whose mean is the confidence of Eq. 4.
///
/// The paper's title says Thompson sampling, and Algorithm 1 compares the mean: this gate draws. θ is the (S + 1)-th
/// smallest of N + 1 uniform numbers, so that no function but the comparison is evaluated.
#[derive(Debug)]
pub(super) struct Thompson;

impl GateRule for Thompson {
    fn name(&self) -> &'static str {
        "thompson"
    }

    fn summary(&self) -> &'static str {
        "groups whose success rate, drawn from its posterior, is low"
    }

    fn reads(&self) -> &'static [&'static str] {
        super::confidence::ANNEALED
    }

    fn open(&self, round: &Round<'_>) -> Vec<bool> {
        let Some(threshold) = round.threshold() else {
            return vec![false; round.groups.len()];
        };
        let is_open = |group: &Glance| {
            let mut rng = round.rng(group);
            (0..=group.n_eff).filter(|_| rng.uniform() < threshold).count() > group.successes
        };
        round.groups.iter().map(is_open).collect()
    }
}
