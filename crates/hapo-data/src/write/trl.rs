//! TRL's rows: messages in `prompt`, the gold in `solution`, and the first teacher's solution in `completion`. TRL's
//! SFT reads prompt and completion; its GRPO hands the other columns to the reward function.

use crate::example::{Example, Message};
use serde_json::{Value, json};

pub(super) const SCHEMA: &str = "message schema {
    optional group prompt (LIST) { repeated group list { optional group element {
        optional binary role (STRING); optional binary content (STRING); } } }
    optional group completion (LIST) { repeated group list { optional group element {
        optional binary role (STRING); optional binary content (STRING); } } }
    optional binary solution (STRING); optional binary id (STRING); optional binary source (STRING);
    optional binary level (STRING); optional binary subject (STRING);
}";

pub(super) fn row(example: &Example) -> Value {
    let turns = example.turns(None);
    let golds: Vec<&str> = example.golds().filter(|it| !it.is_empty()).collect();
    let solution = match &golds[..] {
        [] => Value::Null,
        [only] => json!(only),
        several => json!(several),
    };
    let completion = example.teachers.first();
    let mut row = json!({
        "prompt": turns,
        "completion": completion.map(|it| [Message::new("assistant", it)]),
        "solution": solution,
        "id": example.id,
        "source": example.source,
        "level": example.level,
        "subject": example.subject,
    });
    row.as_object_mut().expect("an object").retain(|_, value| !value.is_null());
    row
}
