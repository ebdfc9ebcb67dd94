//! `ShareGPT`: `conversations`, a list of turns with `from` and `value`. The assistant's last turn is the teacher's
//! solution; the gold comes from a column beside it, or is the solution's final answer.

use super::Layout;
use super::fields::{GOLDS, IDS, LABELS, SOURCES, dialogue, finish, optional_text};
use crate::container::Container;
use crate::example::{Example, Message};
use crate::value::{Fault, Object, Value, fault, unexpected};

pub(super) const LAYOUT: Layout = Layout {
    name: "sharegpt",
    summary: "conversations (turns with from and value)",
    keys: &[&["conversations", "system"], GOLDS, IDS, SOURCES, LABELS],
    fit,
    read,
};

fn fit(row: &Object, _: Container) -> u32 {
    u32::from(matches!(row.get("conversations"), Some(Value::List(_)))) * 8
}

fn read(row: &Object) -> Result<Example, Fault> {
    const FIELD: &str = "conversations";
    let Some(Value::List(items)) = row.get(FIELD) else {
        return Err(unexpected(FIELD, "a list of turns", row.get(FIELD)));
    };
    let mut turns: Vec<Message> = Vec::new();
    if let Some(system) = optional_text(row, "system")?.filter(|it| !it.trim().is_empty()) {
        turns.push(Message::new("system", system));
    }
    for (number, item) in items.iter().enumerate() {
        turns.push(turn(item, &format!("{FIELD}[{number}]"))?);
    }
    let mut example = Example::default();
    dialogue(&mut example, turns, FIELD)?;
    finish(example, row, GOLDS)
}

/// A turn: `from` and `value`, or `role` and `content`.
fn turn(item: &Value, place: &str) -> Result<Message, Fault> {
    let Value::Object(item) = item else {
        return Err(unexpected(place, "a turn with from and value", Some(item)));
    };
    let part = |names: [&str; 2]| match names.iter().find_map(|it| item.some(it)) {
        Some(Value::Text(text)) => Ok(text.as_str()),
        other => Err(unexpected(format!("{place}.{}", names[0]), "a string", other)),
    };
    let role = match part(["from", "role"])? {
        "human" | "user" => "user",
        "gpt" | "assistant" | "chatgpt" | "model" | "bot" => "assistant",
        "system" => "system",
        other => {
            let expected = "human, gpt or system";
            return Err(fault(format!("{place}.from"), expected, &format!("{other:?}")));
        }
    };
    Ok(Message::new(role, part(["value", "content"])?))
}
