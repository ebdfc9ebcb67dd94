//! TRL's GRPO: `prompt`, a string or messages, and the gold in the reward function's column: `answer`, `solution`,
//! `ground_truth` or `label`. Of a worked solution the gold is its last box, and the solution is the teacher's. A file
//! with prompts alone has no golds. A `completion` beside them is the teacher's solution, as in TRL's SFT.

use super::Layout;
use super::fields::{
    GOLDS, IDS, LABELS, SOURCES, completion, finish, gold_of, is_worked, set_labels,
    set_text_or_messages, solution_beside,
};
use crate::container::Container;
use crate::example::Example;
use crate::value::{Fault, Object, Value};

pub(super) const LAYOUT: Layout = Layout {
    name: "trl-grpo",
    summary: "prompt (string or messages), answer or solution or ground_truth or label",
    keys: &[&["prompt", "completion"], GOLDS, IDS, SOURCES, LABELS],
    fit,
    read,
};

pub(super) fn fit(row: &Object, _: Container) -> u32 {
    let has_completion = row.has("completion") || row.has("target") || row.has("reward_model");
    let has_gold = GOLDS.iter().any(|it| row.has(it));
    if !row.has("prompt") || has_completion {
        return 0;
    }
    // Prompts alone in columns are verl's.
    if has_gold { 4 } else { 1 }
}

pub(super) fn read(row: &Object) -> Result<Example, Fault> {
    let mut example = Example::default();
    set_text_or_messages(&mut example, row, "prompt")?;
    if row.some("completion").is_some() {
        example.teachers.push(completion(row, "completion")?);
        return finish(example, row, GOLDS);
    }
    (example.answer, example.other_answers) = gold_of(row, GOLDS)?.unwrap_or_default();
    let has_answer = row.has("answer");
    if has_answer || matches!(row.get("solution"), Some(Value::Text(it)) if is_worked(it)) {
        solution_beside(&mut example, row, "solution");
    }
    set_labels(&mut example, row)?;
    Ok(example)
}
