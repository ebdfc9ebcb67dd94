//! How much of a step's objective is the teacher's: 1 and 1, or CHORD's μ.

/// CHORD's schedule of μ: the objective is (1 − μ)·policy + μ·teacher, and μ falls in a straight line
/// ("On-policy RL meets off-policy experts", section 3, <https://arxiv.org/abs/2508.11408>).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mu {
    /// μ at the first step, in [0, 1].
    pub start: f64,
    /// μ from step `steps` + 1 on, in [0, 1].
    pub end: f64,
    /// Steps over which it goes from one to the other; at least 1.
    pub steps: u64,
}

impl Mu {
    /// μ of step `step`, counted from 1.
    pub fn at(self, step: u64) -> f64 {
        let progress = (step.saturating_sub(1) as f64 / self.steps.max(1) as f64).min(1.0);
        self.start + (self.end - self.start) * progress
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mu_falls_in_a_straight_line_and_stays() {
        let mu = Mu {
            start: 0.9,
            end: 0.05,
            steps: 200,
        };
        for (step, expected) in [(1, 0.9), (101, 0.475), (201, 0.05), (5000, 0.05)] {
            assert!((mu.at(step) - expected).abs() < 1e-12, "step {step}");
        }
    }
}
