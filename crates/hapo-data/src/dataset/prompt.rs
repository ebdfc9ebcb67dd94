//! The prompt of an example.

use crate::example::Example;
use crate::template::PromptTemplate;
use hapo_core::Refusal;

/// The prompt of an example. One that its file holds with a template already around it is taken whole under the template
/// `none`; any other template must produce exactly that prompt from the problem, except for white space at its end.
///
/// The model's own template renders messages whole: a system text of the file, unless the run has one, and all turns; the
/// run's suffix goes behind the last one of the user. A template of the table brings its own system text.
///
/// # Errors
/// When the prompt is rendered with another template, is a dialogue that the template has no place for, or
/// is missing.
pub fn prompt_of(example: &Example, template: &PromptTemplate) -> Result<String, Refusal> {
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
            return Ok(whole.clone());
        }
        if template.render(&example.problem)?.trim_end() != whole.trim_end() {
            return refuse(format!(
                "the prompt is already rendered, and not with template `{name}`"
            ));
        }
    } else if let (PromptTemplate::Named(_), [_, ..]) = (template, &example.messages[..]) {
        return refuse(format!(
            "the prompt is a dialogue of {} turns, for which template `{name}` has no place",
            example.messages.len()
        ));
    } else if example.problem.is_empty() {
        return refuse("a document without a problem".to_owned());
    }
    match template {
        PromptTemplate::Named(_) => template.render(&example.problem),
        PromptTemplate::Chat(chat) => chat.render(example),
    }
}
