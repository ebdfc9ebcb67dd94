//! A layout by the user's column names.

use super::at;
use super::fields::{gold, gold_of_solution, is_worked, label, set_text_or_messages, solutions};
use super::question::{Choices, put_before};
use crate::value::{Object, Result, Value, unexpected};
use crate::{example::Example, refuse::unknown};
use hapo_core::{Refusal, expected};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Names of the columns, for files that no layout fits. Dots lead into structures: `reward_model.ground_truth`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Columns {
    /// The problem: a text, or messages.
    pub problem: String,
    /// What stands before the problem: texts, or lists of texts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<String>,
    /// Choices, which stand behind the problem with letters: `answer` is then an index from 0, a letter or a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choices: Option<String>,
    /// The gold answer: a text, a number, or a list of them; of a worked solution, its final answer. Without it, the
    /// first solution's final answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// The teachers' solutions: texts, lists of texts, or messages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub teacher: Vec<String>,
    /// Hints, the weakest first: texts, or lists of texts. They are shown where `data.hints = "column"`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hint: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
}

impl Columns {
    /// Reads `problem=NAME,answer=NAME,teacher=NAME,teacher=NAME`.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let mut it = Self::default();
        for part in text.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            let (field, name) = part.split_once('=').unwrap_or((part, ""));
            let name = name.trim().to_owned();
            match field.trim() {
                "problem" => it.problem = name,
                "context" => it.context.push(name),
                "choices" => it.choices = Some(name),
                "answer" => it.answer = Some(name),
                "teacher" => it.teacher.push(name),
                "hint" => it.hint.push(name),
                "id" => it.id = Some(name),
                "source" => it.source = Some(name),
                "level" => it.level = Some(name),
                "subject" => it.subject = Some(name),
                other => {
                    let known = "problem, answer, teacher, context, choices, hint, id, source, level, subject";
                    return Err(unknown("column", other, std::iter::once(known)));
                }
            }
        }
        it.check(true)?;
        Ok(it)
    }

    /// Checks that there is a problem column and, if responses are `graded`, one with answers or solutions.
    pub fn check(&self, graded: bool) -> Result<(), Refusal> {
        let missing = if self.problem.is_empty() {
            "problem"
        } else if graded && self.answer.is_none() && self.teacher.is_empty() {
            "answer or teacher"
        } else if self.names().any(str::is_empty) {
            "the name of a column behind each ="
        } else {
            return Ok(());
        };
        let hint = "as in problem=question, answer=final_answer, teacher=solution";
        Err(expected(missing).about("columns").hint(hint))
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let optional =
            [&self.choices, &self.answer, &self.id, &self.source, &self.level, &self.subject];
        let optional = optional.into_iter().flatten();
        let lists = self.teacher.iter().chain(&self.hint).chain(&self.context);
        std::iter::once(&self.problem).chain(lists).chain(optional).map(String::as_str)
    }

    pub(crate) fn reads(&self, name: &str) -> bool {
        self.names().any(|it| it == name || it.split('.').next() == Some(name))
    }

    pub(crate) fn read(&self, row: &Object) -> Result<Example> {
        let mut example = Example::default();
        let problem = at(row, &self.problem);
        set_text_or_messages(&mut example, problem, &self.problem)?;
        for name in &self.context {
            put_before(&mut example.problem, name, at(row, name).unwrap_or(&Value::Null));
        }
        let choices = self.choices.as_ref().map(|name| {
            let value = at(row, name);
            let read = value.and_then(Choices::read);
            read.ok_or_else(|| unexpected(name, "a list of 2 to 26 choices", value))
        });
        let choices = choices.transpose()?;
        if let Some(it) = &choices {
            it.put_behind(&mut example.problem);
        }
        let mut teachers = Vec::new();
        for (names, texts) in [(&self.teacher, &mut teachers), (&self.hint, &mut example.hints)] {
            for name in names {
                texts.extend(solutions(at(row, name).unwrap_or(&Value::Null), name)?);
            }
        }
        match &self.answer {
            None => {
                let first = teachers.first().map(|it| gold_of_solution(it, &self.teacher[0]));
                example.answer = first.transpose()?.unwrap_or_default();
            }
            Some(name) => match (at(row, name), &choices) {
                (value, Some(choices)) => {
                    example.answer = choices.gold(name, value.unwrap_or(&Value::Null))?;
                }
                (Some(Value::Text(text)), None) if is_worked(text) => {
                    example.answer = gold_of_solution(text, name)?;
                }
                (value, None) => (example.answer, example.other_answers) = gold(value, name)?,
            },
        }
        // Named by the user, so also one that only says the answer again.
        for it in teachers {
            if !example.teachers.contains(&it) {
                example.teachers.push(it);
            }
        }
        let label =
            |name: &Option<String>| label(at(row, name.as_deref()?)?, false).map(str::to_owned);
        example.id = label(&self.id).unwrap_or_default();
        example.source = label(&self.source);
        example.level = label(&self.level);
        example.subject = label(&self.subject);
        Ok(example)
    }
}

/// Columns that are named, and what the rows have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedColumns {
    /// Those that no row has.
    pub missing: Vec<String>,
    /// Fields of the rows until none is missing, at most 64 names.
    pub present: BTreeSet<String>,
}

impl NamedColumns {
    pub(crate) fn add(&mut self, row: &Object) {
        if self.missing.is_empty() {
            return;
        }
        self.missing.retain(|name| at(row, name).is_none());
        for (name, _) in &row.0 {
            if self.present.len() < 64 && !self.present.contains(name) {
                self.present.insert(name.clone());
            }
        }
    }
}
