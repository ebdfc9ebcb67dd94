//! One problem of a data set.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Example {
    /// Unique in its dataset.
    pub id: String,
    /// The text that goes into a template.
    pub problem: String,
    /// The gold answer, as the grader will read it. Empty where the file has none.
    pub answer: String,
    /// Further accepted gold answers; see [`Example::golds`]. Nearly always empty.
    pub other_answers: Vec<String>,
    /// The teachers' solutions, as the assistant would say them, without the end token. Often empty.
    pub teachers: Vec<String>,
    /// Hints that the problem may be shown with, the weakest first. Nearly always empty.
    pub hints: Vec<String>,
    pub source: Option<String>,
    /// How hard it is, in the words of its source.
    pub level: Option<String>,
    pub subject: Option<String>,
    /// The system's text that the file puts before the problem: used by the model's own template and by servers,
    /// where the run has none. Other templates bring their own.
    pub system: Option<String>,
    /// The prompt as a dialogue, with its system text, where it is more than that and one turn of the user.
    pub messages: Vec<Message>,
    /// The whole prompt, where the file holds it with a template already put around the problem.
    pub rendered: Option<String>,
    /// The whole row as a JSON object, where [`Reading::keeps_fields`](crate::Reading::keeps_fields) says so.
    pub fields: Option<String>,
    /// Its line or row in the file, from 1; 0 without a file.
    pub row: u64,
    /// Further rows that ask and answer the same: sets for avg@32 hold 32 copies of a problem.
    pub copies: u32,
}

impl Example {
    /// k of avg@k: how often the file has this problem.
    pub fn k(&self) -> u32 {
        self.copies + 1
    }

    /// The gold answers; matching any of them is correct.
    pub fn golds(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.answer.as_str()).chain(self.other_answers.iter().map(String::as_str))
    }

    /// The prompt as messages, under the run's own system text where there is one.
    pub fn turns(&self, system: Option<&str>) -> Vec<Message> {
        let mut turns = match &self.messages[..] {
            [] => vec![Message::new("user", &self.problem)],
            turns => turns.to_vec(),
        };
        if let Some(text) = system.or(self.system.as_deref()) {
            if turns[0].role == "system" {
                turns.remove(0);
            }
            turns.insert(0, Message::new("system", text));
        }
        turns
    }
}

/// What an assistant says after a thought, which stands in tags unless the text has it already.
pub fn with_thought(thought: &str, text: &str) -> String {
    let thought = thought.trim();
    if text.contains(thought) {
        text.to_owned()
    } else {
        format!("{THINK}{thought}{THOUGHT}{text}")
    }
}

/// The tags of a thought where a template has no others.
pub(crate) const THINK: &str = "<think>\n";
pub(crate) const THOUGHT: &str = "\n</think>\n\n";

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user` or `assistant`, or whatever else the template knows.
    pub role: String,
    pub content: String,
}

impl Message {
    pub fn new(role: &str, content: impl Into<String>) -> Self {
        Self { role: role.to_owned(), content: content.into() }
    }
}
