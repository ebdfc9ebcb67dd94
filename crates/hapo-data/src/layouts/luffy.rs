//! LUFFY's training files: verl with a nullable `target`, a list of messages; the first one's content is the teacher's
//! solution. `target_lst`, if present, holds several.

use super::Layout;
use super::fields::{messages, without_end_token};
use super::verl;
use crate::container::Container;
use crate::example::Example;
use crate::value::{Fault, Object, Value, fault, unexpected};

pub(super) const LAYOUT: Layout = Layout {
    name: "luffy",
    summary: "verl with target (messages): the teacher's solution",
    keys: verl::KEYS,
    fit,
    read,
};

fn fit(row: &Object, _: Container) -> u32 {
    let is_luffy = row.has("prompt") && row.has("reward_model") && row.has("target");
    u32::from(is_luffy) * 100
}

fn read(row: &Object) -> Result<Example, Fault> {
    let mut example = verl::read(row)?;
    if let Some(target) = row.some("target") {
        example.teachers.push(solution(Some(target), "target")?);
    }
    match row.some("target_lst") {
        None => {}
        Some(Value::List(targets)) => {
            for (number, target) in targets.iter().enumerate() {
                let solution = solution(Some(target), &format!("target_lst[{number}]"))?;
                if !example.teachers.contains(&solution) {
                    example.teachers.push(solution);
                }
            }
        }
        other => return Err(unexpected("target_lst", "a list of targets", other)),
    }
    Ok(example)
}

/// The first message of a target.
pub(super) fn solution(value: Option<&Value>, field: &str) -> Result<String, Fault> {
    let first = messages(value, field)?.swap_remove(0).content;
    let solution = without_end_token(&first);
    if solution.trim().is_empty() {
        return Err(fault(
            format!("{field}[0].content"),
            "a solution that is not empty",
            "an empty one",
        ));
    }
    Ok(solution.to_owned())
}
