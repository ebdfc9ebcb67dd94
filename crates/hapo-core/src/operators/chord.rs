use super::Operator;

/// `F = π − π²/2`, `dF/dlog π = π(1 − π)`.
///
/// CHORD's φ: tokens that the policy already knows and tokens that it finds impossible both count little; d is not
/// used.
pub(crate) static OPERATOR: Operator = Operator {
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
