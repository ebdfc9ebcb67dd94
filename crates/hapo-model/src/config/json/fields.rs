//! A JSON object that is read key by key.

use std::path::Path;

use serde_json::{Map, Value};

use super::keys::{HARMLESS, speaks_of_the_decoder};
use crate::error::{Error, excerpt};

/// A JSON object whose keys are taken out one by one, so that the rest are the unknown ones.
pub(super) struct Fields<'a> {
    pub(super) file: &'a Path,
    /// Names the object inside the file; empty or `outer.`.
    pub(super) prefix: String,
    pub(super) rest: Map<String, Value>,
}

impl<'a> Fields<'a> {
    pub(super) fn parse(file: &'a Path, text: &[u8]) -> Result<Self, Error> {
        let malformed = |got: String| Error::refused(file, "", "a JSON object", got);
        match serde_json::from_slice(text) {
            Ok(Value::Object(rest)) => Ok(Self { file, prefix: String::new(), rest }),
            Ok(other) => Err(malformed(shown(&other))),
            Err(cause) => Err(malformed(cause.to_string())),
        }
    }

    /// The value of a key, which is no longer there afterwards; `null` is as good as absent.
    pub(super) fn take(&mut self, name: &str) -> Option<Value> {
        self.rest.remove(name).filter(|value| !value.is_null())
    }

    pub(super) fn number(&mut self, name: &str) -> Result<Option<f64>, Error> {
        match self.take(name) {
            None => Ok(None),
            Some(value) => match value.as_f64() {
                Some(number) => Ok(Some(number)),
                None => Err(self.refuse(name, "a number", shown(&value), None)),
            },
        }
    }

    pub(super) fn required_number(&mut self, name: &str) -> Result<f64, Error> {
        match self.number(name)? {
            Some(number) => Ok(number),
            None => Err(self.missing(name, "a number")),
        }
    }

    pub(super) fn size(&mut self, name: &str, limit: usize) -> Result<Option<usize>, Error> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        match value.as_u64() {
            Some(size) if (1..=limit as u64).contains(&size) => Ok(Some(size as usize)),
            _ => Err(self.refuse(name, size_between(limit), shown(&value), None)),
        }
    }

    pub(super) fn required_size(&mut self, name: &str, limit: usize) -> Result<usize, Error> {
        match self.size(name, limit)? {
            Some(size) => Ok(size),
            None => Err(self.missing(name, &size_between(limit))),
        }
    }

    pub(super) fn flag(&mut self, name: &str) -> Result<Option<bool>, Error> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => Err(self.refuse(name, "true or false", shown(&other), None)),
        }
    }

    /// A token id; a negative one is how old folders write that there is none.
    pub(super) fn token(&mut self, name: &str) -> Result<Option<u32>, Error> {
        match self.take(name) {
            None => Ok(None),
            Some(value) if value.as_i64().is_some_and(|it| it < 0) => Ok(None),
            Some(value) => match token_id(&value) {
                Some(id) => Ok(Some(id)),
                None => Err(self.refuse(name, "a token id or null", shown(&value), None)),
            },
        }
    }

    pub(super) fn token_list(&mut self, name: &str) -> Result<Option<Vec<u32>>, Error> {
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

    /// The remaining unknown keys: refusals for those that may change the result, and the names of the others for a
    /// warning. Inside an object every key counts as part of its subject.
    pub(super) fn rest(&self) -> (Vec<Error>, Vec<String>) {
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

    pub(super) fn missing(&self, name: &str, expected: &str) -> Error {
        self.refuse(name, expected, "nothing", None)
    }

    pub(super) fn refuse(
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

pub(super) fn shown(value: &Value) -> String {
    excerpt(&value.to_string())
}

pub(super) fn size_between(limit: usize) -> String {
    format!("an integer from 1 to {limit}")
}
