//! Our own layout.
//!
//! `{"id": "a-1", "problem": "1+1?", "answer": "2", "teacher": "1+1:2, \\boxed{2}", "source": "…", "level": 1,
//! "subject": "…"}`. `id` (a string or a whole number), `problem` and `answer` are required; `teacher`
//! is a string or a list of strings, without end token, `answer` may be a list of gold answers, and a `solution` is one where there is no `teacher`; `level` is a string or a number; optional fields may
//! be null. Other fields are ignored and counted. An id belongs to one row.

use super::Layout;
use super::fields::{gold, optional_label, optional_text, solution_beside, text};
use crate::container::Container;
use crate::example::Example;
use crate::value::{Fault, Object, Value, fault, unexpected};

pub(crate) const LAYOUT: Layout = Layout {
    name: "own",
    summary: "problem, answer, id?, teacher? or solution?, source?, level?, subject?",
    keys: &[&["problem", "answer", "teacher", "solution", "id", "source", "level", "subject"]],
    fit,
    read,
};

fn fit(row: &Object, _: Container) -> u32 {
    match (row.has("problem"), row.has("answer")) {
        // Only some rows may have a teacher: one of them outweighs all the others that a file is recognised by.
        (true, true) if row.has("teacher") => 1000,
        (true, true) if row.has("id") => 8,
        // A row that lacks its answer is a bad row of this layout, where nothing else fits it.
        (true, _) => 1,
        (false, _) => 0,
    }
}

fn read(row: &Object) -> Result<Example, Fault> {
    let id = match row.get("id") {
        Some(Value::Number(digits)) if digits.bytes().all(|it| it.is_ascii_digit()) => {
            digits.clone()
        }
        Some(Value::Text(text)) if !text.is_empty() => text.clone(),
        // Its row's number is its id then.
        None | Some(Value::Null) => String::new(),
        other => return Err(unexpected("id", "a string or a whole number", other)),
    };
    let problem = text(row, "problem")?;
    let (answer, other_answers) = match row.get("answer") {
        Some(Value::Number(_) | Value::List(_)) => gold(row.get("answer"), "answer")?,
        _ => (text(row, "answer")?, Vec::new()),
    };
    let mut example = Example {
        id,
        problem,
        answer,
        other_answers,
        teachers: teachers(row.get("teacher"))?,
        source: optional_text(row, "source")?,
        level: optional_label(row, "level")?,
        subject: optional_text(row, "subject")?,
        ..Example::default()
    };
    if !row.has("teacher") {
        solution_beside(&mut example, row, "solution");
    }
    Ok(example)
}

pub(super) fn teachers(value: Option<&Value>) -> Result<Vec<String>, Fault> {
    const EXPECTED: &str = "a string or a list of strings, none empty";
    let texts = match value {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Text(text)) => vec![text.clone()],
        Some(Value::List(values)) => values
            .iter()
            .map(|value| match value {
                Value::Text(text) => Ok(text.clone()),
                other => Err(unexpected("teacher", EXPECTED, Some(other))),
            })
            .collect::<Result<_, _>>()?,
        other => return Err(unexpected("teacher", EXPECTED, other)),
    };
    for text in &texts {
        if text.trim().is_empty() {
            return Err(fault("teacher", EXPECTED, "an empty string"));
        }
        // The template adds the end token; a second one would be trained on.
        if let Some(end) =
            ["<|im_end|>", "<|endoftext|>"].into_iter().find(|end| text.trim_end().ends_with(end))
        {
            return Err(fault(
                "teacher",
                "a solution without its end token",
                &format!("one that ends in {end}"),
            ));
        }
    }
    Ok(texts)
}
