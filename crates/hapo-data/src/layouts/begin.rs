//! Parts of rows that depend on one another.

use super::fields::{
    completion_of, dialogue, gold, gold_of_solution, is_worked, line_after_hashes, messages,
    optional_text, problem_in, set_prompt, set_text_or_messages, solution, solutions, text,
    with_solutions, without_end_token,
};
use crate::example::{Example, Message};
use crate::value::{Object, Result, Value, fault, unexpected};

/// The golds of TRL's columns, which its reward functions read.
pub(super) const GOLDS: &[&str] = &["answer", "solution", "ground_truth", "label"];
/// The answers and the solutions of plain rows, the first of each that a row has.
pub(super) const ANSWERS: &[&str] =
    &["answer", "final_answer", "expected_answer", "gold", "ground_truth"];
pub(super) const SOLUTIONS: &[&str] = &["solution", "solutions", "teacher", "rationale"];

pub(super) fn own(example: &mut Example, row: &Object) -> Result<()> {
    match row.get("id") {
        Some(Value::Number(digits)) if digits.bytes().all(|digit| digit.is_ascii_digit()) => {
            example.id.clone_from(digits);
        }
        Some(Value::Text(text)) if !text.is_empty() => example.id.clone_from(text),
        // Its row's number is its id then.
        None | Some(Value::Null) => {}
        other => return Err(unexpected("id", "a string or a whole number", other)),
    }
    example.problem = text(row, "problem")?;
    (example.answer, example.other_answers) = gold(row.get("answer"), "answer")?;
    Ok(())
}

pub(super) fn verl(_: &mut Example, row: &Object) -> Result<()> {
    match row.some("extra_info") {
        None | Some(Value::Object(_)) => Ok(()),
        other => Err(unexpected("extra_info", "a structure", other)),
    }
}

pub(super) fn simplerl_v0(example: &mut Example, row: &Object) -> Result<()> {
    let input = text(row, "input")?;
    let question = optional_text(row, "question").map(str::to_owned);
    example.problem = question.or_else(|| problem_in(&input)).unwrap_or_else(|| input.clone());
    example.rendered = Some(input);
    Ok(())
}

/// The solution becomes the teacher's unchanged; the text after the last `####` is the gold.
pub(super) fn gsm8k(example: &mut Example, row: &Object) -> Result<()> {
    let solution = text(row, "answer")?;
    let gold = line_after_hashes(&solution).map(|gold| gold.replace(',', ""));
    example.answer = gold.filter(|gold| !gold.is_empty()).ok_or_else(|| {
        let got = Value::Text(solution.clone()).to_string();
        fault("answer", "a solution that ends in #### and the gold", &got)
    })?;
    with_solutions(example, vec![solution]);
    Ok(())
}

pub(super) fn completion(example: &mut Example, row: &Object) -> Result<()> {
    if row.some("completion").is_some() {
        example.teachers.push(completion_of(row, "completion")?);
    }
    Ok(())
}

/// A pair, or a dialogue, or a text. Beside a gold the completion may be missing: such a row has no teacher.
pub(super) fn trl_sft(example: &mut Example, row: &Object) -> Result<()> {
    let has_completion = row.some("completion").is_some();
    if row.has("messages") && !(row.has("prompt") && has_completion) {
        let turns = messages(row.get("messages"), "messages")?;
        // A dialogue that ends with the user is a prompt, where its answer is beside it (Tulu's RLVR).
        let is_prompt = turns.last().is_some_and(|it| it.role == "user");
        if is_prompt && GOLDS.iter().any(|name| row.some(name).is_some()) {
            return set_prompt(example, turns, "messages");
        }
        return dialogue(example, turns, "messages");
    }
    if !row.has("prompt") {
        split_text(example, &text(row, "text")?);
        return Ok(());
    }
    set_text_or_messages(example, row.get("prompt"), "prompt")?;
    if has_completion || !GOLDS.iter().any(|name| row.has(name)) {
        example.teachers.push(completion_of(row, "completion")?);
    }
    Ok(())
}

/// A dialogue in one text is taken apart where it is rendered as `ChatML`. There is no telling where
/// the prompt of any other text ends: it is a document, all of it the teacher's.
fn split_text(example: &mut Example, text: &str) {
    const MARK: &str = "<|im_start|>assistant\n";
    let parts = text.rsplit_once(MARK).and_then(|(prompt, solution)| {
        let prompt = [prompt, MARK].concat();
        let solution = without_end_token(solution);
        let problem = problem_in(&prompt).filter(|problem| !problem.trim().is_empty())?;
        (!solution.trim().is_empty()).then_some((problem, prompt, solution))
    });
    let solution = match parts {
        Some((problem, prompt, solution)) => {
            example.problem = problem;
            example.rendered = Some(prompt);
            solution
        }
        None => without_end_token(text),
    };
    example.teachers.push(solution.to_owned());
}

pub(super) fn input_output(example: &mut Example, row: &Object) -> Result<()> {
    let first = |names: &[&'static str]| names.iter().copied().find(|name| row.has(name));
    let input = first(&["instruction", "input", "question"]).unwrap_or("input");
    set_text_or_messages(example, row.get(input), input)?;
    // Alpaca's rows have an instruction and an input that may be empty.
    if input == "instruction"
        && let Some(input) = optional_text(row, "input")
    {
        example.problem = format!("{}\n{input}", example.problem);
        example.rendered = None;
    }
    let output = first(&["output", "response"]);
    if output.is_some() || !row.has("label") {
        example.teachers.push(completion_of(row, output.unwrap_or("output"))?);
    }
    Ok(())
}

pub(super) fn luffy_sft(example: &mut Example, row: &Object) -> Result<()> {
    example.teachers.push(solution(row.get("target"), "target")?);
    Ok(())
}

pub(super) fn sharegpt(example: &mut Example, row: &Object) -> Result<()> {
    const FIELD: &str = "conversations";
    let mut turns = messages(row.get(FIELD), FIELD)?;
    if let Some(system) = optional_text(row, "system") {
        turns.insert(0, Message::new("system", system));
    }
    dialogue(example, turns, FIELD)
}

/// The gold is the answer, or the solution's final answer.
pub(super) fn plain(example: &mut Example, row: &Object) -> Result<()> {
    let mut found = Vec::new();
    for (name, value) in SOLUTIONS.iter().filter_map(|name| row.any_case(name)) {
        found.extend(solutions(value, name)?);
    }
    match ANSWERS.iter().find_map(|name| row.any_case(name)) {
        Some((name, Value::Text(text))) if is_worked(text) => {
            example.answer = gold_of_solution(text, name)?;
            found.insert(0, text.clone());
        }
        Some((name, value)) => (example.answer, example.other_answers) = gold(Some(value), name)?,
        None => {
            let missing = || unexpected("answer", "a gold answer", None);
            example.answer = gold_of_solution(found.first().ok_or_else(missing)?, "solution")?;
        }
    }
    with_solutions(example, found);
    Ok(())
}

/// True where a column of solutions beside an answer says that answer once more: it is left out.
pub(crate) fn only_says_the_answer(example: &Example, row: &Object, name: &str) -> bool {
    let is_solution = SOLUTIONS.iter().any(|it| it.eq_ignore_ascii_case(name))
        && ANSWERS.iter().any(|it| row.any_case(it).is_some());
    let found = row.get(name).filter(|_| is_solution).and_then(|it| solutions(it, name).ok());
    let is_left_out = |it: &String| {
        !example.teachers.contains(it) && example.golds().any(|gold| it.trim() == gold)
    };
    found.is_some_and(|it| it.iter().any(is_left_out))
}
