//! verl's rows, with the field types of verl's own preparation: strings, a list of structures for `prompt`, structures
//! with their fields in alphabetical order, `index` of 64 bits. Teachers go where LUFFY has them: the first into
//! `target`, several into `target_lst` too. Values without a column of verl's are in `extra_info`. The tokens of an
//! admitted solution may have a column of their own, for an engine to read.

use crate::example::{Example, Message};
use crate::value::{Object, Value};
use hapo_core::TokenId;
use std::io::{self, Write};

const MESSAGES: &str = "(LIST) { repeated group list { optional group element {
    optional binary content (STRING); optional binary role (STRING); } } }";

/// The column of the tokens of an admitted solution, its end token last; empty where there is none. verl's own
/// distillation takes the name `teacher_ids`.
const TOKENS: &str = "hapo_teacher_ids";

/// The columns of a file whose rows have at most `teachers` teachers.
pub(super) fn schema(teachers: usize, tokens: bool) -> String {
    let tokens = if tokens {
        format!(
            "optional group {TOKENS} (LIST) {{ repeated group list {{ optional int64 element; }} }}"
        )
    } else {
        String::new()
    };
    let target = match teachers {
        0 => String::new(),
        _ => format!("optional group target {MESSAGES}"),
    };
    let targets = match teachers {
        0 | 1 => String::new(),
        _ => format!(
            "optional group target_lst (LIST) {{ repeated group list {{
               optional group element {MESSAGES} }} }}"
        ),
    };
    format!(
        "message schema {{
           optional binary data_source (STRING);
           optional group prompt {MESSAGES}
           {target} {targets}
           optional binary ability (STRING);
           optional group reward_model {{
             optional binary ground_truth (STRING); optional binary style (STRING); }}
           optional group extra_info {{
             optional binary id (STRING); optional int64 index; optional binary level (STRING);
             optional binary split (STRING); optional binary subject (STRING); }}
           {tokens}
         }}"
    )
}

/// `data_source` of a row without a source. verl's own scoring picks its function by it; this one compares the last
/// box.
pub const SOURCE: &str = "lighteval/MATH";

/// One row as a line of JSON.
pub(super) fn write_row(
    writer: &mut impl Write,
    example: &Example,
    index: u64,
    teachers: usize,
    solution: Option<&[TokenId]>,
) -> io::Result<()> {
    let mut row = row(example, index.into(), teachers);
    if let Some(tokens) = solution {
        let tokens = tokens.iter().map(|it| Value::int(*it)).collect();
        row.0.push((TOKENS.to_owned(), Value::List(tokens)));
    }
    let row = row.into_json();
    serde_json::to_writer(&mut *writer, &row)?;
    writer.write_all(b"\n")
}

fn row(example: &Example, index: i128, teachers: usize) -> Object {
    let text = |it: &str| Value::Text(it.to_owned());
    let optional = |it: &Option<String>| it.as_deref().map_or(Value::Null, text);
    let object = |fields: Vec<(&str, Value)>| {
        let fields = fields.into_iter();
        Object(fields.map(|(name, it)| (name.to_owned(), it)).collect())
    };
    let message = |role: &str, content: &str| {
        let fields = vec![("content", text(content)), ("role", text(role))];
        Value::Object(object(fields))
    };
    let prompt = if example.messages.is_empty() {
        let system = example.system.iter();
        let system = system.map(|it| message("system", it));
        system.chain([message("user", &example.problem)]).collect()
    } else {
        let turn = |it: &Message| message(&it.role, &it.content);
        example.messages.iter().map(turn).collect()
    };
    let target = |it: &String| Value::List(vec![message("assistant", it)]);
    let targets = if teachers < 2 || example.teachers.len() < 2 {
        Value::Null
    } else {
        Value::List(example.teachers.iter().map(target).collect())
    };
    let ground_truth = match example.answer.as_str() {
        "" => Value::Null,
        answer => text(answer),
    };
    object(vec![
        ("data_source", text(example.source.as_deref().unwrap_or(SOURCE))),
        ("prompt", Value::List(prompt)),
        ("target", example.teachers.first().map_or(Value::Null, target)),
        ("target_lst", targets),
        ("ability", text("math")),
        (
            "reward_model",
            Value::Object(object(vec![("ground_truth", ground_truth), ("style", text("rule"))])),
        ),
        (
            "extra_info",
            Value::Object(object(vec![
                ("id", text(&example.id)),
                ("index", Value::int(index)),
                ("level", optional(&example.level)),
                ("split", text("default")),
                ("subject", optional(&example.subject)),
            ])),
        ),
    ])
}
