//! TRL's SFT: `prompt` and `completion`, or the whole dialogue in `messages`, or in `text`. The assistant's last turn
//! is the teacher's solution. The gold comes from TRL's GRPO columns if the row has one, otherwise from the last box of
//! the solution; a row with neither has no gold. Beside a gold the completion may be missing: such a row has no
//! teacher. A text that is no `ChatML` dialogue is a document without a problem.

use super::fields::{
    GOLDS, IDS, LABELS, SOURCES, completion, dialogue, finish, messages, problem_in, text,
    without_end_token,
};
use super::{Layout, trl_grpo};
use crate::container::Container;
use crate::example::Example;
use crate::value::{Fault, Object};

pub(super) const LAYOUT: Layout = Layout {
    name: "trl-sft",
    summary: "prompt and completion, or messages, or text",
    keys: &[&["prompt", "completion", "messages", "text"], GOLDS, IDS, SOURCES, LABELS],
    fit,
    read,
};

fn fit(row: &Object, container: Container) -> u32 {
    let pair = row.has("prompt") && row.has("completion");
    let text_alone = row.has("text") && !row.has("problem") && !row.has("prompt");
    if pair || row.has("messages") {
        8
    } else if text_alone {
        2
    } else {
        // As well as TRL's GRPO, so that one row with a completion decides.
        trl_grpo::fit(row, container)
    }
}

fn read(row: &Object) -> Result<Example, Fault> {
    let mut example = Example::default();
    let has_completion = row.some("completion").is_some();
    if row.has("messages") && !(row.has("prompt") && has_completion) {
        dialogue(&mut example, messages(row.get("messages"), "messages")?, "messages")?;
    } else if row.has("prompt") {
        if !has_completion && !GOLDS.iter().any(|it| row.has(it)) {
            completion(row, "completion")?;
        }
        return trl_grpo::read(row);
    } else {
        split_text(&mut example, &text(row, "text")?);
    }
    finish(example, row, GOLDS)
}

/// A dialogue in one text is taken apart where it is rendered as `ChatML`. There is no telling where
/// the prompt of any other text ends: it is a document, all of it the teacher's.
fn split_text(example: &mut Example, text: &str) {
    const MARK: &str = "<|im_start|>assistant\n";
    let parts = text.rsplit_once(MARK).and_then(|(prompt, solution)| {
        let prompt = [prompt, MARK].concat();
        let solution = without_end_token(solution);
        let problem = problem_in(&prompt).filter(|it| !it.trim().is_empty())?;
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
