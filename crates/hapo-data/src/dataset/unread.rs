//! Fields that no layout reads, and what is lost with them.

use crate::value::{Object, Value, shorten};
use hapo_core::{Refusal, counted, is_among};
use serde::Serialize;
use std::collections::BTreeMap;

/// Fields that are not read, each with the number of rows that have it; at most 64 names of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Unread {
    /// All of them: a misspelt `teacher` shows up here.
    pub ignored_fields: BTreeMap<String, u64>,
    /// Those that look like worked solutions.
    pub unread_solutions: BTreeMap<String, u64>,
    /// Labels (source, level, subject, id) of a type that no label has.
    pub labels_left_out: BTreeMap<String, u64>,
    /// Those that look like a part of the question: choices, passages, pictures, tools.
    pub unread_questions: BTreeMap<String, u64>,
}

impl Unread {
    pub(super) fn add(&mut self, name: &str, value: &Value) {
        // How `hapo teacher` came to its solutions: `system` in it is what the teacher was asked.
        if matches!(value, Value::Object(it) if name == "provenance" && it.get("traces").is_some())
        {
            return;
        }
        if looks_like_solutions(name, value) {
            count(&mut self.unread_solutions, name);
        }
        self.add_questions(name, value);
        count(&mut self.ignored_fields, name);
    }

    /// Counts a field, or the fields of a structure, where they look like a part of the question.
    pub(super) fn add_questions(&mut self, name: &str, value: &Value) {
        if looks_like_question(name) && value.says_something() {
            count(&mut self.unread_questions, name);
        } else if let Value::Object(Object(fields)) = value {
            for (inner, value) in fields {
                if looks_like_question(inner) && value.says_something() {
                    count(&mut self.unread_questions, &format!("{name}.{inner}"));
                }
            }
        }
    }

    /// Why rows of a file are not whole: every field with a part of the question is named.
    pub fn not_whole(&self, file: &str) -> Option<Refusal> {
        let first = self.unread_questions.keys().next()?;
        let all = self.unread_questions.iter();
        let all = all.map(|(name, rows)| format!("`{name}` ({})", counted(*rows, "row", "rows")));
        let all = all.collect::<Vec<_>>().join(", ");
        let refusal =
            Refusal::input(format!("{file}: a part of the question is in {all}, and is not read"));
        let is = |kinds: &str| words(first).iter().any(|it| is_among(kinds, it));
        let reads = if is(PICTURES) {
            "no model here sees pictures"
        } else if is("tool function") {
            "no prompt here has tools"
        } else {
            "data.columns (--columns problem=…,context=…,choices=…) reads texts"
        };
        Some(refusal.hint(format!("{reads}; --drop {first} (data.drop) goes on without it")))
    }
}

pub(super) fn count(counts: &mut BTreeMap<String, u64>, name: &str) {
    let name = shorten(name);
    if counts.len() < 64 || counts.contains_key(&name) {
        *counts.entry(name).or_default() += 1;
    }
}

const PICTURES: &str = "image picture photo figure diagram chart plot screenshot video audio";
const PARTS: &str = "choice option alternative distractor ending context passage article paragraph body story \
     document background premise hypothesis evidence support scenario table history system \
     developer persona tool function instruction attachment ctx";
/// Words that make a name one of something about a part.
const ABOUT: &str = "id type kind length len size count num number index idx title name hash version license date \
     topic category source token score has is";

/// The words of a name in the singular: `imagePaths` and `image_path_1` are image, path.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut is_small = false;
    for it in name.chars() {
        if !it.is_ascii_alphabetic() || (it.is_ascii_uppercase() && is_small) {
            words.push(String::new());
        }
        is_small = it.is_ascii_lowercase();
        if it.is_ascii_alphabetic() {
            words.last_mut().expect("there is a word").push(it.to_ascii_lowercase());
        }
    }
    words.retain(|it| !it.is_empty());
    let singular = |it: String| match it.strip_suffix('s').filter(|_| it != "is" && it != "has") {
        Some(one) if !it.ends_with("ss") && it != "hypothesis" => match one.strip_suffix("ie") {
            Some(stem) => format!("{stem}y"),
            None => one.to_owned(),
        },
        _ => it,
    };
    words.into_iter().map(singular).collect()
}

fn looks_like_question(name: &str) -> bool {
    let words = words(name);
    let is = |kinds: &str| words.iter().any(|it| is_among(kinds, it));
    (is(PARTS) || is(PICTURES)) && !is(ABOUT)
}

/// True if an unread field holds worked solutions, by its name or by the end of its text.
fn looks_like_solutions(name: &str, value: &Value) -> bool {
    const NAMES: &str = "solution generation completion response rationale reasoning teacher explanation trace \
         thought";
    /// Shorter texts are answers.
    const SHORT: usize = 40;
    match value {
        Value::Text(text) => {
            let name = name.to_lowercase();
            let is_named = NAMES.split(' ').any(|it| name.contains(it));
            text.len() > SHORT && (is_named || text.contains("\\boxed") || text.contains("\n####"))
        }
        Value::List(items) => items.iter().any(|it| looks_like_solutions(name, it)),
        Value::Object(turn) => turn.get("content").is_some_and(|it| looks_like_solutions(name, it)),
        _ => false,
    }
}
