//! TRAPO's training files: verl with the teachers in `extra_info.answer_list`. The first two are used: of each the text
//! inside `<think>…</think>`, or all of it without that tag. The problem is the last message; the system's text before
//! it is ignored.

use super::Layout;
use super::fields::without_end_token;
use super::verl;
use crate::container::Container;
use crate::example::Example;
use crate::value::{Fault, Object, Value, unexpected};

pub(super) const LAYOUT: Layout = Layout {
    name: "trapo",
    summary: "verl with extra_info.answer_list: the teachers' solutions",
    keys: verl::KEYS,
    fit,
    read,
};

fn fit(row: &Object, _: Container) -> u32 {
    let has_list = match row.get("extra_info") {
        Some(Value::Object(info)) => info.has("answer_list"),
        _ => false,
    };
    u32::from(row.has("prompt") && has_list) * 100
}

fn read(row: &Object) -> Result<Example, Fault> {
    const FIELD: &str = "extra_info.answer_list";
    const EXPECTED: &str = "a list of solutions, none empty";
    let mut example = verl::read(row)?;
    example.system = None;
    example.messages.clear();
    let list = match row.get("extra_info") {
        Some(Value::Object(info)) => info.some("answer_list"),
        _ => None,
    };
    match list {
        None => {}
        Some(Value::List(solutions)) => {
            for (number, it) in solutions.iter().take(2).enumerate() {
                match it {
                    Value::Null => {}
                    Value::Text(text) if !thought(text).trim().is_empty() => {
                        example.teachers.push(thought(text).to_owned());
                    }
                    other => {
                        let field = format!("{FIELD}[{number}]");
                        return Err(unexpected(field, "a solution that is not empty", Some(other)));
                    }
                }
            }
        }
        other => return Err(unexpected(FIELD, EXPECTED, other)),
    }
    // Both are often the same.
    example.teachers.dedup();
    Ok(example)
}

fn thought(text: &str) -> &str {
    text.split_once("<think>")
        .and_then(|(_, rest)| rest.split_once("</think>"))
        .map_or_else(|| without_end_token(text), |(thought, _)| thought)
}
