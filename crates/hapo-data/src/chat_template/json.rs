//! JSON as Python writes it.

use super::{MAX_RENDERED_BYTES, RECURSION, invalid};
use minijinja::value::{Kwargs, Value, ValueKind};
use std::fmt::Write as _;

/// `json.dumps` as transformers calls it: texts as they are, spaces after `,` and `:` unless it is indented.
#[expect(clippy::needless_pass_by_value, reason = "the signature of a filter")]
pub(super) fn tojson(value: &Value, options: Kwargs) -> Result<Value, minijinja::Error> {
    let flag = |name| options.get::<Option<bool>>(name).map(Option::unwrap_or_default);
    let (ensure_ascii, sort_keys) = (flag("ensure_ascii")?, flag("sort_keys")?);
    let indent: Option<Value> = options.get("indent")?;
    let separators: Option<Vec<String>> = options.get("separators")?;
    options.assert_all_used()?;
    let indent = indent.filter(|it| !it.is_none() && !it.is_undefined());
    let written = |it: Value| match (it.as_usize(), it.as_str()) {
        (Some(width), _) if width <= 64 => Ok(" ".repeat(width)),
        (_, Some(text)) => Ok(text.to_owned()),
        _ => Err(invalid(format!("tojson: expected an indent of at most 64, got {it}"))),
    };
    let indent = indent.map(written).transpose()?;
    let [item, key] = match separators.as_deref() {
        Some([item, key]) => [item.clone(), key.clone()],
        Some(_) => return Err(invalid("tojson: expected two separators")),
        None => [if indent.is_some() { "," } else { ", " }, ": "].map(str::to_owned),
    };
    let style = PythonJson { ensure_ascii, sort_keys, indent, item, key };
    let mut text = String::new();
    style.write(value, 0, &mut text)?;
    Ok(Value::from(text))
}

struct PythonJson {
    ensure_ascii: bool,
    sort_keys: bool,
    indent: Option<String>,
    item: String,
    key: String,
}

impl PythonJson {
    fn write(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), minijinja::Error> {
        let cannot = |what: &str| Err(invalid(format!("tojson: {what}")));
        if depth > RECURSION {
            return cannot("the value is nested too deeply");
        }
        if out.len() > MAX_RENDERED_BYTES {
            return cannot("the value is too long");
        }
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => match f64::try_from(value.clone()) {
                Ok(number) if !value.is_integer() => out.push_str(&python_float(number)),
                _ => write!(out, "{value}").expect("writing to a string never fails"),
            },
            ValueKind::String => self.quote(value.as_str().unwrap_or_default(), out),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                out.push('[');
                self.items(items.len(), depth, out, |index, out| {
                    self.write(&items[index], depth + 1, out)
                })?;
                out.push(']');
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort_keys {
                    keys.sort();
                }
                out.push('{');
                self.items(keys.len(), depth, out, |index, out| {
                    let key = &keys[index];
                    if let Some(text) = key.as_str() {
                        self.quote(text, out);
                    } else {
                        // Python turns keys that are numbers, booleans or None into texts.
                        let mut text = String::new();
                        self.write(key, depth + 1, &mut text)?;
                        self.quote(&text, out);
                    }
                    out.push_str(&self.key);
                    self.write(&value.get_item(key)?, depth + 1, out)
                })?;
                out.push('}');
            }
            kind => return cannot(&format!("expected a value of JSON, got one of kind {kind}")),
        }
        Ok(())
    }

    /// The items between the brackets of a list or an object.
    fn items(
        &self,
        length: usize,
        depth: usize,
        out: &mut String,
        item: impl Fn(usize, &mut String) -> Result<(), minijinja::Error>,
    ) -> Result<(), minijinja::Error> {
        let line = |depth: usize, out: &mut String| {
            if let Some(indent) = &self.indent {
                out.push('\n');
                out.push_str(&indent.repeat(depth));
            }
        };
        for index in 0..length {
            if index > 0 {
                out.push_str(&self.item);
            }
            line(depth + 1, out);
            item(index, out)?;
        }
        if length > 0 {
            line(depth, out);
        }
        Ok(())
    }

    fn quote(&self, text: &str, out: &mut String) {
        for c in serde_json::Value::from(text).to_string().chars() {
            if !self.ensure_ascii || (' '..='~').contains(&c) {
                out.push(c);
                continue;
            }
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}").expect("writing to a string never fails");
            }
        }
    }
}

/// `repr` of a float: shortest digits that read back, an exponent of two digits or more from 1e16 up and below 1e-4.
pub(super) fn python_float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').expect("the format writes `e`");
    let exponent: i32 = exponent.parse().expect("an exponent is an integer");
    if number != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{digits}e{sign}{:02}", exponent.abs())
    } else {
        format!("{number:?}")
    }
}
