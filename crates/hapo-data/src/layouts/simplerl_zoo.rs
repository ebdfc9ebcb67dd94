//! simpleRL-Zoo: verl whose only message already is the whole prompt, template and all.

use super::Layout;
use super::fields::{messages, problem_in};
use super::verl;
use crate::container::Container;
use crate::example::Example;
use crate::value::{Fault, Object, Value, fault};

pub(super) const LAYOUT: Layout = Layout {
    name: "simplerl-zoo",
    summary: "verl whose prompt[0].content is already rendered",
    keys: verl::KEYS,
    fit,
    read,
};

fn fit(row: &Object, _: Container) -> u32 {
    let is_rendered = || match row.get("prompt") {
        Some(Value::List(items)) => match &items[..] {
            [Value::Object(only)] => match only.get("content") {
                Some(Value::Text(text)) => problem_in(text).is_some(),
                _ => false,
            },
            _ => false,
        },
        _ => false,
    };
    u32::from(row.has("reward_model") && is_rendered()) * 50
}

fn read(row: &Object) -> Result<Example, Fault> {
    const FIELD: &str = "prompt[0].content";
    let mut example = verl::labels(row)?;
    let rendered = messages(row.get("prompt"), "prompt")?.swap_remove(0).content;
    let Some(problem) = problem_in(&rendered).filter(|it| !it.trim().is_empty()) else {
        return Err(fault(
            FIELD,
            "a rendered prompt, as the first rows of this file have",
            &Value::Text(rendered).to_string(),
        ));
    };
    example.problem = problem;
    example.rendered = Some(rendered);
    Ok(example)
}
