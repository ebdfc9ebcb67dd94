//! The line that a program or a server is given for a completion.

use hapo_verify::{Completion, Extraction, Problem, find_answer};
use serde_json::Value;
use sha2::{Digest, Sha256};

#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) gold: String,
    /// `"prompt":…,"gold":…` and so on, and a comma.
    head: String,
}

pub(crate) struct QuestionLine {
    /// The id that an answer may repeat to name its line.
    pub(crate) id: String,
    /// One JSON object and a newline.
    pub(crate) line: String,
    pub(crate) answer: Option<String>,
}

impl Question {
    pub(crate) fn new(problem: &Problem<'_>) -> Self {
        let gold = problem.golds.first().copied().unwrap_or_default().to_owned();
        let golds: Value = problem.golds.iter().copied().collect();
        let (text, row) = (Value::from(problem.text), problem.row.unwrap_or("null"));
        let first = Value::from(gold.as_str());
        let head = format!("\"prompt\":{text},\"gold\":{first},\"golds\":{golds},\"row\":{row},");
        Self { gold, head }
    }

    pub(crate) fn about(&self, completion: Completion<'_>, extraction: Extraction) -> QuestionLine {
        let found = match extraction {
            Extraction::Any => None,
            rule => find_answer(completion.text, rule).ok(),
        };
        let answer = found.map(|it| it.answer.into_owned());
        let (text, truncated) = (Value::from(completion.text), completion.truncated);
        let found = Value::from(answer.clone());
        let (head, rule) = (&self.head, extraction.name());
        let body = format!(
            "{head}\"completion\":{text},\"answer\":{found},\"extraction\":\"{rule}\",\"truncated\":{truncated}}}"
        );
        // The same line has the same id: nothing in it tells when, or by which process, it is judged.
        let digest = Sha256::digest(&body);
        let id = hapo_core::hex(&digest[..8]);
        let line = format!("{{\"id\":\"{id}\",{body}\n");
        QuestionLine { id, line, answer }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_object_that_says_all_there_is() {
        let problem = Problem {
            text: "1 + 1 =\n\"?\"",
            golds: &["2", "two"],
            row: Some("{\"tests\":[\"a\"],\"id\":3}"),
        };
        let completion = Completion { text: "so\n\\boxed{2}", truncated: true };
        let asked = Question::new(&problem).about(completion, Extraction::Boxed);
        assert_eq!(asked.line.matches('\n').count(), 1);
        let line: Value = serde_json::from_str(&asked.line).unwrap();
        assert_eq!(
            line,
            serde_json::json!({
                "id": asked.id, "prompt": "1 + 1 =\n\"?\"", "gold": "2", "golds": ["2", "two"],
                "row": {"tests": ["a"], "id": 3}, "completion": "so\n\\boxed{2}", "answer": "2",
                "extraction": "boxed", "truncated": true,
            })
        );
        let again = Question::new(&problem).about(completion, Extraction::Boxed);
        assert_eq!(asked.line, again.line);
        let any = Question::new(&problem).about(completion, Extraction::Any);
        let any: Value = serde_json::from_str(&any.line).unwrap();
        assert_eq!(any["answer"], Value::Null);
        assert_ne!(any["id"], line["id"]);
    }
}
