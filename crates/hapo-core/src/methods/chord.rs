use std::sync::Arc;

use serde::Deserialize;

use super::{GroupPlan, Method, MethodEntry, MethodError};
use crate::credit::{Credit, Moment, PolicyAndTeacher};
use crate::gate::Gate;
use crate::group::MixedGroup;
use crate::operators;

/// `L = −(1 − μ)·min(r·A, clip(r, 1 − ε_low, 1 + ε_high)·A)` for each token of a rollout, `L = −μ·λ·(π − π²/2)` for each
/// of the teacher's, whose derivative by log π is −μ·λ·φ with φ = π(1 − π).
///
/// CHORD-φ: the teacher beside the rollouts, its tokens weighted by φ, and μ falling over the run ("On-policy RL
/// meets off-policy experts", section 3, <https://arxiv.org/abs/2508.11408>). `chord.mu` has another slope of μ.
///
/// Left out: CHORD draws its demonstrations from a batch of its own. Here they are those of the step's prompts, in a
/// fixed slot (D8); `advantage.group = "policy-only"` keeps them out of the baseline, as CHORD has it.
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "chord",
    summary: "GRPO beside imitation weighted by π(1−π), mixed by a falling μ",
    own_keys: &["mu"],
    variants: &[],
    build: |settings| {
        let refused = |problem| MethodError { key: "chord.mu", problem };
        let Own { mu } = settings.own.read().map_err(refused)?;
        if ![mu.start, mu.end].iter().all(|it| (0.0..=1.0).contains(it)) {
            let (start, end) = (mu.start, mu.end);
            return Err(refused(format!(
                "expected a start and an end in [0, 1], got {start} and {end}"
            )));
        }
        if mu.steps == 0 {
            return Err(refused("expected at least 1 step, got 0".to_owned()));
        }
        let terms = settings.with(&operators::chord::OPERATOR);
        Ok(Arc::new(Chord { terms, mu }))
    },
};

/// `[chord]`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Own {
    mu: Mu,
}

/// μ falls in a straight line.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mu {
    /// μ at the first step, in [0, 1].
    start: f64,
    /// μ from step `steps` + 1 on, in [0, 1].
    end: f64,
    /// Steps of the slope; at least 1.
    steps: u64,
}

impl Default for Mu {
    fn default() -> Self {
        Self { start: 0.9, end: 0.05, steps: 200 }
    }
}

impl Mu {
    /// μ of step `step`, counted from 1.
    fn at(self, step: u64) -> f64 {
        let progress = (step.saturating_sub(1) as f64 / self.steps as f64).min(1.0);
        self.start + (self.end - self.start) * progress
    }
}

#[derive(Debug)]
struct Chord {
    terms: PolicyAndTeacher,
    mu: Mu,
}

impl Method for Chord {
    fn name(&self) -> &'static str {
        METHOD.name
    }

    fn sampling(&self) -> GroupPlan {
        GroupPlan::TeacherSlot
    }

    fn gate(&self) -> Gate {
        Gate::Always
    }

    fn can_be_gated(&self) -> bool {
        true
    }

    fn unread_keys(&self) -> &'static [&'static str] {
        &["teacher.d"]
    }

    fn credit(&self, group: &MixedGroup, at: Moment) -> Credit {
        let mu = self.mu.at(at.step.0);
        let mut credit = self.terms.credit(group, at);
        for span in credit.iter_mut().flatten() {
            let share = if span.is_teacher() { mu } else { 1.0 - mu };
            span.term = span.term.scaled(share);
        }
        credit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mu_falls_in_a_straight_line_and_stays() {
        let mu = Mu { start: 0.9, end: 0.05, steps: 200 };
        for (step, expected) in [(1, 0.9), (101, 0.475), (201, 0.05), (5000, 0.05)] {
            assert!((mu.at(step) - expected).abs() < 1e-12, "step {step}");
        }
    }
}
