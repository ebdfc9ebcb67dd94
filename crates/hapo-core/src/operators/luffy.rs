use super::Operator;

/// LUFFY's regularised importance weight: F = π/(π+d), dF/dlog π = dπ/(π+d)² ≤ 1/4 (D14).
pub(super) const OPERATOR: Operator = Operator {
    name: "luffy",
    summary: "π/(π+d): strongest near π = d, fades for tokens already likely",
    value: |log_pi, d| {
        let pi = log_pi.exp();
        pi / (pi + d)
    },
    weight: |log_pi, d| {
        let pi = log_pi.exp();
        d * pi / ((pi + d) * (pi + d))
    },
};
