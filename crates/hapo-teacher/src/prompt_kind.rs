//! How a teacher is prompted.

use serde::{Deserialize, Serialize};

/// The prompt of a teacher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptKind {
    /// The problem and its gold answer (the paper, appendix C).
    Conditioned,
    /// The problem, and to put the final answer within `\boxed{}`.
    Plain,
    /// The problem alone, for a model whose own template asks for the rest.
    Bare,
}

impl PromptKind {
    /// The text of the user's turn.
    pub fn render(self, problem: &str, answer: &str) -> String {
        match self {
            PromptKind::Conditioned => hapo_data::teacher_prompt(problem, answer),
            PromptKind::Plain => format!(
                "{problem}\n\nPlease reason step by step, and put your final answer within \\boxed{{}}."
            ),
            PromptKind::Bare => problem.to_owned(),
        }
    }
}
