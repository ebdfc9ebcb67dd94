//! The source of an example's prompt.

use crate::example::{Example, Message};
use crate::template::PromptTemplate;
use hapo_core::Refusal;

/// The text inside the template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptText<'a> {
    /// A problem; the template goes around it.
    Problem(&'a str),
    /// The whole prompt.
    Whole(&'a str),
    /// Several turns; the model's own template goes around them.
    Turns(&'a [Message]),
}

/// The text inside the template for an example. A prompt that its file holds with a template already around it is taken
/// whole under the template `none`; any other template must produce exactly that prompt from the problem, except for
/// white space at its end. A dialogue of several turns needs the model's own template.
///
/// # Errors
/// When the prompt is rendered with another template, is a dialogue that the template has no place for, or
/// is missing.
pub fn prompt_text<'a>(
    example: &'a Example,
    template: &PromptTemplate,
) -> Result<PromptText<'a>, Refusal> {
    let refuse = |problem: String| {
        let refusal = Refusal::input(format!("row {}, id {}: {problem}", example.row, example.id));
        Err(refusal.hint(
            "use the template that the file is rendered with, `none` for its prompts as they are, or \
             `hapo data convert --to own` for the problems alone",
        ))
    };
    let name = template.name();
    if let Some(whole) = &example.rendered {
        if name == "none" {
            return Ok(PromptText::Whole(whole));
        }
        if template.render(&example.problem)?.trim_end() != whole.trim_end() {
            return refuse(format!(
                "the prompt is already rendered, and not with template `{name}`"
            ));
        }
    } else if !example.messages.is_empty() {
        if let PromptTemplate::Chat(_) = template {
            return Ok(PromptText::Turns(&example.messages));
        }
        return refuse(format!(
            "the prompt is a dialogue of {} turns, for which template `{name}` has no place",
            example.messages.len()
        ));
    } else if example.problem.is_empty() {
        return refuse("a document without a problem".to_owned());
    }
    Ok(PromptText::Problem(&example.problem))
}
