use super::Operator;

/// `F = π/d` below d and `1 + ln(π/d)` above, `dF/dlog π = min(1, π/d)`.
///
/// TRAPO's trust region (D14).
pub(crate) static OPERATOR: Operator = Operator {
    name: "trapo",
    summary: "imitation, except that tokens below probability d count in proportion to π/d",
    value: |log_pi, d| {
        let log_ratio = log_pi - libm::log(d);
        if log_ratio < 0.0 { libm::exp(log_ratio) } else { 1.0 + log_ratio }
    },
    weight: |log_pi, d| libm::exp(log_pi - libm::log(d)).min(1.0),
};
