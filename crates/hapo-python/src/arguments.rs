//! Arguments, and errors: of an argument, with its name, the expected and the given value; of the engine as `hapo.Error`.

use std::{fmt::Display, ops::RangeInclusive};

use hapo_cli::failure;
use hapo_core::{Decimal, excerpt};
use hapo_train::recipe::RecipeProblem;
use numpy::ndarray::Dimension;
use numpy::{Element, PyArrayDescrMethods, PyReadonlyArray, PyReadwriteArray, PyUntypedArray};
use numpy::{PyArray, PyArrayMethods, PyUntypedArrayMethods, dtype};
use pyo3::{exceptions::PyTypeError, prelude::*};
use serde::de::DeserializeOwned;
pub(crate) use verify_python::arguments::{same, text, type_error, value_error};

/// A decimal setting as it prints: `1.5`, `"1.5"` or `Decimal("1.5")`.
pub(crate) fn decimal(name: &str, it: &Bound<'_, PyAny>) -> PyResult<Decimal> {
    it.str()?.to_string_lossy().parse().map_err(|problem| value_error(name, problem))
}

/// A number within the bounds of a recipe's: beyond them is no memory, or no meaning.
pub(crate) fn within<T: PartialOrd + Display>(
    name: &str,
    it: T,
    bounds: RangeInclusive<T>,
) -> PyResult<T> {
    if bounds.contains(&it) {
        return Ok(it);
    }
    let (least, most) = bounds.into_inner();
    Err(value_error(name, format!("expected a number from {least} to {most}, got {it}")))
}

pub(crate) fn word<T: DeserializeOwned>(name: &str, word: &str) -> PyResult<T> {
    let parsed = serde_json::from_value(serde_json::Value::from(word));
    parsed.map_err(|problem| value_error(name, problem))
}

/// A contiguous array that is read.
pub(crate) fn array<'py, T: Element, D: Dimension>(
    name: &str,
    it: &Bound<'py, PyAny>,
) -> PyResult<PyReadonlyArray<'py, T, D>> {
    typed::<T, D>(name, it)?.try_readonly().map_err(|problem| value_error(name, problem))
}

/// A contiguous array that is written.
pub(crate) fn output<'py, T: Element, D: Dimension>(
    name: &str,
    it: &Bound<'py, PyAny>,
) -> PyResult<PyReadwriteArray<'py, T, D>> {
    typed::<T, D>(name, it)?.try_readwrite().map_err(|problem| value_error(name, problem))
}

fn typed<'a, 'py, T: Element, D: Dimension>(
    name: &str,
    it: &'a Bound<'py, PyAny>,
) -> PyResult<&'a Bound<'py, PyArray<T, D>>> {
    let dimensions = D::NDIM.unwrap_or_default();
    let wanted = dtype::<T>(it.py());
    let expected = format!("a contiguous array of {wanted} with {dimensions} dimensions");
    let Ok(any) = it.cast::<PyUntypedArray>() else { return Err(type_error(name, &expected, it)) };
    let refused =
        |got: String| PyTypeError::new_err(format!("{name}: expected {expected}, got {got}"));
    if !any.dtype().is_equiv_to(&wanted) {
        return Err(refused(any.dtype().to_string()));
    }
    if any.ndim() != dimensions {
        return Err(refused(format!("{} dimensions", any.ndim())));
    }
    if !any.is_c_contiguous() {
        return Err(refused("a strided one".to_owned()));
    }
    it.cast().map_err(|_| refused("another array".to_owned()))
}

pub(crate) fn unknown<'a>(name: &str, got: &str, there: impl Iterator<Item = &'a str>) -> PyErr {
    let there: Vec<&str> = there.collect();
    value_error(name, format!("expected one of {}, got {:?}", there.join(", "), excerpt(got, 40)))
}

/// `hapo.Error` with the message, what to do about it and the recipe's key. `cause` is what a function of the user's
/// raised.
pub(crate) fn raised(py: Python<'_>, error: &anyhow::Error, cause: Option<PyErr>) -> PyErr {
    let key = error.chain().find_map(|cause| match cause.downcast_ref() {
        Some(RecipeProblem { key, .. }) if !key.is_empty() => Some(key.clone()),
        _ => None,
    });
    let made = || {
        let parts = (failure::message(error), failure::hint(error, "run_dir"), key);
        let it = PyErr::from_value(py.import("hapo._errors")?.getattr("Error")?.call1(parts)?);
        it.set_cause(py, cause);
        Ok(it)
    };
    made().unwrap_or_else(|problem| problem)
}
