//! verl's rows, with the field types of verl's own preparation: strings, a list of structures for `prompt`, structures
//! with their fields in alphabetical order, `index` of 64 bits. Teachers go where LUFFY has them: the first into
//! `target`, several into `target_lst` too. Values without a column of verl's are in `extra_info`. The tokens of an
//! admitted solution may have a column of their own, for an engine to read.

use crate::example::Example;
use hapo_core::TokenId;
use serde_json::{Value, json};

const MESSAGES: &str = "(LIST) { repeated group list { optional group element {
    optional binary content (STRING); optional binary role (STRING); } } }";

/// The column of the tokens of an admitted solution, its end token last; empty where there is none. verl's own
/// distillation takes the name `teacher_ids`.
const TOKENS: &str = "hapo_teacher_ids";

/// The columns of a file whose rows have at most `teachers` teachers.
pub(super) fn schema(teachers: usize, with_tokens: bool) -> String {
    let list = "(LIST) { repeated group list {";
    let when = |is_wanted: bool, column: String| if is_wanted { column } else { String::new() };
    let tokens = format!("optional group {TOKENS} {list} optional int64 element; }} }}");
    let tokens = when(with_tokens, tokens);
    let target = when(teachers > 0, format!("optional group target {MESSAGES}"));
    let targets =
        format!("optional group target_lst {list} optional group element {MESSAGES} }} }}");
    let targets = when(teachers > 1, targets);
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

/// `data_source` of a row without a source, by which verl picks its scoring: this one compares the last box.
pub const SOURCE: &str = "lighteval/MATH";

pub(super) fn row(
    example: &Example,
    index: u64,
    teachers: usize,
    solution: Option<&[TokenId]>,
) -> Value {
    let message = |role: &str, content: &str| json!({ "content": content, "role": role });
    let turns = example.turns(None).into_iter();
    let prompt: Vec<Value> = turns.map(|turn| message(&turn.role, &turn.content)).collect();
    let target = |text: &String| json!([message("assistant", text)]);
    let has_several = teachers >= 2 && example.teachers.len() >= 2;
    let targets = || example.teachers.iter().map(target).collect::<Vec<_>>();
    let answer = Some(&example.answer).filter(|answer| !answer.is_empty());
    let mut row = json!({
        "data_source": example.source.as_deref().unwrap_or(SOURCE),
        "prompt": prompt,
        "target": example.teachers.first().map(target),
        "target_lst": has_several.then(targets),
        "ability": "math",
        "reward_model": { "ground_truth": answer, "style": "rule" },
        "extra_info": {
            "id": example.id,
            "index": index,
            "level": example.level,
            "split": "default",
            "subject": example.subject,
        },
    });
    if let Some(tokens) = solution {
        row[TOKENS] = json!(tokens);
    }
    row
}
