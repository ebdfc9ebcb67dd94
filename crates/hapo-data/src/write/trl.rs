//! TRL's rows: messages in `prompt`, the gold in `solution`, and the first teacher's solution in
//! `completion`. TRL's SFT reads prompt and completion; its GRPO hands the other columns to the reward
//! function.

use crate::example::{Example, Message};
use serde_json::{Map, Value, json};
use std::io::{self, Write};

pub(super) const SCHEMA: &str = "message schema {
    optional group prompt (LIST) { repeated group list { optional group element {
        optional binary role (STRING); optional binary content (STRING); } } }
    optional group completion (LIST) { repeated group list { optional group element {
        optional binary role (STRING); optional binary content (STRING); } } }
    optional binary solution (STRING); optional binary id (STRING); optional binary source (STRING);
    optional binary level (STRING); optional binary subject (STRING);
}";

pub(super) fn write_row(writer: &mut impl Write, example: &Example) -> io::Result<()> {
    let turn = |it: Message| json!({"role": it.role, "content": it.content});
    let prompt: Vec<Value> = example.turns(None).into_iter().map(turn).collect();
    let mut row = Map::new();
    row.insert("prompt".to_owned(), json!(prompt));
    if let Some(teacher) = example.teachers.first() {
        let turn = json!([{"role": "assistant", "content": teacher}]);
        row.insert("completion".to_owned(), turn);
    }
    if !example.other_answers.is_empty() {
        let mut golds = vec![example.answer.clone()];
        golds.extend(example.other_answers.iter().cloned());
        row.insert("solution".to_owned(), json!(golds));
    } else if !example.answer.is_empty() {
        row.insert("solution".to_owned(), json!(example.answer));
    }
    let labels = [
        ("id", Some(&example.id)),
        ("source", example.source.as_ref()),
        ("level", example.level.as_ref()),
        ("subject", example.subject.as_ref()),
    ];
    for (name, label) in labels {
        if let Some(label) = label {
            row.insert(name.to_owned(), json!(label));
        }
    }
    serde_json::to_writer(&mut *writer, &row)?;
    writer.write_all(b"\n")
}
