//! `namespace()`, of which none holds itself.
//!
//! Purpose: the engine prints and compares values by recursion without a bound, and a namespace that holds itself, or a
//! list that a loop nests again and again, ends the program. Only assignments to namespaces make such values. So
//! `{% set a.b = x %}` is rewritten to a call, `{% do a.set_field("b", (x)) %}`, of an object that refuses what it may not
//! hold. The engine's own assignment refuses this object: what is not rewritten is an error, never a namespace.
//!
//! Price: a second reader of the tags, which finds their ends as the engine does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use minijinja::value::{DynObject, Enumerator, Kwargs, Object, ObjectRepr, Rest, Value};
use minijinja::{Error, ErrorKind, State};

use super::bounds::{MAX_RENDERED_BYTES, end_of_text};

/// How deep a value of a namespace may be.
const DEPTH: usize = 64;
/// Values that one assignment looks at.
const VALUES: usize = 1_000_000;
/// The name that a block assignment captures before it goes to a namespace.
const CAPTURED: &str = "captured_for_a_field";

#[derive(Debug, Default)]
struct Namespace(Mutex<BTreeMap<Arc<str>, Value>>);

impl Namespace {
    fn set(&self, name: &str, value: Value) -> Result<(), Error> {
        check(&value)?;
        let mut fields = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        fields.insert(name.into(), value);
        Ok(())
    }
}

impl Object for Namespace {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let fields = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        fields.get(key.as_str()?).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let fields = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Enumerator::Values(fields.keys().cloned().map(Value::from).collect())
    }

    fn call_method(
        self: &Arc<Self>,
        _: &mut State<'_, '_>,
        method: &str,
        arguments: &[Value],
    ) -> Result<Value, Error> {
        match (method, arguments) {
            ("set_field", [name, value]) => {
                self.set(name.as_str().unwrap_or_default(), value.clone())?;
                Ok(Value::UNDEFINED)
            }
            _ => Err(Error::from(ErrorKind::UnknownMethod)),
        }
    }
}

/// Refuses a value that holds a namespace, nests too deep or is too large to tell.
fn check(value: &Value) -> Result<(), Error> {
    let refuse = |what: &str| Err(Error::new(ErrorKind::InvalidOperation, what.to_owned()));
    let mut open = vec![(value.clone(), 0)];
    let mut looked_at = 0;
    while let Some((value, depth)) = open.pop() {
        looked_at += 1;
        if value.as_str().is_some_and(|it| it.len() > MAX_RENDERED_BYTES) {
            return refuse("a namespace is given a value that is too deep or too large");
        }
        let Some(object) = value.as_object() else {
            continue;
        };
        if depth > DEPTH || looked_at > VALUES {
            return refuse("a namespace is given a value that is too deep or too large");
        }
        match object.repr() {
            _ if object.is::<Namespace>() => return refuse("a namespace is given a namespace"),
            ObjectRepr::Plain => return refuse("a namespace is given a function or a loop"),
            ObjectRepr::Map => open.extend(fields(object).map(|it| (it, depth + 1))),
            _ => open.extend(value.try_iter()?.take(VALUES).map(|it| (it, depth + 1))),
        }
    }
    Ok(())
}

/// Keys and values of a mapping.
fn fields(object: &DynObject) -> impl Iterator<Item = Value> {
    let pairs = object.try_iter_pairs().into_iter().flatten().take(VALUES);
    pairs.flat_map(|(key, value)| [key, value])
}

/// `namespace(a=1)`, `namespace({"a": 1})`.
pub(super) fn namespace(mappings: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let mut all = mappings.0;
    if named.args().next().is_some() {
        all.push(Value::from(named));
    }
    let namespace = Namespace::default();
    for mapping in all {
        for key in mapping.try_iter()? {
            namespace.set(key.as_str().unwrap_or_default(), mapping.get_item(&key)?)?;
        }
    }
    Ok(Value::from_object(namespace))
}

/// The text with assignments to namespaces as calls. `{% generation %}` marks for transformers which tokens the assistant
/// wrote; it renders its body, in a scope of its own, as `{% with %}` does.
pub(super) fn rewritten(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    // The field that each open block assignment is for, if it is one of a namespace.
    let mut blocks = Vec::new();
    while let Some(start) = first_tag(rest) {
        text.push_str(&rest[..start]);
        let (tag, after) = rest[start..].split_at(end_of_tag(&rest[start..]));
        rest = after;
        match tag.strip_prefix("{%").and_then(|it| it.strip_suffix("%}")) {
            Some(inside) => text.push_str(&statement(inside, &mut blocks)),
            None => text.push_str(tag),
        }
        if tag.starts_with("{%") && bare(tag) == "raw" {
            let end = end_of_raw(rest);
            text.push_str(&rest[..end]);
            rest = &rest[end..];
        }
    }
    text.push_str(rest);
    text
}

/// A statement without its delimiters.
fn bare(tag: &str) -> &str {
    let inside = tag.trim_start_matches("{%").trim_end_matches("%}");
    inside.trim_start_matches(['-', '+']).trim_end_matches(['-', '+']).trim()
}

fn statement(inside: &str, blocks: &mut Vec<Option<String>>) -> String {
    let open = &inside[..inside.len() - inside.trim_start_matches(['-', '+']).len()];
    let body = &inside[open.len()..];
    let close = &body[body.trim_end_matches(['-', '+']).len()..];
    let body = body[..body.len() - close.len()].trim();
    let tag = |body: &str| format!("{{%{open} {body} {close}%}}");
    let unchanged = || format!("{{%{inside}%}}");
    match body {
        "generation" => return tag("with"),
        "endgeneration" => return tag("endwith"),
        "endset" => {
            return match blocks.pop().flatten() {
                Some(call) => format!("{{%{open} endset %}}{{% do {call}{CAPTURED}) {close}%}}"),
                None => unchanged(),
            };
        }
        _ => {}
    }
    let Some(assignment) =
        body.strip_prefix("set").filter(|it| it.starts_with([' ', '\t', '\n', '\r']))
    else {
        return unchanged();
    };
    let at = assignment.find(['=', '|']).unwrap_or(assignment.len());
    let (target, value) = assignment.split_at(at);
    // `a.b` is field `b` of `a`.
    let call = target
        .trim()
        .rsplit_once('.')
        .map(|(object, field)| format!("{}.set_field(\"{}\", ", object.trim(), field.trim()));
    match (value.strip_prefix('='), call) {
        (Some(value), Some(call)) => tag(&format!("do {call}({value}))")),
        (Some(_), None) => unchanged(),
        (None, call) => {
            let captured = call.is_some();
            blocks.push(call);
            if captured { tag(&format!("set {CAPTURED} {value}")) } else { unchanged() }
        }
    }
}

/// Where the next tag begins.
fn first_tag(text: &str) -> Option<usize> {
    let starts = ["{%", "{{", "{#"].into_iter().filter_map(|it| text.find(it));
    starts.min()
}

/// Where a tag ends, its closing included: outside of texts and brackets, as the engine has it.
fn end_of_tag(tag: &str) -> usize {
    let close = match &tag[..2] {
        "{#" => return tag.find("#}").map_or(tag.len(), |it| it + 2),
        "{{" => b"}}",
        _ => b"%}",
    };
    let bytes = tag.as_bytes();
    let (mut at, mut balance) = (2, 0_isize);
    while at < bytes.len() {
        let rest = &bytes[at..];
        if balance == 0 && rest.starts_with(close) {
            return at + 2;
        }
        at += match rest[0] {
            quote @ (b'"' | b'\'') => 1 + end_of_text(&rest[1..], quote),
            b'(' | b'[' | b'{' => {
                balance += 1;
                1
            }
            b')' | b']' | b'}' => {
                balance -= 1;
                1
            }
            _ => 1,
        };
    }
    bytes.len()
}

/// Where the text of `{% raw %}` ends.
fn end_of_raw(text: &str) -> usize {
    let mut from = 0;
    while let Some(start) = text[from..].find("{%").map(|it| it + from) {
        let end = text[start..].find("%}").map_or(text.len(), |it| start + it + 2);
        if bare(&text[start..end]) == "endraw" {
            return start;
        }
        from = start + 2;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::rewritten;

    #[test]
    fn assignments_to_fields_become_calls_and_nothing_else_changes() {
        for (source, expected) in [
            ("{%- set ns.a = 1 -%}", "{%- do ns.set_field(\"a\", ( 1)) -%}"),
            ("{% set ns.a = '%}' %}x", "{% do ns.set_field(\"a\", ( '%}')) %}x"),
            (
                "{% set ns.b = ns.b + [{'a': {}}] %}",
                "{% do ns.set_field(\"b\", ( ns.b + [{'a': {}}])) %}",
            ),
            (
                "{% set ns.a %}x{%- endset -%}",
                "{% set captured_for_a_field  %}x{%- endset %}{% do ns.set_field(\"a\", captured_for_a_field) -%}",
            ),
            ("{% generation %}x{% endgeneration %}", "{% with %}x{% endwith %}"),
        ] {
            assert_eq!(rewritten(source), expected);
        }
        for same in [
            "{% set a = b.c %}",
            "{% set a %}x{% endset %}",
            "{{ '{% set ns.a = 1 %}' }}",
            "{# {% set ns.a = 1 %} #}",
            "{% raw %}{% set ns.a = 1 %}{% endraw %}",
            "{{ {'a': {'b': 1}} }}{% if a %}",
            "{% set settings = 1 %}",
        ] {
            assert_eq!(rewritten(same), same);
        }
    }
}
