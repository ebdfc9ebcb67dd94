//! Ways in which problems are laid out in rows: [`DATASET_LAYOUTS`] is a table of where each keeps its parts.
//!
//! A layout is recognised by rules over its fields and read from their paths. A function is needed only where a part
//! depends on another. How to add one: `docs/guides/add-a-layout.md`.

mod begin;
mod columns;
mod fields;
mod question;
mod table;

use crate::value::{Object, Result, Value, fault, unexpected};
use crate::{container::Container, example::Example};
use fields::{
    gold, gold_from_teacher, gold_of, is_worked, label, messages, problem_in, set_prompt,
    set_text_or_messages, solution, solutions, teachers, thought, with_solutions,
};

#[cfg(test)]
pub(crate) use fields::last_boxed;

pub(crate) use begin::only_says_the_answer;
pub use columns::{Columns, NamedColumns};
pub use fields::golds_in;
pub(crate) use question::whole;
pub use table::DATASET_LAYOUTS;
pub(crate) use table::{COLUMNS, OWN};

#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// Its name in `hapo list layouts` and in statistics.
    pub name: &'static str,
    pub summary: &'static str,
    /// Keys of a row that are read, or known and rightly left alone; others are counted as ignored.
    pub keys: &'static [&'static [&'static str]],
    /// Keys have any case.
    pub(crate) folds: bool,
    /// How well a row fits, by the first rule that it meets: `a` has that field, `!a` has it not, `a|b` has one of both,
    /// `a[]` is a list, `a####` a text that marks its answer, `a~` messages that a template was put around, `@alone` has
    /// one field in a file of columns. The layout with the largest sum over the first rows of a file reads it; of equal
    /// ones the first in the table.
    pub(crate) fit: &'static [(&'static str, u32)],
    /// Reads what the paths below cannot say.
    pub(crate) begin: fn(&mut Example, &Object) -> Result<()>,
    pub(crate) prompt: Prompt,
    pub(crate) gold: Gold,
    pub(crate) teachers: &'static [Teachers],
    pub(crate) labels: Labels,
}

/// Where the problem is, in the first of several fields that a row has.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Prompt {
    Begun,
    Text(&'static [&'static str]),
    TextOrMessages(&'static str),
    Messages(&'static str),
    /// The first message, which a template was already put around.
    Rendered(&'static str),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Gold {
    Begun,
    /// The field of a structure, where the row has the structure.
    In(&'static str, &'static str),
    First(&'static [&'static str]),
    /// The first of these fields, or else the final answer of the teacher's solution.
    OrTeachers(&'static [&'static str]),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Teachers {
    /// A text or a list of them, none empty.
    Texts(&'static str),
    FirstMessage(&'static str),
    /// The same of a list of targets.
    FirstMessages(&'static str),
    /// The first two texts of a list, of each what stands in `<think>`.
    Thoughts(&'static str),
    /// A solution beside the answer, where it is one and no teacher is named.
    Beside(&'static str),
}

/// Paths of what identifies a problem, each the first that a row has. What is in a structure may be of any type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Labels {
    pub(crate) id: &'static [&'static str],
    pub(crate) source: &'static [&'static str],
    pub(crate) level: &'static [&'static str],
    pub(crate) subject: &'static [&'static str],
}

impl Layout {
    /// True of a key that is read, or rightly left alone.
    pub(crate) fn knows(&self, name: &str) -> bool {
        let mut keys = self.keys.iter().copied().flatten();
        keys.any(|it| if self.folds { it.eq_ignore_ascii_case(name) } else { *it == name })
    }

    pub(crate) fn fit(&self, row: &Object, container: Container) -> u32 {
        let meets = |word: &str| match word.strip_prefix('!') {
            Some(name) => !row.has(name),
            None if word == "@alone" => {
                row.0.len() == 1 && matches!(container, Container::Parquet | Container::Arrow)
            }
            None => word.split('|').any(|name| self.has(row, name)),
        };
        let rule = self.fit.iter().find(|rule| rule.0.split(' ').all(meets));
        rule.map_or(0, |rule| rule.1)
    }

    fn has(&self, row: &Object, name: &str) -> bool {
        if let Some(name) = name.strip_suffix("[]") {
            return matches!(row.get(name), Some(Value::List(_)));
        }
        if let Some(name) = name.strip_suffix("####") {
            return matches!(row.get(name), Some(Value::Text(text)) if text.contains("####"));
        }
        if let Some(name) = name.strip_suffix('~') {
            let turns = messages(row.get(name), name).unwrap_or_default();
            return matches!(&turns[..], [only] if problem_in(&only.content).is_some());
        }
        if self.folds { row.any_case(name).is_some() } else { at(row, name).is_some() }
    }

    /// The first of these fields that is there and not null, as it is written.
    fn first<'a>(&self, row: &'a Object, names: &[&'static str]) -> Option<(&'a str, &'a Value)> {
        names.iter().find_map(|name| {
            if self.folds {
                return row.any_case(name);
            }
            Some((*name, row.some(name)?))
        })
    }

    pub(crate) fn read(&self, row: &Object) -> Result<Example> {
        let mut example = Example::default();
        (self.begin)(&mut example, row)?;
        self.read_prompt(&mut example, row)?;
        match self.gold {
            Gold::Begun => {}
            Gold::In(structure, field) => match row.get(structure) {
                None => {}
                Some(Value::Object(inner)) => {
                    let field = (inner.get(field), format!("{structure}.{field}"));
                    (example.answer, example.other_answers) = gold(field.0, &field.1)?;
                }
                other => {
                    let expected = format!("a structure with {field}");
                    return Err(unexpected(structure, &expected, other));
                }
            },
            Gold::First(names) | Gold::OrTeachers(names) => match gold_of(row, names)? {
                Some(golds) => (example.answer, example.other_answers) = golds,
                None if matches!(self.gold, Gold::OrTeachers(_)) => gold_from_teacher(&mut example),
                None => return Err(unexpected(names[0], "a gold answer", None)),
            },
        }
        for teachers in self.teachers {
            teachers.read(&mut example, row)?;
        }
        if let Some(id) = self.label(row, self.labels.id, false) {
            example.id = id;
        }
        example.source = self.label(row, self.labels.source, true);
        example.level = self.label(row, self.labels.level, false);
        example.subject = self.label(row, self.labels.subject, true);
        Ok(example)
    }

    fn read_prompt(&self, example: &mut Example, row: &Object) -> Result<()> {
        match self.prompt {
            Prompt::Begun => {}
            Prompt::Text(names) => {
                let found = self.first(row, names).map(|(name, value)| (name, Some(value)));
                match found.unwrap_or((names[0], row.get(names[0]))) {
                    (_, Some(Value::Text(text))) if !text.trim().is_empty() => {
                        example.problem.clone_from(text);
                    }
                    (name, other) => {
                        return Err(unexpected(name, "a string that is not empty", other));
                    }
                }
            }
            Prompt::TextOrMessages(name) => set_text_or_messages(example, row.get(name), name)?,
            Prompt::Messages(name) => set_prompt(example, messages(row.get(name), name)?, name)?,
            Prompt::Rendered(name) => {
                let rendered = messages(row.get(name), name)?.swap_remove(0).content;
                let problem = problem_in(&rendered).filter(|problem| !problem.trim().is_empty());
                let Some(problem) = problem else {
                    let expected = "a rendered prompt, as the first rows of this file have";
                    let got = Value::Text(rendered).to_string();
                    return Err(fault(format!("{name}[0].content"), expected, &got));
                };
                example.problem = problem;
                example.rendered = Some(rendered);
            }
        }
        Ok(())
    }

    fn label(&self, row: &Object, paths: &[&'static str], text_only: bool) -> Option<String> {
        let found = paths.iter().filter_map(|path| {
            if path.contains('.') { at(row, path) } else { Some(self.first(row, &[path])?.1) }
        });
        let mut labels = found.filter_map(|value| label(value, text_only));
        labels.next().map(str::to_owned)
    }

    /// True of a label that is of another type: it is left out.
    pub(crate) fn leaves_out(&self, name: &str, value: &Value) -> bool {
        let Labels { id, source, level, subject } = self.labels;
        let is = |names: &[&str]| names.iter().any(|it| it.eq_ignore_ascii_case(name));
        let text_only = is(source) || is(subject);
        (text_only || is(id) || is(level))
            && *value != Value::Null
            && label(value, text_only).is_none()
    }
}

impl Teachers {
    fn read(self, example: &mut Example, row: &Object) -> Result<()> {
        match self {
            Teachers::Texts(name) => example.teachers.extend(teachers(row.get(name), name)?),
            Teachers::FirstMessage(name) => {
                if let Some(target) = row.some(name) {
                    example.teachers.push(solution(Some(target), name)?);
                }
            }
            Teachers::FirstMessages(name) => match row.some(name) {
                None => {}
                Some(Value::List(targets)) => {
                    for (number, target) in targets.iter().enumerate() {
                        let solution = solution(Some(target), &format!("{name}[{number}]"))?;
                        if !example.teachers.contains(&solution) {
                            example.teachers.push(solution);
                        }
                    }
                }
                other => return Err(unexpected(name, "a list of targets", other)),
            },
            Teachers::Thoughts(path) => {
                let texts = match at(row, path) {
                    None | Some(Value::Null) => &[][..],
                    Some(Value::List(texts)) => &texts[..texts.len().min(2)],
                    other => {
                        return Err(unexpected(path, "a list of solutions, none empty", other));
                    }
                };
                for (number, text) in texts.iter().enumerate() {
                    match text {
                        Value::Null => {}
                        Value::Text(text) if !thought(text).trim().is_empty() => {
                            example.teachers.push(thought(text).to_owned());
                        }
                        other => {
                            let (field, got) = (format!("{path}[{number}]"), Some(other));
                            return Err(unexpected(field, "a solution that is not empty", got));
                        }
                    }
                }
                // Both are often the same.
                example.teachers.dedup();
            }
            Teachers::Beside(path) => {
                let is_inside = path.contains('.');
                let has_teacher = row.has("teacher") || !example.teachers.is_empty();
                let value = at(row, path);
                let is_solution = matches!(value, Some(Value::Text(text)) if is_worked(text))
                    || !is_inside && row.has("answer");
                // Whatever else stands there is no solution, and no fault of a row that needs none.
                if let Some(value @ (Value::Text(_) | Value::List(_))) = value
                    && is_solution
                    && (is_inside || !has_teacher)
                    && let Ok(found) = solutions(value, path)
                {
                    with_solutions(example, found);
                }
            }
        }
        Ok(())
    }
}

/// The value under a name, or under the parts of a dotted one.
pub(crate) fn at<'a>(row: &'a Object, name: &str) -> Option<&'a Value> {
    if let Some(value) = row.get(name) {
        return Some(value);
    }
    let (first, rest) = name.split_once('.')?;
    match row.get(first)? {
        Value::Object(inner) => at(inner, rest),
        _ => None,
    }
}
