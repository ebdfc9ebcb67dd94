//! A JSON object that is read key by key, and what all families read alike.

pub(crate) mod keys;
pub(crate) mod reader;
pub(crate) mod rope;
pub(crate) mod sizes;

use std::path::Path;

use serde_json::{Map, Value};

use crate::error::Error;
use crate::files::excerpt;
use keys::{HARMLESS, speaks_of_the_decoder};

/// A JSON object whose keys are taken out one by one, so that the rest are the unknown ones.
pub(crate) struct Fields<'a> {
    pub(crate) file: &'a Path,
    /// Names the object inside the file; empty or `outer.`.
    pub(crate) prefix: String,
    pub(crate) rest: Map<String, Value>,
}

impl<'a> Fields<'a> {
    pub(crate) fn parse(file: &'a Path, text: &[u8]) -> Result<Self, Error> {
        let malformed = |got: String| Error::refused(file, "", "a JSON object", got);
        match serde_json::from_slice(text) {
            Ok(Value::Object(rest)) => Ok(Self { file, prefix: String::new(), rest }),
            Ok(other) => Err(malformed(shown(&other))),
            Err(cause) => Err(malformed(cause.to_string())),
        }
    }

    /// The object that a key holds.
    pub(crate) fn inner(&self, name: &str, value: Value) -> Result<Self, Error> {
        match value {
            Value::Object(rest) => {
                Ok(Self { file: self.file, prefix: format!("{}{name}.", self.prefix), rest })
            }
            other => Err(self.refuse(name, "an object or null", shown(&other), None)),
        }
    }

    /// The value of a key, which is no longer there afterwards; `null` is as good as absent.
    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        self.rest.remove(name).filter(|value| !value.is_null())
    }

    pub(crate) fn number(&mut self, name: &str) -> Result<Option<f64>, Error> {
        match self.take(name) {
            None => Ok(None),
            Some(value) => match value.as_f64() {
                Some(number) => Ok(Some(number)),
                None => Err(self.refuse(name, "a number", shown(&value), None)),
            },
        }
    }

    pub(crate) fn required_number(&mut self, name: &str) -> Result<f64, Error> {
        match self.number(name)? {
            Some(number) => Ok(number),
            None => Err(self.missing(name, "a number")),
        }
    }

    /// A list of numbers.
    pub(crate) fn required_numbers(&mut self, name: &str) -> Result<Vec<f64>, Error> {
        let value = self.take(name).unwrap_or_default();
        let numbers = value.as_array().and_then(|it| it.iter().map(Value::as_f64).collect());
        numbers.ok_or_else(|| self.refuse(name, "a list of numbers", shown(&value), None))
    }

    pub(crate) fn size(&mut self, name: &str, limit: usize) -> Result<Option<usize>, Error> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        match value.as_u64() {
            Some(size) if (1..=limit as u64).contains(&size) => Ok(Some(size as usize)),
            _ => Err(self.refuse(name, size_between(limit), shown(&value), None)),
        }
    }

    pub(crate) fn required_size(&mut self, name: &str, limit: usize) -> Result<usize, Error> {
        match self.size(name, limit)? {
            Some(size) => Ok(size),
            None => Err(self.missing(name, &size_between(limit))),
        }
    }

    pub(crate) fn flag(&mut self, name: &str) -> Result<Option<bool>, Error> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => Err(self.refuse(name, "true or false", shown(&other), None)),
        }
    }

    /// A token id; a negative one is how old folders write that there is none.
    pub(crate) fn token(&mut self, name: &str) -> Result<Option<u32>, Error> {
        match self.take(name) {
            None => Ok(None),
            Some(value) if value.as_i64().is_some_and(|it| it < 0) => Ok(None),
            Some(value) => match token_id(&value) {
                Some(id) => Ok(Some(id)),
                None => Err(self.refuse(name, "a token id or null", shown(&value), None)),
            },
        }
    }

    pub(crate) fn token_list(&mut self, name: &str) -> Result<Option<Vec<u32>>, Error> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let ids = match &value {
            Value::Array(list) => list.iter().map(token_id).collect(),
            one => token_id(one).map(|id| vec![id]),
        };
        match ids {
            Some(ids) => Ok(Some(ids)),
            None => Err(self.refuse(name, "a token id or a list of them", shown(&value), None)),
        }
    }

    /// Takes a key whose value is one of some, as JSON, or absent; the refusal of another.
    pub(crate) fn fixed(
        &mut self,
        name: &str,
        values: &[&str],
        hint: Option<&'static str>,
    ) -> Option<Error> {
        let is = |wanted: &str, got: &Value| {
            let wanted: Value = serde_json::from_str(wanted).expect("the table holds JSON");
            match (wanted.as_f64(), got.as_f64()) {
                (Some(wanted), Some(got)) => wanted == got,
                _ => wanted == *got,
            }
        };
        let got = self.take(name).filter(|got| !values.iter().any(|it| is(it, got)))?;
        Some(self.refuse(name, values[0], shown(&got), hint))
    }

    /// The remaining unknown keys: refusals for those that may change the result, and the names of the others for a
    /// warning. Inside an object every key counts as part of its subject.
    pub(crate) fn rest(&self) -> (Vec<Error>, Vec<String>) {
        let unknown = self.rest.iter().filter(|(name, value)| {
            !value.is_null() && !name.starts_with('_') && !HARMLESS.contains(&name.as_str())
        });
        let (mut refused, mut unread) = (Vec::new(), Vec::new());
        for (name, value) in unknown {
            if !self.prefix.is_empty() || speaks_of_the_decoder(name) {
                refused.push(self.refuse(
                    excerpt(name),
                    "no such field, as the decoder does not implement it",
                    shown(value),
                    Some("remove the field when it does not change what the model computes"),
                ));
            } else {
                unread.push(excerpt(name));
            }
        }
        (refused, unread)
    }

    pub(crate) fn missing(&self, name: &str, expected: &str) -> Error {
        self.refuse(name, expected, "nothing", None)
    }

    pub(crate) fn refuse(
        &self,
        name: impl AsRef<str>,
        expected: impl Into<String>,
        got: impl Into<String>,
        hint: Option<&'static str>,
    ) -> Error {
        let place = format!("{}{}", self.prefix, name.as_ref());
        Error::refused(self.file, place, expected, got).with_hint(hint)
    }
}

fn token_id(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|id| u32::try_from(id).ok())
}

pub(crate) fn shown(value: &Value) -> String {
    excerpt(&value.to_string())
}

pub(crate) fn size_between(limit: usize) -> String {
    format!("an integer from 1 to {limit}")
}
