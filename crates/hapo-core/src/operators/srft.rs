use super::Operator;

/// SRFT's plain imitation: F = log π, dF/dlog π = 1 (D14).
pub(super) const OPERATOR: Operator = Operator {
    name: "srft",
    summary: "log π: the negative log-likelihood of plain imitation",
    value: |log_pi, _| log_pi,
    weight: |_, _| 1.0,
};
