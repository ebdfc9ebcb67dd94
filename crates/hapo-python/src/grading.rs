//! The graders, and the check of a gold answer. Verdicts are `hapo.verify`'s.

use pyo3::prelude::*;

use crate::arguments::{text, value_error};

/// Raises `ValueError` where a gold answer cannot be read, and says why.
#[pyfunction]
#[pyo3(signature = (gold, grader="math"))]
pub(crate) fn check_gold(gold: &Bound<'_, PyAny>, grader: &str) -> PyResult<()> {
    let gold = text("gold", gold)?;
    let grader = hapo_verify::grader(grader).map_err(|problem| value_error("grader", problem))?;
    hapo_verify::check_gold(grader, &gold).map_err(|problem| value_error("gold", problem))
}

/// The graders there are: name and one line.
#[pyfunction]
pub(crate) fn graders() -> Vec<(&'static str, &'static str)> {
    hapo_verify::GRADERS.iter().map(|it| (it.name(), it.summary())).collect()
}
