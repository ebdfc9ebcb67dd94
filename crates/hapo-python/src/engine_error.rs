//! Errors of the engine as `hapo.Error`.

use hapo_cli::failure;
use hapo_train::recipe::RecipeProblem;
use pyo3::prelude::*;

/// `hapo.Error` with the message, what to do about it and the recipe's key. `cause` is what a function of the user's
/// raised.
pub(crate) fn raised(py: Python<'_>, error: &anyhow::Error, cause: Option<PyErr>) -> PyErr {
    let key = error.chain().find_map(|cause| match cause.downcast_ref() {
        Some(RecipeProblem { key, .. }) if !key.is_empty() => Some(key.clone()),
        _ => None,
    });
    let made = py
        .import("hapo._errors")
        .and_then(|it| it.getattr("Error"))
        .and_then(|it| it.call1((failure::message(error), failure::hint(error, "run_dir"), key)));
    match made {
        Ok(it) => {
            let it = PyErr::from_value(it);
            it.set_cause(py, cause);
            it
        }
        Err(problem) => problem,
    }
}
