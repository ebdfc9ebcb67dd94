//! Questions whose parts are in columns of their own: a passage before it, choices behind it.
//!
//! Purpose: such a row becomes one with a whole question before a layout reads it. The choices are lettered, and the
//! gold answer is a letter, whether the row has an index, a letter or the text. Price: the columns are known by their
//! names. Others that look like a part are counted ([`Unread`](crate::Unread)).

use super::at;
use crate::value::{Fault, Object, Result, Value, fault, json_texts, unexpected};
use hapo_core::is_among;
use sha2::{Digest, Sha256};
use std::borrow::Cow;

/// In the order in which layouts prefer them.
const QUESTIONS: &[&str] =
    &["problem", "prompt", "question", "query", "instruction", "input", "question_stem", "ctx"];
/// What stands before a question, in any case. A `body` (SVAMP) and its question are one paragraph.
const CONTEXTS: &[&str] =
    &["context", "passage", "article", "paragraph", "story", "background", "body"];
const CHOICES: &[&str] = &["choices", "options", "endings"];
/// A column for each choice: what their names begin with, and the first one's ending. A letter alone is a capital.
const LETTERED: &[(&str, char)] =
    &[("", 'A'), ("option", 'a'), ("option", '1'), ("choice", 'a'), ("choice", '1'), ("op", 'a')];
/// The right choice has a column of its own, and so have the others (GPQA, `SciQ`).
const RIGHT: &str = "correctanswer";
const WRONG: &[&str] = &["incorrectanswer", "distractor", "wronganswer"];
/// Which choice is right: an index from 0, a letter, a label or the text.
const KEYS: &str = "answerkey answeridx answerindex answerletter answerlabel correctanswer correctoption \
     correctchoice correct answer finalanswer expectedanswer groundtruth gold cop label target";

/// A row with a whole question, and the columns that it was made of.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) row: Object,
    pub(crate) question: String,
    pub(crate) parts: Vec<String>,
}

/// The row with its question in one column; nothing where it is in one already.
pub(crate) fn whole(row: &Object) -> Result<Option<Whole>> {
    let row = lifted(row);
    let asked = QUESTIONS.iter().find_map(|name| match row.any_case(name) {
        Some((name, Value::Text(text))) if !text.trim().is_empty() => Some((name, text.clone())),
        _ => None,
    });
    let Some((name, mut question)) = asked.map(|(name, text)| (name.to_owned(), text)) else {
        return Ok(None);
    };
    let mut parts = Vec::new();
    for (context, value) in CONTEXTS.iter().filter_map(|name| row.any_case(name)) {
        if *context != name && put_before(&mut question, context, value) {
            parts.push(context.to_owned());
        }
    }
    let listed = CHOICES.iter().find_map(|name| {
        let (name, value) = row.any_case(name)?;
        Some((Choices::read(value)?, vec![name.to_owned()]))
    });
    let found = listed.or_else(|| in_columns(&row)).or_else(|| right_and_wrong(&row, &question));
    let (mut answer, mut keys) = (None, Vec::new());
    if let Some((choices, columns)) = found
        && let Some((right, names)) = choices.keys(&row)?
    {
        choices.put_behind(&mut question);
        answer = Some(Value::Text(letter(right).to_string()));
        parts.extend(columns);
        keys = names;
    } else if row.any_case("answer").is_none() {
        answer = span(&row)?;
    }
    if parts.is_empty() && answer.is_none() {
        return Ok(None);
    }
    let mut row = row.into_owned();
    row.0.retain(|it| {
        let is_answered = answer.is_some() && it.0.eq_ignore_ascii_case("answer");
        it.0 != name && !parts.contains(&it.0) && !keys.contains(&it.0) && !is_answered
    });
    // `plain` knows these two by their meaning alone.
    let name = if matches!(&*name, "question_stem" | "ctx") { "question".to_owned() } else { name };
    row.0.insert(0, (name, Value::Text(question.clone())));
    row.0.extend(answer.map(|it| ("answer".to_owned(), it)));
    Ok(Some(Whole { row, question, parts }))
}

/// ARC's own files have question and choices in a structure.
fn lifted(row: &Object) -> Cow<'_, Object> {
    let holds_stem = |it: &Value| matches!(it, Value::Object(inner) if inner.has("stem"));
    let place = row.0.iter().position(|it| it.0 == "question");
    let Some(place) = place.filter(|it| holds_stem(&row.0[*it].1)) else {
        return Cow::Borrowed(row);
    };
    let mut row = row.clone();
    if let (_, Value::Object(inner)) = row.0.remove(place) {
        let name = |name: String| if name == "stem" { "question".to_owned() } else { name };
        row.0.extend(inner.0.into_iter().map(|(key, value)| (name(key), value)));
    }
    Cow::Owned(row)
}

const DROP_SPANS: &str = "answers_spans.spans";

/// The spans of a passage that answer the question. `SQuAD`'s are alternatives; DROP does not say whether its are.
fn span(row: &Object) -> Result<Option<Value>> {
    if let Some(it @ Value::List(_)) = at(row, "answers.text") {
        return Ok(Some(it.clone()));
    }
    let Some(Value::List(spans)) = at(row, DROP_SPANS) else { return Ok(None) };
    match &spans[..] {
        [first, rest @ ..] if rest.iter().all(|it| it == first) => Ok(Some(first.clone())),
        _ => Err(unexpected(DROP_SPANS, "one span", at(row, DROP_SPANS))),
    }
}

/// Puts a text, or several, before a question that does not hold it yet.
pub(super) fn put_before(question: &mut String, name: &str, value: &Value) -> bool {
    let texts: Option<Vec<&str>> = match value {
        Value::Text(text) => Some(vec![text]),
        Value::List(items) => items.iter().map(Value::text).collect(),
        _ => None,
    };
    let context = texts.unwrap_or_default().join("\n\n");
    let context = context.trim();
    if context.is_empty() {
        return false;
    }
    if !question.contains(context) {
        let between = if name.eq_ignore_ascii_case("body") { " " } else { "\n\n" };
        *question = [context, between, question].concat();
    }
    true
}

#[derive(Debug, Default)]
pub(super) struct Choices {
    texts: Vec<String>,
    /// The file's own names of them, as ARC's `1` to `4`.
    labels: Vec<String>,
    right: Option<usize>,
}

fn letter(place: usize) -> char {
    char::from(b'A' + place as u8)
}

/// A name or a text without case, spaces and marks.
fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|it| it.to_ascii_lowercase()).collect()
}

/// The texts of `a ) 38 , b ) 27 , c ) none of these` or `(A) 38 (B) 27`.
fn in_one_text(text: &str) -> Option<Vec<String>> {
    let mut rest = text.trim().trim_start_matches('(');
    let mark = |rest: &str, place: usize| {
        let is_letter =
            |it: &(usize, char)| place < 26 && it.1.eq_ignore_ascii_case(&letter(place));
        rest.char_indices().filter(is_letter).find_map(|(at, _)| {
            let before = rest[..at].trim_end_matches(' ');
            let begins = before.is_empty() || before.ends_with([',', ';', '\n', '(']);
            let behind = rest[at + 1..].trim_start().strip_prefix(')')?;
            begins.then(|| (at, rest.len() - behind.len()))
        })
    };
    rest = &rest[mark(rest, 0).filter(|it| it.0 == 0)?.1..];
    let mut texts = Vec::new();
    while let Some((at, end)) = mark(rest, texts.len() + 1) {
        texts.push(rest[..at].trim_end_matches([' ', '(', ',', ';', '\n']).trim().to_owned());
        rest = &rest[end..];
    }
    texts.push(rest.trim().to_owned());
    Some(texts)
}

fn short_text(value: &Value) -> Option<String> {
    let text = value.text().map(str::to_owned).or_else(|| value.number());
    text.map(|it| it.trim().to_owned()).filter(|it| !it.is_empty())
}

impl Choices {
    /// A list of texts or of structures, a structure of two lists or of letters, or the text of a list.
    pub(super) fn read(value: &Value) -> Option<Self> {
        let list = |value: Option<&Value>| match value {
            Some(Value::List(items)) => items.iter().map(short_text).collect::<Option<Vec<_>>>(),
            _ => None,
        };
        let (texts, labels) = match value {
            Value::Text(text) => match json_texts(text) {
                Some(list) => return Self::read(&list),
                None => (in_one_text(text)?, Vec::new()),
            },
            Value::Object(it) if it.has("text") => {
                (list(it.get("text"))?, list(it.get("label")).unwrap_or_default())
            }
            Value::Object(it) => {
                let mut letters: Vec<_> =
                    it.0.iter().filter(|(_, value)| *value != Value::Null).collect();
                letters.sort_by(|a, b| a.0.cmp(&b.0));
                let is_lettered = letters
                    .iter()
                    .enumerate()
                    .all(|(n, it)| n < 26 && it.0.to_ascii_uppercase() == letter(n).to_string());
                let texts = letters.iter().map(|it| short_text(&it.1)).collect::<Option<_>>();
                (texts.filter(|_| is_lettered)?, Vec::new())
            }
            Value::List(items) if matches!(items.first(), Some(Value::Object(_))) => {
                let part = |names: [&str; 3]| {
                    let of = |item: &Value| match item {
                        Value::Object(it) => {
                            names.iter().find_map(|name| short_text(it.get(name)?))
                        }
                        _ => None,
                    };
                    items.iter().map(of).collect::<Option<Vec<_>>>()
                };
                (
                    part(["text", "value", "content"])?,
                    part(["label", "key", "id"]).unwrap_or_default(),
                )
            }
            other => (list(Some(other))?, Vec::new()),
        };
        Self::of(texts, labels)
    }

    fn of(mut texts: Vec<String>, mut labels: Vec<String>) -> Option<Self> {
        if !(2..=26).contains(&texts.len()) {
            return None;
        }
        // Choices such as `A)21` have their letters already.
        let unlettered = |(place, text): (usize, &String)| {
            let rest = text.trim_start_matches('(').strip_prefix(letter(place))?.trim_start();
            Some(rest.strip_prefix([')', '.', ':'])?.trim_start().to_owned())
        };
        if let Some(it) = texts.iter().enumerate().map(unlettered).collect() {
            texts = it;
        }
        if labels.len() != texts.len() {
            labels.clear();
        }
        Some(Self { texts, labels, right: None })
    }

    pub(super) fn put_behind(&self, question: &mut String) {
        let holds = |(place, text): (usize, &String)| {
            let forms = [") ", ". ", ": ", ")"];
            forms.iter().any(|mark| question.contains(&format!("{}{mark}{text}", letter(place))))
        };
        if self.texts.iter().enumerate().all(holds) {
            return;
        }
        let lines = self.texts.iter().enumerate();
        let lines: Vec<String> =
            lines.map(|(place, text)| format!("{}) {text}", letter(place))).collect();
        *question = format!("{}\n\n{}", question.trim_end(), lines.join("\n"));
    }

    /// The right choice by all columns that name it, and these columns.
    fn keys(&self, row: &Object) -> Result<Option<(usize, Vec<String>)>> {
        let is_key = |it: &&(String, Value)| is_among(KEYS, &plain(&it.0)) && it.1 != Value::Null;
        let mut columns: Vec<_> = row.0.iter().filter(is_key).collect();
        columns.sort_by_key(|it| KEYS.split(' ').position(|key| key == plain(&it.0)));
        if let Some(right) = self.right {
            return Ok(Some((right, columns.into_iter().map(|it| it.0.clone()).collect())));
        }
        let named = columns.iter().filter_map(|it| Some((self.place(&it.1)?, *it)));
        let named: Vec<_> = named.collect();
        let Some((right, (first, _))) = named.first() else {
            let Some((name, value)) = columns.first() else { return Ok(None) };
            return Err(self.fault(name, value));
        };
        match named.iter().find(|it| it.0 != *right) {
            Some((_, (name, value))) => {
                let expected = format!("{}, as `{first}` says", letter(*right));
                Err(unexpected(name, &expected, Some(value)))
            }
            None => Ok(Some((*right, named.iter().map(|it| it.1.0.clone()).collect()))),
        }
    }

    pub(super) fn gold(&self, name: &str, value: &Value) -> Result<String> {
        let place = self.place(value).ok_or_else(|| self.fault(name, value))?;
        Ok(letter(place).to_string())
    }

    fn fault(&self, name: &str, value: &Value) -> Fault {
        let last = letter(self.texts.len() - 1);
        let expected = format!("the letter (A to {last}), index (from 0) or text of one choice");
        fault(name, &expected, &value.to_string())
    }

    /// The choice that a value means; nothing where it means none, or more than one.
    fn place(&self, value: &Value) -> Option<usize> {
        let index = |digits: &str| digits.parse().ok().filter(|it| *it < self.texts.len());
        let label = |text: &str| self.labels.iter().position(|it| it.eq_ignore_ascii_case(text));
        let same = |text: &str| {
            let words =
                |text: &str| text.split_whitespace().map(str::to_lowercase).collect::<Vec<_>>();
            self.texts.iter().position(|it| words(it) == words(text))
        };
        match value {
            Value::Number(digits) => {
                label(digits).or_else(|| index(digits)).or_else(|| same(digits))
            }
            Value::List(items) if items.len() == 1 => self.place(&items[0]),
            Value::Text(text) => {
                let text = text.trim();
                let bare = text.trim_matches(['(', ')', '.', ':', ' ']);
                let lettered = (0..self.texts.len())
                    .find(|it| bare.eq_ignore_ascii_case(letter(*it).encode_utf8(&mut [0])));
                if let Some(place) = label(bare) {
                    return Some(place);
                }
                let mut all = [lettered, index(text), same(text)].into_iter().flatten();
                let first = all.next()?;
                all.all(|it| it == first).then_some(first)
            }
            _ => None,
        }
    }
}

fn in_columns(row: &Object) -> Option<(Choices, Vec<String>)> {
    LETTERED.iter().find_map(|(begin, first)| {
        let column = |place: u8| {
            let ending = char::from(*first as u8 + place);
            let plainly = |name: &str| if begin.is_empty() { name.to_owned() } else { plain(name) };
            let wanted = format!("{begin}{ending}");
            let (name, value) = row.0.iter().find(|it| plainly(&it.0) == wanted)?;
            Some((name.clone(), short_text(value)?))
        };
        let (names, texts): (Vec<_>, Vec<_>) = (0..26).map_while(column).unzip();
        // A and B alone may be numbers of the problem.
        let enough = texts.len() > usize::from(begin.is_empty()) + 1;
        Some((Choices::of(texts, Vec::new()).filter(|_| enough)?, names))
    })
}

/// The right choice among the wrong ones, at a place that only the texts decide.
fn right_and_wrong(row: &Object, question: &str) -> Option<(Choices, Vec<String>)> {
    let (_, right) = row.0.iter().find(|it| plain(&it.0) == RIGHT)?;
    let right = short_text(right)?;
    let is_wrong = |it: &&(String, Value)| WRONG.iter().any(|name| plain(&it.0).starts_with(name));
    let mut texts = vec![right.clone()];
    let mut names = Vec::new();
    for (name, value) in row.0.iter().filter(is_wrong) {
        match value {
            Value::List(items) => texts.extend(items.iter().filter_map(short_text)),
            other => texts.extend(short_text(other)),
        }
        names.push(name.clone());
    }
    texts.sort_by_cached_key(|it| Sha256::digest([question, "\0", it].concat()));
    let place = texts.iter().position(|it| *it == right);
    let choices = Choices::of(texts, Vec::new())?;
    Some((Choices { right: place, ..choices }, names))
}
