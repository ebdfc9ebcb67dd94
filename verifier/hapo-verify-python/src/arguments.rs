//! Errors of an argument: its name, the expected and the given value.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};
use std::fmt::{Debug, Display};

/// `ValueError`: the argument, and what is wrong with its value.
pub fn value_error(name: &str, problem: impl Display) -> PyErr {
    PyValueError::new_err(format!("{name}: {problem}"))
}

/// `TypeError`: the argument, what was expected, and the type that came.
pub fn type_error(name: &str, expected: &str, got: &Bound<'_, PyAny>) -> PyErr {
    let kind = got.get_type().name().map_or_else(|_| "?".to_owned(), |it| it.to_string());
    PyTypeError::new_err(format!("{name}: expected {expected}, got {kind}"))
}

/// Text, as it is. What is no Unicode (a lone surrogate) becomes the replacement character: model output is data.
pub fn text(name: &str, it: &Bound<'_, PyAny>) -> PyResult<String> {
    let text = it.cast::<PyString>().map_err(|_| type_error(name, "a str", it))?;
    Ok(text.to_string_lossy().into_owned())
}

/// One text, or a list or tuple of them.
pub fn texts(name: &str, it: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
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
pub fn sequence<'py>(name: &str, it: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    match it.try_iter() {
        Ok(items) if !it.is_instance_of::<PyString>() => items.collect(),
        _ => Err(type_error(name, "a list", it)),
    }
}

/// Checks that two arrays have one length or shape.
pub fn same<T: PartialEq + Debug>(name: &str, got: &T, other: &str, expected: &T) -> PyResult<()> {
    if got == expected {
        return Ok(());
    }
    Err(value_error(name, format!("expected the shape of {other}, {expected:?}, got {got:?}")))
}
