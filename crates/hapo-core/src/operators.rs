//! Policy-shaping operators F on the teacher's tokens (Eq. 11, appendix B). An operator is defined by its gradient
//! weight dF/dlog π and F is that weight's antiderivative (D14): the paper prints for LUFFY a function that imitation
//! would *minimise*, and for TRAPO the weight in place of F. Both functions take log π, so that they stay finite for
//! tokens that the policy finds impossible.

use std::fmt;

/// A policy-shaping operator: one entry in [`OPERATORS`].
#[derive(Clone, Copy)]
pub struct Operator {
    /// Name in tables. A recipe chooses it with the method; `teacher.weight = 0` takes the term away.
    pub name: &'static str,
    /// One line for `hapo list operators`.
    pub summary: &'static str,
    /// F as a function of (log π, d); maximised.
    pub value: fn(f64, f64) -> f64,
    /// dF/dlog π = π · dF/dπ as a function of (log π, d).
    pub weight: fn(f64, f64) -> f64,
}

/// Every operator.
pub const OPERATORS: &[&Operator] = &[&LUFFY, &SRFT, &TRAPO, &CHORD];

/// The operator of that name.
pub fn operator(name: &str) -> Option<&'static Operator> {
    OPERATORS.iter().find(|it| it.name == name).copied()
}

/// `F = π/(π + d)`, `dF/dlog π = d·π/(π + d)²`. LUFFY's regularised importance weight; its weight is at most 1/4 (D14).
pub(crate) static LUFFY: Operator = Operator {
    name: "luffy",
    summary: "π/(π+d): strongest near π = d, fades for tokens already likely",
    value: |log_pi, d| {
        let pi = libm::exp(log_pi);
        pi / (pi + d)
    },
    weight: |log_pi, d| {
        let pi = libm::exp(log_pi);
        d * pi / ((pi + d) * (pi + d))
    },
};

/// `F = log π`, `dF/dlog π = 1`. SRFT's plain imitation; d is not used (D14).
pub(crate) static SRFT: Operator = Operator {
    name: "srft",
    summary: "log π: the negative log-likelihood of plain imitation",
    value: |log_pi, _| log_pi,
    weight: |_, _| 1.0,
};

/// `F = π/d` below d and `1 + ln(π/d)` above, `dF/dlog π = min(1, π/d)`. TRAPO's trust region (D14).
pub(crate) static TRAPO: Operator = Operator {
    name: "trapo",
    summary: "imitation, except that tokens below probability d count in proportion to π/d",
    value: |log_pi, d| {
        let log_ratio = log_pi - libm::log(d);
        if log_ratio < 0.0 { libm::exp(log_ratio) } else { 1.0 + log_ratio }
    },
    weight: |log_pi, d| libm::exp(log_pi - libm::log(d)).min(1.0),
};

/// `F = π − π²/2`, `dF/dlog π = π(1 − π)`. CHORD's φ: tokens that the policy already knows and tokens that it finds
/// impossible both count little; d is not used.
pub(crate) static CHORD: Operator = Operator {
    name: "chord",
    summary: "π − π²/2: imitation weighted by φ = π(1 − π), strongest at π = 1/2",
    value: |log_pi, _| {
        let pi = libm::exp(log_pi);
        pi - 0.5 * pi * pi
    },
    weight: |log_pi, _| {
        let pi = libm::exp(log_pi);
        pi * (1.0 - pi)
    },
};

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: f64 = 0.1;

    #[test]
    fn weight_is_the_derivative_of_the_value() {
        for it in OPERATORS {
            let mut log_pi = -60.0_f64;
            while log_pi < -1e-6 {
                // TRAPO has a kink at π = d; a difference across it is no derivative.
                if (log_pi - D.ln()).abs() > 1e-3 {
                    let h = 1e-5;
                    let slope = ((it.value)(log_pi + h, D) - (it.value)(log_pi - h, D)) / (2.0 * h);
                    let weight = (it.weight)(log_pi, D);
                    assert!(
                        (slope - weight).abs() <= 1e-8 + 1e-6 * weight.abs(),
                        "{} at log π = {log_pi}: slope {slope}, weight {weight}",
                        it.name
                    );
                }
                log_pi += 0.01;
            }
        }
    }

    #[test]
    fn values_and_weights_are_those_of_the_formulas() {
        // π = 0.05, 0.1, 0.9 with d = 0.1, by hand.
        let expected = [
            ("luffy", [1.0 / 3.0, 0.5, 0.9], [0.005 / 0.0225, 0.25, 0.09]),
            ("srft", [0.05_f64.ln(), 0.1_f64.ln(), 0.9_f64.ln()], [1.0, 1.0, 1.0]),
            ("trapo", [0.5, 1.0, 1.0 + 9.0_f64.ln()], [0.5, 1.0, 1.0]),
            ("chord", [0.04875, 0.095, 0.495], [0.0475, 0.09, 0.09]),
        ];
        for (name, values, weights) in expected {
            let it = operator(name).unwrap();
            for (i, pi) in [0.05_f64, 0.1, 0.9].into_iter().enumerate() {
                assert!(((it.value)(pi.ln(), D) - values[i]).abs() < 1e-12, "{name} value at {pi}");
                assert!(
                    ((it.weight)(pi.ln(), D) - weights[i]).abs() < 1e-12,
                    "{name} weight at {pi}"
                );
            }
        }
    }

    #[test]
    fn every_operator_raises_the_teacher_and_stays_finite() {
        for it in OPERATORS {
            for log_pi in [0.0, -1e-12, -1.0, -50.0, -745.0, -1e4] {
                let (value, weight) = ((it.value)(log_pi, D), (it.weight)(log_pi, D));
                assert!(value.is_finite() && weight.is_finite(), "{} at {log_pi}", it.name);
                assert!(weight >= 0.0, "{} at {log_pi} would be minimised by imitation", it.name);
            }
        }
    }

    #[test]
    fn luffy_weight_never_exceeds_a_quarter() {
        let it = operator("luffy").unwrap();
        assert!((0..10_000).all(|i| (it.weight)(-f64::from(i) * 1e-3, D) <= 0.25));
    }
}
