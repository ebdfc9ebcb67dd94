//! Rows of a problem and its answer, under common names: `question` and `answer`, AIME's `Problem`, `Answer` and
//! `Solution`, `hendrycks_math`'s `problem` and `solution`. Case is ignored. The gold is the answer, or the solution's
//! final answer.

use super::Layout;
use super::fields::{
    IDS, gold, gold_of_solution, is_worked, optional_label, optional_text, solutions,
    with_solutions,
};
use crate::container::Container;
use crate::example::Example;
use crate::value::{Fault, Object, Value, unexpected};

pub(crate) const LAYOUT: Layout = Layout {
    name: "plain",
    summary: "problem or question, answer or solution, in any case",
    keys: &[PROBLEMS, ANSWERS, SOLUTIONS, IDS, LEVELS, SUBJECTS, &["source"]],
    fit,
    read,
};

const PROBLEMS: &[&str] = &["problem", "question", "query"];
const ANSWERS: &[&str] = &["answer", "final_answer", "expected_answer", "gold", "ground_truth"];
const SOLUTIONS: &[&str] = &["solution", "solutions", "teacher", "rationale"];
const LEVELS: &[&str] = &["level", "difficulty"];
const SUBJECTS: &[&str] = &["subject", "type"];

fn fit(row: &Object, _: Container) -> u32 {
    let any = |names: &[&str]| names.iter().any(|it| row.any_case(it).is_some());
    u32::from(any(PROBLEMS) && (any(ANSWERS) || any(SOLUTIONS))) * 3
}

fn read(row: &Object) -> Result<Example, Fault> {
    let first = |names: &[&str]| names.iter().find_map(|it| row.any_case(it));
    let mut example = Example::default();
    match first(PROBLEMS) {
        Some((_, Value::Text(text))) if !text.trim().is_empty() => example.problem.clone_from(text),
        Some((name, other)) => {
            return Err(unexpected(name, "a string that is not empty", Some(other)));
        }
        None => return Err(unexpected("problem", "a string that is not empty", None)),
    }
    let mut found = Vec::new();
    for (name, value) in SOLUTIONS.iter().filter_map(|it| row.any_case(it)) {
        found.extend(solutions(value, name)?);
    }
    match first(ANSWERS) {
        Some((name, Value::Text(text))) if is_worked(text) => {
            example.answer = gold_of_solution(text, name)?;
            found.insert(0, text.clone());
        }
        Some((name, value)) => (example.answer, example.other_answers) = gold(Some(value), name)?,
        None => {
            let solution = found.first();
            let missing = || unexpected("answer", "a gold answer", None);
            example.answer = gold_of_solution(solution.ok_or_else(missing)?, "solution")?;
        }
    }
    with_solutions(&mut example, found);
    let label = |names: &[&str]| match first(names) {
        Some((name, _)) => optional_label(row, name),
        None => Ok(None),
    };
    example.id = label(IDS)?.unwrap_or_default();
    example.level = label(LEVELS)?;
    for (names, into) in [(&["source"][..], &mut example.source), (SUBJECTS, &mut example.subject)]
    {
        if let Some((name, _)) = first(names) {
            *into = optional_text(row, name)?;
        }
    }
    Ok(example)
}
