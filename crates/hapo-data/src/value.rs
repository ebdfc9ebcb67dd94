//! What a field of a row holds, whatever file it came from, and what is wrong with it.

use crate::surrogates::without_lone_surrogates;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// A value of a row. Not serde's: it knows numbers that are not finite, repeated keys and the types
/// that only columns have.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Value>),
    Object(Object),
    /// A type that no layout reads, such as a date; the text names it.
    Other(&'static str),
}

/// The keys and values of an object in their order, repeated keys included.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Object(pub(crate) Vec<(String, Value)>);

/// What is wrong with a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) field: String,
    pub(crate) expected: String,
    pub(crate) got: String,
}

impl Object {
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|it| it.0 == name).map(|it| &it.1)
    }

    /// The value, unless it is missing or null.
    pub(crate) fn some(&self, name: &str) -> Option<&Value> {
        self.get(name).filter(|it| **it != Value::Null)
    }

    /// The first value that is there under a name in any case, with the name as it is written.
    pub(crate) fn any_case(&self, name: &str) -> Option<(&str, &Value)> {
        let mut fields = self.0.iter().filter(|it| it.1 != Value::Null);
        fields.find(|it| it.0.eq_ignore_ascii_case(name)).map(|it| (it.0.as_str(), &it.1))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}

impl Object {
    pub(crate) fn into_json(self) -> serde_json::Map<String, serde_json::Value> {
        let fields = self.0.into_iter();
        fields.map(|(name, it)| (name, it.into_json())).collect()
    }
}

impl Value {
    fn into_json(self) -> serde_json::Value {
        match self {
            Value::Null | Value::Other(_) => serde_json::Value::Null,
            Value::Bool(it) => it.into(),
            Value::Int(it) => match i64::try_from(it) {
                Ok(it) => it.into(),
                Err(_) => u64::try_from(it).map_or(serde_json::Value::Null, Into::into),
            },
            Value::Float(it) => it.into(),
            Value::Text(it) => it.into(),
            Value::List(it) => it.into_iter().map(Value::into_json).collect(),
            Value::Object(it) => it.into_json().into(),
        }
    }

    /// A number as people write it: 142.0 is `142`. `None` for what is no finite number.
    pub(crate) fn number(&self) -> Option<String> {
        match self {
            Value::Int(it) => Some(it.to_string()),
            Value::Float(it) if it.fract() == 0.0 && it.abs() < 9e15 => {
                Some(format!("{}", *it as i64))
            }
            Value::Float(it) if it.is_finite() => Some(format!("{it:?}")),
            _ => None,
        }
    }
}

/// As messages show it: texts quoted, lists and objects by their kind, all shortened.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("null"),
            Value::Bool(it) => write!(f, "{it}"),
            Value::Int(it) => write!(f, "{it}"),
            Value::Float(it) => write!(f, "{it:?}"),
            Value::Text(it) => {
                // Only the beginning is quoted: a text may have megabytes.
                let beginning: String = it.chars().take(90).collect();
                f.write_str(&shorten(&format!("{beginning:?}")))
            }
            Value::List(it) => write!(f, "a list of {}", it.len()),
            Value::Object(_) => f.write_str("an object"),
            Value::Other(it) => f.write_str(it),
        }
    }
}

pub(crate) fn fault(field: impl Into<String>, expected: &str, got: &str) -> Fault {
    Fault { field: field.into(), expected: expected.to_owned(), got: got.to_owned() }
}

pub(crate) fn unexpected(field: impl Into<String>, expected: &str, got: Option<&Value>) -> Fault {
    let got = got.map_or_else(|| "nothing".to_owned(), ToString::to_string);
    fault(field, expected, &got)
}

/// At most 80 characters and no control character, so that a bad row never garbles a terminal.
pub(crate) fn shorten(text: &str) -> String {
    hapo_core::excerpt(text, 80)
}

/// The object in the bytes of one row of a text file; `first` says whether a byte order mark may
/// stand before it.
pub(crate) fn parse_row(bytes: &[u8], first: bool) -> Result<Object, Fault> {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").filter(|_| first).unwrap_or(bytes);
    let text = std::str::from_utf8(bytes).map_err(|error| {
        fault("row", "UTF-8", &format!("an invalid byte at position {}", error.valid_up_to() + 1))
    })?;
    serde_json::from_str(&without_lone_surrogates(text)).map_err(|error| {
        let got = if error.is_data() {
            shorten(text.trim())
        } else {
            // A row has its own number; serde's "at line 1" beside it would mislead.
            let reason = error.to_string();
            let reason = reason.split(" at line ").next().unwrap_or_default();
            format!("{reason} at column {} of {}", error.column(), shorten(text.trim()))
        };
        fault("row", "one JSON object", &got)
    })
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Object;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut fields = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    fields.push(entry);
                }
                Ok(Object(fields))
            }
        }
        deserializer.deserialize_map(Keys)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Value;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON value")
            }
            fn visit_unit<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }
            fn visit_bool<E>(self, it: bool) -> Result<Value, E> {
                Ok(Value::Bool(it))
            }
            fn visit_u64<E>(self, it: u64) -> Result<Value, E> {
                Ok(Value::Int(it.into()))
            }
            fn visit_i64<E>(self, it: i64) -> Result<Value, E> {
                Ok(Value::Int(it.into()))
            }
            fn visit_f64<E>(self, it: f64) -> Result<Value, E> {
                Ok(Value::Float(it))
            }
            fn visit_str<E>(self, it: &str) -> Result<Value, E> {
                Ok(Value::Text(it.to_owned()))
            }
            fn visit_string<E>(self, it: String) -> Result<Value, E> {
                Ok(Value::Text(it))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
                let mut items = Vec::new();
                while let Some(it) = seq.next_element()? {
                    items.push(it);
                }
                Ok(Value::List(items))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    fields.push(entry);
                }
                Ok(Value::Object(Object(fields)))
            }
        }
        deserializer.deserialize_any(Any)
    }
}
