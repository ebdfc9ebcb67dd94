//! What is wrong with an argument: its name, what was expected, what came.

use hapo_core::{Decimal, excerpt};
use numpy::ndarray::Dimension;
use numpy::{Element, PyArrayDescrMethods, PyReadonlyArray, PyReadwriteArray, PyUntypedArray};
use numpy::{PyArray, PyArrayMethods, PyUntypedArrayMethods, dtype};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};
use serde::de::DeserializeOwned;
use std::fmt::Display;

/// `ValueError`: the argument, and what is wrong with its value.
pub(crate) fn value_error(name: &str, problem: impl Display) -> PyErr {
    PyValueError::new_err(format!("{name}: {problem}"))
}

fn type_error(name: &str, expected: &str, got: &Bound<'_, PyAny>) -> PyErr {
    let kind = got.get_type().name().map_or_else(|_| "?".to_owned(), |it| it.to_string());
    PyTypeError::new_err(format!("{name}: expected {expected}, got {kind}"))
}

/// Text, as it is. What is no Unicode (a lone surrogate) becomes the replacement character: model output is data.
pub(crate) fn text(name: &str, it: &Bound<'_, PyAny>) -> PyResult<String> {
    let text = it.cast::<PyString>().map_err(|_| type_error(name, "a str", it))?;
    Ok(text.to_string_lossy().into_owned())
}

/// One text, or a list or tuple of them.
pub(crate) fn texts(name: &str, it: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    if it.is_instance_of::<PyString>() {
        return Ok(vec![text(name, it)?]);
    }
    if !it.is_instance_of::<PyList>() && !it.is_instance_of::<PyTuple>() {
        return Err(type_error(name, "a str or a list of str", it));
    }
    let all: Vec<String> = it.try_iter()?.map(|one| text(name, &one?)).collect::<PyResult<_>>()?;
    if all.is_empty() {
        return Err(value_error(name, "expected at least one, got an empty list"));
    }
    Ok(all)
}

/// The items of a list, tuple, array or other sequence that is no text.
pub(crate) fn sequence<'py>(
    name: &str,
    it: &Bound<'py, PyAny>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    match it.try_iter() {
        Ok(items) if !it.is_instance_of::<PyString>() => items.collect(),
        _ => Err(type_error(name, "a list", it)),
    }
}

/// A decimal setting as it prints: `1.5`, `"1.5"` or `Decimal("1.5")`.
pub(crate) fn decimal(name: &str, it: &Bound<'_, PyAny>) -> PyResult<Decimal> {
    it.str()?.to_string_lossy().parse().map_err(|problem| value_error(name, problem))
}

/// A word of a recipe.
pub(crate) fn word<T: DeserializeOwned>(name: &str, word: &str) -> PyResult<T> {
    let parsed = serde_json::from_value(serde_json::Value::from(word));
    parsed.map_err(|problem| value_error(name, problem))
}

/// A contiguous array that is read.
pub(crate) fn array<'py, T: Element, D: Dimension>(
    name: &str,
    it: &Bound<'py, PyAny>,
) -> PyResult<PyReadonlyArray<'py, T, D>> {
    let array = typed::<T, D>(name, it)?;
    let read = array.try_readonly().map_err(|problem| value_error(name, problem))?;
    Ok(read)
}

/// A contiguous array that is written.
pub(crate) fn output<'py, T: Element, D: Dimension>(
    name: &str,
    it: &Bound<'py, PyAny>,
) -> PyResult<PyReadwriteArray<'py, T, D>> {
    let array = typed::<T, D>(name, it)?;
    array.try_readwrite().map_err(|problem| value_error(name, problem))
}

fn typed<'a, 'py, T: Element, D: Dimension>(
    name: &str,
    it: &'a Bound<'py, PyAny>,
) -> PyResult<&'a Bound<'py, PyArray<T, D>>> {
    let dimensions = D::NDIM.unwrap_or_default();
    let wanted = dtype::<T>(it.py());
    let expected = format!("a contiguous array of {wanted} with {dimensions} dimensions");
    let Ok(any) = it.cast::<PyUntypedArray>() else {
        return Err(type_error(name, &expected, it));
    };
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

/// Checks that two arrays have one length or shape.
pub(crate) fn same<T: PartialEq + std::fmt::Debug>(
    name: &str,
    got: &T,
    other: &str,
    expected: &T,
) -> PyResult<()> {
    if got == expected {
        return Ok(());
    }
    Err(value_error(name, format!("expected the shape of {other}, {expected:?}, got {got:?}")))
}

/// A name that is not among those there are.
pub(crate) fn unknown<'a>(name: &str, got: &str, there: impl Iterator<Item = &'a str>) -> PyErr {
    let there: Vec<&str> = there.collect();
    value_error(name, format!("expected one of {}, got {:?}", there.join(", "), excerpt(got, 40)))
}
