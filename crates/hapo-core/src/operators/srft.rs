use super::Operator;

/// `F = log π`, `dF/dlog π = 1`.
///
/// SRFT's plain imitation; d is not used (D14).
pub(crate) static OPERATOR: Operator = Operator {
    name: "srft",
    summary: "log π: the negative log-likelihood of plain imitation",
    value: |log_pi, _| log_pi,
    weight: |_, _| 1.0,
};
