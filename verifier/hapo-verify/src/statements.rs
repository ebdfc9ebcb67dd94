//! Statements: where a completion says what its answer is. A box, a pair of tags, a line `#### …`, a heading, a key of
//! JSON, or a word that announces, in ten languages. The last statement that nothing behind it takes back counts. What
//! stands in code, and words without a value, count where nothing else does. The price is that a sentence which only
//! looks like an announcement may be taken for one.

use crate::around::Around;
use crate::cursor::{head, tail};
use crate::grader::{AnswerForm, FoundAnswer};
use crate::marks::{self, Statement};
use crate::meaning::as_letter;
use crate::normalise::{are_one_list, bare, content_of, is_value, last_command, offers_another};
use crate::retractions::{is_another_case, read_behind};
use crate::verdict::Reason;
use std::borrow::Cow;
use std::ops::Range;

/// A place where a statement may begin.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: usize,
    /// The word that announces; empty for a box, `####` for a line of that kind.
    word: &'static str,
}

/// Words that announce an answer, in the languages that completions are written in.
#[rustfmt::skip]
const WORDS: [&str; 17] = [
    "answer", "Answer", "ANSWER", "Ans", "Antwort", "antwort", "réponse", "Réponse", "respuesta", "Respuesta",
    "resposta", "Resposta", "risposta", "Risposta", "ответ", "Ответ", "option",
];

/// Words of scripts without spaces.
const SIGNS: [&str; 2] = ["答", "답"];

/// Most bytes of a line behind `####` that are read.
const MAX_LINE: usize = 4_096;

/// Most marks of a completion that are looked at, from its end.
const MAX_MARKS: usize = 512;

/// The answer that a completion states, or why it states none.
pub(crate) fn stated(text: &str) -> Result<FoundAnswer<'_>, Reason> {
    let mut search = Search::of(text);
    let Statement { range, mut found, .. } = search.last().ok_or(search.missing)?;
    if let Some(value) = read_behind(&text[range.end..], &mut found.around) {
        return Ok(FoundAnswer::announced(Cow::Borrowed(value)));
    }
    match search.beside(&found, &range) {
        // A letter that is announced behind a box names the choice with its content.
        Some(before) if before.form == AnswerForm::Boxed && is_label(&found) => {
            found = FoundAnswer {
                around: Around { letter: Some(found.answer), ..before.around },
                ..before
            };
        }
        Some(other) => found.around.alternatives.push(other.answer),
        None => {}
    }
    Ok(found)
}

/// The last closed box, or why there is none.
pub(crate) fn boxed(text: &str) -> Result<FoundAnswer<'_>, Reason> {
    let start = last_command(text).ok_or(Reason::NoAnswer)?;
    let Statement { range, mut found, .. } = boxes(text, start).ok_or(Reason::UnclosedBox)?;
    read_behind(&text[range.end..], &mut found.around);
    Ok(found)
}

struct Search<'a> {
    text: &'a str,
    marks: Vec<Mark>,
    code: Vec<Range<usize>>,
    missing: Reason,
    closing_tag: Option<usize>,
    n_boxes: usize,
    /// The box that was looked at last, and its end.
    boxed: (usize, usize),
}

impl<'a> Search<'a> {
    fn of(text: &'a str) -> Search<'a> {
        let mut marks = Vec::new();
        let mut is_line_start = true;
        for (at, c) in text.char_indices() {
            let rest = &text[at..];
            let starts =
                |all: &[&'static str]| all.iter().copied().find(|it| rest.starts_with(*it));
            let word = match c {
                '\\' => starts(&["\\boxed", "\\fbox"]).map(|_| ""),
                '#' if is_line_start => starts(&["####"]),
                'a' | 'A' | 'r' | 'R' | 'о' | 'О' | 'o' => starts(&WORDS),
                '答' | '답' => starts(&SIGNS),
                _ => None,
            };
            marks.extend(word.map(|word| Mark { at, word }));
            is_line_start = c == '\n' || is_line_start && c.is_whitespace();
        }
        let skipped = marks.len().saturating_sub(MAX_MARKS);
        marks.drain(..skipped);
        let (code, missing) = (code_spans(text), Reason::NoAnswer);
        Search { text, marks, code, missing, closing_tag: None, n_boxes: 0, boxed: (usize::MAX, 0) }
    }

    /// The last statement, or else the last weak one.
    fn last(&mut self) -> Option<Statement<'a>> {
        let mut weak = None;
        while let Some(it) = self.next_back() {
            if !it.is_weak {
                return Some(it);
            }
            weak.get_or_insert(it);
        }
        weak
    }

    /// The statement before those that were given.
    fn next_back(&mut self) -> Option<Statement<'a>> {
        while let Some(mark) = self.marks.pop() {
            let found = match mark.word {
                "" => self.boxes(mark.at),
                "####" => self.line(mark.at),
                _ => self.announced(mark),
            };
            if let Some(mut it) = found {
                it.is_weak |= self.code.iter().any(|code| code.contains(&it.range.start));
                return Some(it);
            }
        }
        None
    }

    /// The statement that stands beside `chosen` at `range`, with no word of correction between them; the one before it
    /// where that one is said to be another case, or is a box with the content of a letter.
    fn beside(
        &mut self,
        chosen: &FoundAnswer<'_>,
        range: &Range<usize>,
    ) -> Option<FoundAnswer<'a>> {
        let text = self.text;
        while let Some(it) = self.next_back() {
            if it.range.end > range.start || it.is_weak {
                continue;
            }
            let between = &text[it.range.end..range.start];
            let is_box = it.found.form == AnswerForm::Boxed;
            let are_boxes = is_box && chosen.form == AnswerForm::Boxed;
            let is_beside = !are_boxes && marks::is_lead_alone(between)
                || is_box && is_label(chosen)
                || is_another_case(between);
            return is_beside.then_some(it.found);
        }
        None
    }

    fn boxes(&mut self, start: usize) -> Option<Statement<'a>> {
        self.n_boxes += 1;
        if self.missing == Reason::UnclosedBox || self.n_boxes > MAX_BOXES {
            return None;
        }
        let it = boxes(self.text, start);
        if it.is_none() {
            self.missing = Reason::UnclosedBox;
        }
        // An empty box may repeat what the prompt asks for.
        it.filter(|it| !it.found.answer.is_empty() || !marks::is_echo(&self.text[..start]))
    }

    /// True for a place inside of the box before it.
    fn is_boxed(&mut self, at: usize) -> bool {
        let Some(last) = self.marks.iter().rev().find(|it| it.word.is_empty()) else {
            return false;
        };
        if self.boxed.0 != last.at {
            let end = content_of(self.text, last.at).map_or(0, |it| it.end);
            self.boxed = (last.at, end);
        }
        at < self.boxed.1
    }

    /// `#### …`: the answer of a worked solution, or the heading of a part of it.
    fn line(&self, at: usize) -> Option<Statement<'a>> {
        let rest = &self.text[at + 4..];
        let line = head(rest, MAX_LINE).lines().next().unwrap_or_default();
        let is_last = rest[line.len()..].trim_start().is_empty();
        let content = marks::worth_reading(line)?;
        if !is_last && !is_value(content) {
            return None;
        }
        let end = at + 4 + line.len();
        Some(Statement { range: at..end, found: enclosed(content), is_weak: false })
    }

    fn announced(&mut self, mark: Mark) -> Option<Statement<'a>> {
        let (before, after) = (&self.text[..mark.at], &self.text[mark.at + mark.word.len()..]);
        if after.starts_with('>') {
            let finals = ["final_", "final-"];
            let before = finals.iter().find_map(|it| before.strip_suffix(it)).unwrap_or(before);
            if let Some(before) = before.strip_suffix("</") {
                self.closing_tag = Some(before.len());
                return None;
            }
            let (start, close) = (before.strip_suffix('<')?.len(), self.closing_tag.take()?);
            let from = mark.at + mark.word.len() + 1;
            let content = marks::worth_reading(self.text.get(from..close)?)?;
            let found = enclosed(content);
            return Some(Statement { range: start..close, found, is_weak: false });
        }
        if self.is_boxed(mark.at) {
            return None;
        }
        let is_denied = marks::is_denied(before);
        let Some(mut said) = marks::content(self.text, mark.at, mark.word) else {
            let mut found = FoundAnswer::announced(Cow::Borrowed(""));
            found.around.is_denied = true;
            let range = mark.at..mark.at + mark.word.len();
            let denied = Statement { range, found, is_weak: true };
            return marks::is_denied_behind(after, mark.word).then_some(denied);
        };
        said.found.around.is_denied = is_denied;
        said.is_weak |= is_denied;
        Some(said)
    }
}

/// True for an announced answer that is the letter of a choice.
fn is_label(found: &FoundAnswer<'_>) -> bool {
    found.form == AnswerForm::Announced
        && as_letter(&found.answer).is_some_and(|it| it.is_ascii_uppercase())
}

/// An answer that marks enclose: of several values none is the first.
fn enclosed(content: &str) -> FoundAnswer<'_> {
    let joined = [" or ", "\\text{ or }", " / "].iter().any(|it| content.contains(it));
    let is_balanced = content.matches('{').count() == content.matches('}').count();
    let found = FoundAnswer::announced(Cow::Borrowed(content));
    let passage =
        if joined && is_balanced { format!("\\boxed{{{content}}}").into() } else { found.passage };
    FoundAnswer { passage, is_exclaimed: false, ..found }
}

impl<'a> FoundAnswer<'a> {
    /// An announced answer, without the words that announce it.
    pub(crate) fn announced(content: Cow<'a, str>) -> FoundAnswer<'a> {
        let marks = |c: char| c.is_whitespace() || "*_`".contains(c);
        FoundAnswer {
            form: AnswerForm::Announced,
            passage: Cow::Owned(format!("answer: {content}")),
            is_exclaimed: content.trim_end_matches(marks).ends_with('!'),
            answer: match content {
                Cow::Borrowed(it) => Cow::Borrowed(bare(it)),
                Cow::Owned(it) => Cow::Owned(bare(&it).to_owned()),
            },
            around: Around::default(),
        }
    }
}

/// Most bytes on each side of a box that are read for what is around it.
const MAX_AROUND: usize = 16_384;

/// Most bytes before a box that are searched for another one.
const MAX_APART: usize = 2_048;

/// Most boxes that are looked at as statements.
const MAX_BOXES: usize = 48;

/// The last box that begins before `end`.
fn box_before(text: &str, end: usize) -> Option<usize> {
    let near = tail(&text[..end], MAX_APART);
    Some(end - near.len() + last_command(near)?)
}

/// Most boxes that form one list.
const MAX_LISTED: usize = 64;

/// Most bytes between two boxes that are offered as two cases.
const MAX_BETWEEN: usize = 140;

/// The box that begins at `start`, and those before it as far as they form a list; `None` where it is not closed.
fn boxes(text: &str, start: usize) -> Option<Statement<'_>> {
    let (last, end) = if let Some(it) = content_of(text, start) {
        (it.clone(), it.end + 1)
    } else {
        let it = unbraced(text, start)?;
        // The reference is shown what follows the number, if anything does.
        let next = text[it.end..].chars().next().map_or(0, char::len_utf8);
        (it.clone(), it.end + next)
    };
    let (passage, answer) = enclosing_box(text, start, last.end)
        .unwrap_or_else(|| (listed(text, start, &last)..end, last));
    // A box without braces ends with its number.
    let end = if text[answer.end..].starts_with('}') { passage.end } else { answer.end };
    let found = FoundAnswer {
        around: Around::of(
            tail(&text[..passage.start], MAX_AROUND),
            head(&text[end..], MAX_AROUND),
        ),
        form: AnswerForm::Boxed,
        passage: Cow::Borrowed(&text[passage.clone()]),
        answer: Cow::Borrowed(text[answer].trim()),
        is_exclaimed: false,
    };
    Some(Statement { range: passage.start..end, found, is_weak: false })
}

/// Where the list begins that the box at `start` ends.
fn listed(text: &str, start: usize, last: &Range<usize>) -> usize {
    let (mut first, mut next) = (start, last.clone());
    for _ in 1..MAX_LISTED {
        if let Some(start) = box_before(text, first)
            && let Some(content) = content_of(&text[..first], start)
            && let between = &text[content.end + 1..first]
            && (are_one_list(between, &text[content.clone()], &text[next.clone()])
                || between.len() < MAX_BETWEEN && offers_another(between))
        {
            (first, next) = (start, content);
        } else {
            break;
        }
    }
    first
}

/// The outermost box that holds the one which begins at `start` and ends at `end`, where it says more than that one.
fn enclosing_box(text: &str, start: usize, end: usize) -> Option<(Range<usize>, Range<usize>)> {
    let (mut outermost, mut before) = (None, start);
    for _ in 0..MAX_NESTED {
        let Some(outer) = box_before(text, before) else { break };
        if let Some(content) = content_of(text, outer).filter(|it| it.end > end) {
            let says_more =
                |part: &str| part.contains(|c: char| !c.is_whitespace() && !"{}$.,".contains(c));
            if says_more(&text[content.start..start]) || says_more(&text[end..content.end]) {
                outermost = Some((outer..content.end + 1, content));
            }
        }
        before = outer;
    }
    outermost
}

/// Most boxes before the last that are looked at.
const MAX_NESTED: usize = 8;

/// The content of a box without braces: the number or command behind `\boxed`.
fn unbraced(text: &str, start: usize) -> Option<Range<usize>> {
    let after = text[start..].strip_prefix("\\boxed ")?.trim_start();
    let from = text.len() - after.len();
    let len = after.find(|c: char| c.is_whitespace() || matches!(c, '$' | ',' | ';' | '{'));
    let content = after[..len.unwrap_or(after.len())].trim_end_matches('.');
    let is_number = content.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b'.' | b'/'));
    (is_number && !content.is_empty()).then(|| from..from + content.len())
}

/// Fenced blocks of a programming language, and comments.
fn code_spans(text: &str) -> Vec<Range<usize>> {
    const TEXTS: [&str; 10] =
        ["", "json", "text", "txt", "plaintext", "markdown", "md", "latex", "tex", "math"];
    let mut spans = Vec::new();
    let mut open: Option<(usize, bool)> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let plain = line.trim();
        if let Some(name) = plain.strip_prefix("```") {
            open = match open {
                Some((start, is_code)) => {
                    if is_code {
                        spans.push(start..at);
                    }
                    None
                }
                None => Some((at, !TEXTS.contains(&name.trim().to_ascii_lowercase().as_str()))),
            };
        } else if open.is_none() && (plain.starts_with("<!--") || plain.starts_with("% ")) {
            spans.push(at..at + line.len());
        }
        at += line.len();
    }
    if let Some((start, true)) = open {
        spans.push(start..text.len());
    }
    spans
}
