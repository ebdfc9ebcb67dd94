use std::f64::consts::PI;
use std::sync::Arc;

use serde::Deserialize;

use super::{Method, MethodEntry, MethodSettings, Plan, check};
use crate::advantage::AdvantageGroup;
use crate::credit::{Credit, Moment, PolicyAndTeacher};
use crate::group::MixedGroup;
use crate::operators::{self, Operator};
use crate::refusal::Refusal;
use crate::scores::Scores;

/// `L = (1 − μ)·mean(−min(r·A, clip(r, 1 − ε_low, 1 + ε_high)·A)) − μ·λ·mean(log π)`: the first mean is over the
/// rollouts' tokens, the second over the teacher's.
///
/// CHORD-μ: GRPO and imitation side by side, μ falling from a peak along half a cosine ("On-policy RL meets
/// off-policy experts", section 3, <https://arxiv.org/abs/2508.11408>; `MIXCHORDPolicyLossFn` and `mix_chord.yaml`
/// of Trinity-RFT). The rollouts' advantages know nothing of the teacher's reward.
///
/// Left out: CHORD draws its demonstrations from a batch of its own. Here they are those of the step's prompts, in a
/// fixed slot (D8).
pub(super) const MU: MethodEntry = MethodEntry {
    name: "chord-mu",
    summary: "(1 − μ)·GRPO + μ·imitation, each by its own mean, μ falling from 0.9 to 0.05",
    own_keys: Schedule::KEYS,
    variants: &[],
    build: |settings| {
        let published = Schedule { peak: 0.9, valley: 0.05, warmup: 0, decay: 200 };
        let mu = settings.chord_mu.over(published);
        Chord::build("chord-mu", settings, &operators::srft::OPERATOR, mu)
    },
};

/// `L = (1 − μ)·mean(−min(r·A, clip(r, 1 − ε_low, 1 + ε_high)·A)) − μ·λ·mean(π − π²/2)`, each mean over its own tokens;
/// the derivative of π − π²/2 by log π is φ = π(1 − π).
///
/// CHORD-φ: CHORD-μ with a constant μ of 0.1 and the teacher's tokens weighted by φ.
pub(super) const PHI: MethodEntry = MethodEntry {
    name: "chord-phi",
    summary: "0.9·GRPO + 0.1·imitation weighted by π(1−π), each by its own mean",
    own_keys: Schedule::KEYS,
    variants: &[],
    build: |settings| {
        let published = Schedule { peak: 0.1, valley: 0.1, warmup: 0, decay: 0 };
        let mu = settings.chord_phi.over(published);
        Chord::build("chord-phi", settings, &operators::chord::OPERATOR, mu)
    },
};

/// `[chord-mu]` and `[chord-phi]`; what is not written is as published.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Own {
    peak: Option<f64>,
    valley: Option<f64>,
    warmup: Option<u64>,
    decay: Option<u64>,
}

impl Own {
    fn over(&self, published: Schedule) -> Schedule {
        Schedule {
            peak: self.peak.unwrap_or(published.peak),
            valley: self.valley.unwrap_or(published.valley),
            warmup: self.warmup.unwrap_or(published.warmup),
            decay: self.decay.unwrap_or(published.decay),
        }
    }
}

/// μ by steps.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Schedule {
    /// μ after the warm-up, in [0, 1].
    peak: f64,
    /// μ after the decay, in [0, 1].
    valley: f64,
    /// Steps in which μ rises from 0 to its peak.
    warmup: u64,
    /// Steps after those in which it falls to its valley.
    decay: u64,
}

impl Schedule {
    const KEYS: &[&str] = &["peak", "valley", "warmup", "decay"];

    /// μ of step `step`, counted from 1 as Trinity-RFT's trainer counts it: a straight rise, then half a cosine.
    fn at(self, step: u64) -> f64 {
        if step < self.warmup {
            return step as f64 / self.warmup as f64 * self.peak;
        }
        let done = step - self.warmup;
        if done >= self.decay {
            return self.valley;
        }
        let fallen = 0.5 * (1.0 + libm::cos(PI * done as f64 / self.decay as f64));
        (self.peak - self.valley) * fallen + self.valley
    }
}

#[derive(Debug)]
struct Chord {
    name: &'static str,
    terms: PolicyAndTeacher,
    mu: Schedule,
}

impl Chord {
    fn build(
        name: &'static str,
        settings: &MethodSettings,
        operator: &'static Operator,
        mu: Schedule,
    ) -> Result<Arc<dyn Method>, Refusal> {
        let fits = [mu.peak, mu.valley].iter().all(|it| (0.0..=1.0).contains(it));
        let got = format!("{} and {}", mu.peak, mu.valley);
        check(name, fits, "a peak and a valley in [0, 1]", got)?;
        let mut terms = settings.with(operator);
        terms.advantage.group = AdvantageGroup::PolicyOnly;
        Ok(Arc::new(Self { name, terms, mu }))
    }
}

impl Method for Chord {
    fn name(&self) -> &'static str {
        self.name
    }

    fn plan(&self) -> Plan {
        Plan { teacher_apart: true, ..Plan::TEACHER_SLOT }
    }

    fn unread_keys(&self) -> &'static [&'static str] {
        &["teacher.d", "advantage.group"]
    }

    fn credit(&self, group: &MixedGroup, at: Moment, _: &Scores) -> Credit {
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

    /// By `mu_schedule_function` of Trinity-RFT, which is given `train_step_num + 1`: its steps count from 1 too.
    #[test]
    fn mu_rises_in_a_straight_line_and_falls_along_a_cosine() {
        let mu = Schedule { peak: 0.9, valley: 0.05, warmup: 0, decay: 200 };
        let quarter = 0.85 * 0.5 * (1.0 + (PI / 4.0).cos()) + 0.05;
        for (step, expected) in [(0, 0.9), (50, quarter), (100, 0.475), (200, 0.05), (5000, 0.05)] {
            assert!((mu.at(step) - expected).abs() < 1e-12, "step {step}");
        }
        let warm = Schedule { warmup: 10, ..mu };
        for (step, expected) in [(1, 0.09), (5, 0.45), (10, 0.9), (110, 0.475), (210, 0.05)] {
            assert!((warm.at(step) - expected).abs() < 1e-12, "step {step}");
        }
        let constant = Schedule { peak: 0.1, valley: 0.1, warmup: 0, decay: 0 };
        assert_eq!([constant.at(1), constant.at(999)], [0.1, 0.1]);
    }
}
