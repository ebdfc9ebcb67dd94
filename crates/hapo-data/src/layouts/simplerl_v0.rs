//! simpleRL v0: `input` is a rendered prompt, `gt_answer` (or `ground_truth_answer`) the gold, and
//! `target` the answer too, not a solution.

use super::Layout;
use super::fields::{IDS, LABELS, SOURCES, gold_of, optional_text, problem_in, set_labels, text};
use crate::container::Container;
use crate::example::Example;
use crate::value::{Fault, Object, unexpected};

pub(super) const LAYOUT: Layout = Layout {
    name: "simplerl-v0",
    summary: "input (rendered prompt), gt_answer or ground_truth_answer, question?, subject?, level?",
    keys: &[
        &["input", "answer", "gt_answer", "ground_truth_answer", "target", "question"],
        IDS,
        SOURCES,
        LABELS,
    ],
    fit,
    read,
};

fn fit(row: &Object, _: Container) -> u32 {
    let has_gold = row.has("gt_answer") || row.has("ground_truth_answer");
    u32::from(row.has("input") && has_gold) * 8
}

fn read(row: &Object) -> Result<Example, Fault> {
    let input = text(row, "input")?;
    let question = optional_text(row, "question")?.filter(|it| !it.trim().is_empty());
    let mut example = Example {
        problem: question.or_else(|| problem_in(&input)).unwrap_or_else(|| input.clone()),
        rendered: Some(input),
        ..Example::default()
    };
    (example.answer, example.other_answers) =
        gold_of(row, &["gt_answer", "ground_truth_answer", "answer"])?
            .ok_or_else(|| unexpected("gt_answer", "a gold answer", None))?;
    set_labels(&mut example, row)?;
    Ok(example)
}
