use super::Operator;

/// `F = π/(π + d)`, `dF/dlog π = d·π/(π + d)²`.
///
/// LUFFY's regularised importance weight; its weight is at most 1/4 (D14).
pub(crate) static OPERATOR: Operator = Operator {
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
