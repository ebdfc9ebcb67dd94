//! OAT's tables of problems: `problem` and `answer`, which is a string, a number or a list of strings,
//! depending on the file, and a `solution` in some. Many sets of the Hugging Face hub look the same.

use super::Layout;
use super::fields::{IDS, LABELS, SOURCES, gold_of, set_labels, solution_beside, text};
use super::own::teachers;
use crate::container::Container;
use crate::example::Example;
use crate::value::{Fault, Object, unexpected};

pub(super) const LAYOUT: Layout = Layout {
    name: "oat",
    summary: "problem, answer (string, number or list of strings), solution?, no id",
    keys: &[&["problem", "answer", "difficulty", "solution", "teacher"], IDS, SOURCES, LABELS],
    fit,
    read,
};

fn fit(row: &Object, _: Container) -> u32 {
    let own = row.has("id") || row.has("teacher");
    u32::from(row.has("problem") && row.has("answer") && !own) * 4
}

fn read(row: &Object) -> Result<Example, Fault> {
    let mut example = Example { problem: text(row, "problem")?, ..Example::default() };
    (example.answer, example.other_answers) =
        gold_of(row, &["answer"])?.ok_or_else(|| unexpected("answer", "a gold answer", None))?;
    // The first `teacher` of the native layout may come after the rows by which a file is recognised.
    if row.has("teacher") {
        example.teachers = teachers(row.get("teacher"))?;
    } else {
        solution_beside(&mut example, row, "solution");
    }
    set_labels(&mut example, row)?;
    if let Some(difficulty) = row.get("difficulty").and_then(crate::value::Value::number) {
        example.level.get_or_insert(difficulty);
    }
    Ok(example)
}
