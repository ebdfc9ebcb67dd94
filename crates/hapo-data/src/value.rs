//! The value of a row's field, whatever its file, and faults in it.

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// Lists and objects in one another, at most.
const NESTING: usize = 128;

/// A value of a row. Not serde's: it knows numbers that are not finite, repeated keys and the types of columns alone.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    /// A finite number in plain digits, without an exponent: see [`Value::int`] and [`Value::float`].
    Number(String),
    Text(String),
    List(Vec<Value>),
    Object(Object),
    /// A type that no layout reads, such as a date; the text names it.
    Other(&'static str),
}

/// The keys and values of an object in their order, repeated keys included.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Object(pub(crate) Vec<(String, Value)>);

pub(crate) type Result<T, E = Fault> = std::result::Result<T, E>;

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

    /// The first value under a name in any case, with the name as written.
    pub(crate) fn any_case(&self, name: &str) -> Option<(&str, &Value)> {
        let mut fields = self.0.iter().filter(|it| it.1 != Value::Null);
        fields.find(|it| it.0.eq_ignore_ascii_case(name)).map(|it| (it.0.as_str(), &it.1))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(crate) fn into_json(self) -> serde_json::Map<String, serde_json::Value> {
        let fields = self.0.into_iter();
        fields.map(|(name, it)| (name, it.into_json())).collect()
    }
}

impl Value {
    pub(crate) fn int(number: impl Into<i128>) -> Self {
        Value::Number(number.into().to_string())
    }

    /// The shortest digits that read back as this number in its own width; 142.0 is `142`. Rust's `Display` writes no
    /// exponent, which a gold answer would show to the grader as Euler's number.
    pub(crate) fn float<F: Copy + fmt::Display + Into<f64>>(number: F) -> Self {
        match number.into() {
            it if !it.is_finite() => Value::Other("a number that is not finite"),
            0.0 => Value::int(0),
            _ => Value::Number(number.to_string()),
        }
    }

    fn into_json(self) -> serde_json::Value {
        match self {
            Value::Null | Value::Other(_) => serde_json::Value::Null,
            Value::Bool(it) => it.into(),
            Value::Number(digits) => {
                let int = digits.parse::<i64>().map(Into::into);
                let int = int.or_else(|_| digits.parse::<u64>().map(Into::into));
                int.unwrap_or_else(|_| double_or_digits(digits))
            }
            Value::Text(it) => it.into(),
            Value::List(it) => it.into_iter().map(Value::into_json).collect(),
            Value::Object(it) => it.into_json().into(),
        }
    }

    /// True of a text, a list or a structure that is not empty all through.
    pub(crate) fn says_something(&self) -> bool {
        match self {
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
            Value::Text(text) => !text.trim().is_empty(),
            Value::List(items) => {
                items.iter().any(|it| matches!(it, Value::Number(_)) || it.says_something())
            }
            Value::Object(Object(fields)) => fields.iter().any(|it| it.1.says_something()),
            Value::Other(_) => true,
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn number(&self) -> Option<String> {
        match self {
            Value::Number(digits) => Some(digits.clone()),
            _ => None,
        }
    }
}

/// A number that is no integer of 64 bits, as JSON: a double that has these digits, or else a text of them. serde's
/// number has no place for more, and a gold answer needs them all.
fn double_or_digits(digits: String) -> serde_json::Value {
    /// Decimals of a double in full, at most.
    const MOST_DECIMALS: usize = 1074;
    let decimals = digits.split_once('.').map_or(0, |it| it.1.len());
    // A file has a double in its shortest form, or in a fixed number of decimals.
    let has_digits = |it: &f64| {
        it.to_string() == digits
            || (decimals <= MOST_DECIMALS && format!("{it:.decimals$}") == digits)
    };
    match digits.parse::<f64>().ok().filter(has_digits) {
        Some(double) => double.into(),
        None => digits.into(),
    }
}

/// A text that is one number in e-notation (`6.02E23`), in plain digits: in a formula, and to a grader, e is Euler's.
pub(crate) fn without_exponent(text: &str) -> Option<String> {
    text.contains(['e', 'E']).then(|| plain_digits(text)).flatten()
}

/// A text that is one number, in plain digits without zeros that say nothing.
fn plain_digits(text: &str) -> Option<String> {
    /// Zeros that are written out at most.
    const LONGEST: i64 = 1000;
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let exponent = exponent.parse::<i64>().ok().filter(|it| it.abs() <= LONGEST)?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || !digits.bytes().all(|it| it.is_ascii_digit()) {
        return None;
    }
    let point = whole.len() as i64 + exponent;
    let zeros = |count: i64| "0".repeat(usize::try_from(count).unwrap_or(0));
    let digits = format!("{}{digits}{}", zeros(1 - point), zeros(point - digits.len() as i64));
    let (whole, fraction) = digits.split_at(usize::try_from(point.max(1)).unwrap_or(1));
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    let sign = if (whole, fraction) == ("0", "") { "" } else { sign };
    Some(format!("{sign}{whole}{point}{fraction}"))
}

/// As messages show it: texts quoted, lists and objects by their kind, all shortened.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("null"),
            Value::Bool(it) => write!(f, "{it}"),
            Value::Number(digits) => f.write_str(&shorten(digits)),
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

/// The object in the bytes of one row of a text file; `first` allows a byte order mark before it.
pub(crate) fn parse_row(bytes: &[u8], first: bool) -> Result<Object> {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").filter(|_| first).unwrap_or(bytes);
    let text = std::str::from_utf8(bytes).map_err(|error| {
        fault("row", "UTF-8", &format!("an invalid byte at position {}", error.valid_up_to() + 1))
    })?;
    serde_json::from_str(&hapo_core::without_lone_surrogates(text)).map_err(|error| {
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

/// A text that is a JSON list of objects, as that list.
pub(crate) fn json_list(text: &str) -> Option<Value> {
    let is_one = text.trim_start().starts_with('[') && text.contains('{');
    let objects: Vec<Object> = is_one.then(|| serde_json::from_str(text).ok()).flatten()?;
    Some(Value::List(objects.into_iter().map(Value::Object).collect()))
}

/// A text that is a JSON list of texts, as that list. `[1, 2]` stays an interval.
pub(crate) fn json_texts(text: &str) -> Option<Value> {
    let texts: Vec<String> = serde_json::from_str(text.trim()).ok()?;
    (!texts.is_empty()).then(|| Value::List(texts.into_iter().map(Value::Text).collect()))
}

/// An object's keys and values, not read yet.
struct RawObject<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for RawObject<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = RawObject<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(RawObject(fields))
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let RawObject(fields) = RawObject::deserialize(deserializer)?;
        let fields = fields.into_iter();
        let fields = fields.map(|(name, json)| Ok((name, json_value(json.get(), 1)?)));
        fields.collect::<serde_json::Result<_>>().map(Object).map_err(D::Error::custom)
    }
}

/// A value whose syntax has been checked; numbers by their digits, since serde's hold no integer beyond 64 bits.
fn json_value(json: &str, depth: usize) -> serde_json::Result<Value> {
    if depth == NESTING {
        return Ok(Value::Other("lists or objects nested too deeply"));
    }
    let nested = |json: &RawValue| json_value(json.get(), depth + 1);
    Ok(match json.as_bytes() {
        [b'{', ..] => {
            let RawObject(fields) = serde_json::from_str(json)?;
            let fields = fields.into_iter().map(|(name, value)| Ok((name, nested(value)?)));
            Value::Object(Object(fields.collect::<serde_json::Result<_>>()?))
        }
        [b'[', ..] => {
            let items: Vec<&RawValue> = serde_json::from_str(json)?;
            Value::List(items.into_iter().map(nested).collect::<serde_json::Result<_>>()?)
        }
        [b'"', ..] => Value::Text(serde_json::from_str(json)?),
        [b't', ..] => Value::Bool(true),
        [b'f', ..] => Value::Bool(false),
        [b'n', ..] => Value::Null,
        _ if json.contains(['.', 'e', 'E']) => decimal(json),
        _ if json == "-0" => Value::int(0),
        _ => Value::Number(json.to_owned()),
    })
}

/// A number with a point or an exponent: all its digits, as far as doubles reach.
fn decimal(json: &str) -> Value {
    let double = json.parse().unwrap_or(f64::NAN);
    match plain_digits(json) {
        Some(digits) if double.is_finite() => Value::Number(digits),
        _ => Value::float(double),
    }
}
