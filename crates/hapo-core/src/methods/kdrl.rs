use std::sync::Arc;

use serde::Deserialize;

use super::grpo::on_policy;
use super::{Method, MethodEntry, check};
use crate::advantage::{AdvantageRule, advantages};
use crate::credit::{Credit, Kl, KlEstimator, Moment};
use crate::group::{Member, MixedGroup};
use crate::growth::Needs;
use crate::scores::Scores;

/// GRPO's loss `+ β_t·½(log π_T − log π)²` for each token of a rollout, with `β_t = max(coef − decay·t, floor)` after t
/// steps.
///
/// KDRL: the model of `[reference]` is a teacher that pulls at the rollouts' own tokens, while rewards decide as in
/// GRPO. The squared gap (k2) has the reverse KL's gradient on the policy's own tokens ("KDRL: post-training reasoning
/// LLMs via unified knowledge distillation and reinforcement learning", <https://arxiv.org/abs/2506.02208>). Unverified:
/// no code is public, `decay` is from memory.
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "kdrl",
    summary: "GRPO with a KL term to the teacher model of [reference], whose weight falls",
    own_keys: &["coef", "floor", "decay", "failures"],
    variants: &[],
    build: |settings| {
        let own = settings.kdrl;
        let Own { coef, floor, decay, .. } = own;
        let fits = (0.0..=coef).contains(&floor) && coef > 0.0 && coef.is_finite() && decay >= 0.0;
        let range = "coef above 0, floor from 0 to coef and decay from 0";
        check("kdrl", fits, range, format!("{coef}, {floor} and {decay}"))?;
        Ok(Arc::new(Kdrl { advantage: settings.advantage, own }))
    },
};

/// `[kdrl]`; what is not written is as published.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Own {
    /// β in the first step.
    coef: f64,
    /// The smallest β.
    floor: f64,
    /// How much β falls in a step.
    decay: f64,
    /// Whether the teacher pulls at failed rollouts alone.
    failures: bool,
}

impl Default for Own {
    fn default() -> Self {
        Self { coef: 5e-3, floor: 1e-3, decay: 5e-5, failures: false }
    }
}

impl Own {
    /// β after a number of steps.
    fn coef_after(self, steps: u64) -> f64 {
        (self.coef - self.decay * steps as f64).max(self.floor)
    }
}

#[derive(Debug)]
struct Kdrl {
    advantage: AdvantageRule,
    own: Own,
}

impl Method for Kdrl {
    fn name(&self) -> &'static str {
        METHOD.name
    }

    fn needs(&self) -> Needs {
        Needs { reference: true, ..Needs::ROLLOUTS }
    }

    fn unread_keys(&self) -> &'static [&'static str] {
        &["loss.kl_coef", "loss.kl_estimator"]
    }

    fn credit(&self, group: &MixedGroup, at: Moment, _: &Scores) -> Credit {
        let coef = self.own.coef_after(at.step.0.saturating_sub(1));
        let mut credit = on_policy(group, advantages(group, self.advantage));
        for (spans, member) in credit.iter_mut().zip(group.members()) {
            let solved = matches!(member, Member::Policy(it) if it.is_success);
            let coef = if self.own.failures && solved { 0.0 } else { coef };
            for span in spans {
                span.kl = Some(Kl { coef, estimator: KlEstimator::K2 });
            }
        }
        credit
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
