use super::prelude::*;

/// arXiv 2508.11408: `L = (1 − μ)·mean(−min(r·A, clip(r, 1 − ε_low, 1 + ε_high)·A)) − μ·λ·mean(log π)`: the first mean
/// is over the rollouts' tokens, the second over the teacher's.
///
/// CHORD-μ: GRPO and imitation side by side, μ falling from a peak along half a cosine (section 3;
/// `MIXCHORDPolicyLossFn` and `mix_chord.yaml` of Trinity-RFT). The rollouts' advantages know nothing of the teacher's
/// reward.
pub(super) const MU: MethodEntry = MethodEntry {
    name: "chord-mu",
    summary: "(1 − μ)·GRPO + μ·imitation, each by its own mean, μ falling from 0.9 to 0.05",
    make: |settings| {
        let published = Schedule { peak: 0.9, valley: 0.05, warmup: 0, decay: 200 };
        chord(settings, &operators::SRFT, settings.chord_mu.over(published), "chord-mu")
    },
    ..MethodEntry::NEW
};

/// arXiv 2508.11408: `L = (1 − μ)·mean(−min(r·A, clip(r, 1 − ε_low, 1 + ε_high)·A)) − μ·λ·mean(π − π²/2)`, each mean
/// over its own tokens; the derivative of π − π²/2 by log π is φ = π(1 − π).
///
/// CHORD-φ: CHORD-μ with a constant μ of 0.1 and the teacher's tokens weighted by φ.
pub(super) const PHI: MethodEntry = MethodEntry {
    name: "chord-phi",
    summary: "0.9·GRPO + 0.1·imitation weighted by π(1−π), each by its own mean",
    make: |settings| {
        let published = Schedule { peak: 0.1, valley: 0.1, warmup: 0, decay: 0 };
        chord(settings, &operators::CHORD, settings.chord_phi.over(published), "chord-phi")
    },
    ..MethodEntry::NEW
};

fn chord(
    settings: &MethodSettings,
    operator: &'static Operator,
    mu: Schedule,
    key: &str,
) -> Result<Method, Refusal> {
    let fits = [mu.peak, mu.valley].iter().all(|it| (0.0..=1.0).contains(it));
    let got = format!("{} and {}", mu.peak, mu.valley);
    check(key, fits, "a peak and a valley in [0, 1]", got)?;
    let mut terms = settings.with(operator);
    terms.advantage.group = AdvantageGroup::PolicyOnly;
    let method = Method::new(move |group, at, _| {
        let mu = mu.at(at.step.0);
        let mut credit = terms.credit(group, at);
        for span in credit.iter_mut().flatten() {
            let share = if span.is_teacher() { mu } else { 1.0 - mu };
            span.term = span.term.scaled(share);
        }
        credit
    });
    Ok(Method {
        plan: Plan { teacher_apart: true, ..Plan::TEACHER_SLOT },
        unread_keys: &["teacher.d", "advantage.group"],
        ..method
    })
}

own! {
    /// `[chord-mu]` and `[chord-phi]`; what is not written is as published.
    Own {
        peak: Option<f64> = None,
        valley: Option<f64> = None,
        warmup: Option<u64> = None,
        decay: Option<u64> = None,
    }
}

impl Own {
    fn over(self, published: Schedule) -> Schedule {
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
    /// μ of step `step`, counted from 1 as Trinity-RFT's trainer counts it: a straight rise, then half a cosine.
    fn at(self, step: u64) -> f64 {
        if step < self.warmup {
            return step as f64 / self.warmup as f64 * self.peak;
        }
        let done = step - self.warmup;
        if done >= self.decay {
            return self.valley;
        }
        half_cosine(self.peak, self.valley, PI * done as f64 / self.decay as f64)
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
