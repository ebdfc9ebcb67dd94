use super::prelude::*;

/// arXiv 2506.02208: GRPO's loss `+ β_t·½(log π_T − log π)²` for each token of a rollout, with `β_t = max(coef −
/// decay·t, floor)` after t steps.
///
/// KDRL: the model of `[reference]` is a teacher that pulls at the rollouts' own tokens, while rewards decide as in
/// GRPO. The squared gap (k2) has the reverse KL's gradient on the policy's own tokens. Unverified: no code is public,
/// `decay` is from memory.
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "kdrl",
    summary: "GRPO with a KL term to the teacher model of [reference], whose weight falls",
    make: |settings| {
        let (rule, own) = (settings.advantage, settings.kdrl);
        let Own { coef, floor, decay, on } = own;
        let fits = (0.0..=coef).contains(&floor) && coef > 0.0 && coef.is_finite() && decay >= 0.0;
        let range = "coef above 0, floor from 0 to coef and decay from 0";
        check("kdrl", fits, range, format!("{coef}, {floor} and {decay}"))?;
        let method = Method::new(move |group, at, _| {
            let coef = own.coef_after(at.step.0.saturating_sub(1));
            let mut credit = on_policy(group, advantages(group, rule));
            for (spans, member) in credit.iter_mut().zip(group.members()) {
                let is_pulled = match on {
                    On::All => true,
                    On::Failures => !matches!(member, Member::Policy(it) if it.is_success),
                    On::FailedGroups => group.successes() == 0,
                };
                let coef = if is_pulled { coef } else { 0.0 };
                for span in spans {
                    span.kl = Some(Kl { coef, estimator: KlEstimator::K2 });
                }
            }
            credit
        });
        Ok(Method {
            help: Help::needing(Needs { reference: true, ..Needs::ROLLOUTS }),
            unread_keys: &["loss.kl_coef", "loss.kl_estimator"],
            ..method
        })
    },
    ..MethodEntry::NEW
};

own! {
    /// `[kdrl]`; what is not written is as published.
    Own {
        /// β in the first step.
        coef: f64 = 5e-3,
        /// The smallest β.
        floor: f64 = 1e-3,
        /// How much β falls in a step.
        decay: f64 = 5e-5,
        /// The rollouts that the teacher pulls at.
        on: On = On::All,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum On {
    All,
    /// KDRL's reward-guided masking.
    Failures,
    /// Those of groups that fail entirely, as in HDPO (arXiv 2609.04108 compares them).
    FailedGroups,
}

impl Own {
    /// β after a number of steps.
    fn coef_after(self, steps: u64) -> f64 {
        (self.coef - self.decay * steps as f64).max(self.floor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the formula: 0.005 falls by 5e-5 a step to 0.001 after 80 steps.
    #[test]
    fn the_weight_falls_to_its_floor() {
        let own = Own::default();
        for (steps, expected) in [(0, 5e-3), (40, 3e-3), (80, 1e-3), (200, 1e-3)] {
            assert!((own.coef_after(steps) - expected).abs() < 1e-15, "after {steps} steps");
        }
    }

    /// By hand: log π = −1 and log `π_T` = −3 have q = −2, k2 = 2 and a slope of 2 by log π.
    #[test]
    fn the_teacher_pulls_down_what_it_finds_unlikely() {
        assert_eq!(KlEstimator::K2.at(-2.0), (2.0, 2.0));
    }
}
