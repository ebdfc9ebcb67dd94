//! A question with its output, as in `OpenRLHF` and Alpaca: `input` (a string or messages) with `output`, a solution, or `label`, the gold; its other
//! usual names are `question` and `instruction` for the first, `response` for the second. Without a
//! label the last box of the solution is the gold.

use super::Layout;
use super::fields::{
    IDS, LABELS, SOURCES, completion, finish, optional_text, set_text_or_messages,
};
use crate::container::Container;
use crate::example::Example;
use crate::value::{Fault, Object};

pub(super) const LAYOUT: Layout = Layout {
    name: "input-output",
    summary: "input or question or instruction, output or response, label?",
    keys: &[INPUTS, OUTPUTS, &["label"], IDS, SOURCES, LABELS],
    fit,
    read,
};

const INPUTS: &[&str] = &["input", "question", "instruction"];
const OUTPUTS: &[&str] = &["output", "response"];

fn fit(row: &Object, _: Container) -> u32 {
    let any = |names: &[&str]| names.iter().any(|it| row.has(it));
    let v0 = any(&["gt_answer", "ground_truth_answer"]);
    u32::from(any(INPUTS) && (any(OUTPUTS) || row.has("label")) && !v0) * 4
}

fn read(row: &Object) -> Result<Example, Fault> {
    let first = |names: &[&'static str]| names.iter().copied().find(|it| row.has(it));
    let mut example = Example::default();
    // Alpaca's rows have an instruction and an input that may be empty.
    if row.has("instruction") {
        set_text_or_messages(&mut example, row, "instruction")?;
        if let Some(input) = optional_text(row, "input")?.filter(|it| !it.trim().is_empty()) {
            example.problem = format!("{}\n{input}", example.problem);
            example.rendered = None;
        }
    } else {
        set_text_or_messages(&mut example, row, first(INPUTS).unwrap_or("input"))?;
    }
    if let Some(output) = first(OUTPUTS) {
        example.teachers.push(completion(row, output)?);
    } else if !row.has("label") {
        completion(row, "output")?;
    }
    finish(example, row, &["label"])
}
