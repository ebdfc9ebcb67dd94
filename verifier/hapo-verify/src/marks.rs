//! What an announcement announces: the rest of a line, a display, a cell of a table, elements of a list, a value of JSON.

use crate::cursor::{begins, ends, head, is_among, tail};
use crate::grader::FoundAnswer;
use crate::json::json_value;
use crate::meaning::announced_part;
use crate::normalise::is_value;
use std::borrow::Cow;
use std::ops::Range;

/// A statement of a completion.
#[derive(Debug)]
pub(crate) struct Statement<'a> {
    pub(crate) range: Range<usize>,
    pub(crate) found: FoundAnswer<'a>,
    /// It counts where nothing else does.
    pub(crate) is_weak: bool,
}

/// Most bytes between "answer" and the word or sign that announces it.
const REACH: usize = 60;

/// Most bytes behind a word that are read.
const MAX_LINE: usize = 32_768;

/// Most bytes of the line before it that are read.
const MAX_BEFORE: usize = 1_024;

/// Marks of emphasis and headings around a word.
const MARKS: &str = "*_#:=：>-–—`[]()「」【】《》 \t";

/// The statement that `word`, at `at` in `text`, announces: from the word to the end of what was read. Words without a
/// value are weak: they may say something of the answer and not what it is.
pub(crate) fn content<'a>(text: &'a str, at: usize, word: &str) -> Option<Statement<'a>> {
    let from = at + word.len();
    let text = head(text, from + MAX_LINE);
    let near = tail(&text[..at], MAX_BEFORE);
    let before = near.rsplit('\n').next().unwrap_or_default();
    let (line_start, rest) = (at - before.len(), &text[from..]);
    if let Some((value, len)) = json_value(before, rest) {
        let found =
            FoundAnswer { is_exclaimed: false, ..FoundAnswer::announced(Cow::Owned(value)) };
        return Some(Statement { range: at..from + len, found, is_weak: false });
    }
    let line = first_line(rest);
    let built = |(text, range): (Cow<'a, str>, Range<usize>), is_label: bool| {
        let is_weak = !(is_value(&text)
            || is_label && text.contains(|c: char| c.is_ascii_digit())
            || are_few_words(&text));
        Statement { range, found: FoundAnswer::announced(text), is_weak }
    };
    if before.trim_start().starts_with('|') {
        let (value, end) = cell(text, line_start, at)?;
        return Some(built((Cow::Borrowed(value), at..end), true));
    }
    let is_alone = |it: &str| it.chars().all(|c| MARKS.contains(c) || c.is_ascii_digit());
    let is_heading = line.trim_end_matches(['\r', 's']).chars().all(|c| MARKS.contains(c))
        && before.split_whitespace().filter(|it| !is_alone(it)).count() < 4
        && rest.len() > line.len();
    if is_heading {
        let (content, len) = block(&rest[line.len()..])?;
        return Some(built((content, at..from + line.len() + len), true));
    }
    if let Some(value) = value_before(before, line) {
        let start = at - before.len();
        return Some(built((Cow::Borrowed(value), start..from), false));
    }
    let (marker, is_label) = after_marker(line, word)?;
    // A mention: `end with "The answer is" and the number`.
    let behind = rest[marker..].strip_prefix(['"', '”', '\'', '’', '»']);
    if behind
        .and_then(|it| it.strip_prefix(' '))
        .is_some_and(|it| it.starts_with(char::is_alphabetic))
    {
        return None;
    }
    let is_label = is_label && before.chars().filter(|c| c.is_alphabetic()).count() < 12;
    let (content, len) = block(&rest[marker..])?;
    Some(built((content, at..from + marker + len), is_label))
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// Where the announced answer begins, behind a colon, an equals sign or a verb in the same sentence, and whether a sign
/// announces it. `rest` is what follows the word on its line.
fn after_marker(rest: &str, word: &str) -> Option<(usize, bool)> {
    if !matches!(word, "answer" | "Answer" | "ANSWER" | "Ans" | "option" | "choice") {
        return after_foreign_marker(rest);
    }
    let mut word = 0;
    for (at, c) in rest.char_indices().take_while(|it| it.0 <= REACH) {
        if c.is_ascii_alphabetic() {
            continue;
        }
        match rest[word..at].to_ascii_lowercase().as_str() {
            // A list to choose from announces none of its answers, a denial none, and what may be is not said.
            "choices" | "choice" | "options" | "option" | "not" | "cannot" | "never" | "could"
            | "might" | "may" => {
                return None;
            }
            "t" if rest[..at].ends_with("n't") || rest[..at].ends_with("n’t") => return None,
            _ if matches!(c, ':' | '=' | '：') => return Some((at + c.len_utf8(), true)),
            "is" | "are" | "be" | "equals" if word > 0 => return Some((at, false)),
            _ if ".?!".contains(c) => return None,
            _ => word = at + c.len_utf8(),
        }
    }
    matches!(&rest[word..], "is" | "are" | "equals").then_some((rest.len(), false))
}

/// True if the words behind "answer" deny it, or say what it may be: `The answer could be 12`.
pub(crate) fn is_denied_behind(rest: &str, word: &str) -> bool {
    const DENIALS: &[&str] = &["not", "cannot", "never", "could", "might", "may", "isn't", "can't"];
    let line = first_line(head(rest, REACH));
    let near =
        line.split(['.', ':', '?', '!', ',', '(']).next().unwrap_or_default().replace('’', "'");
    if word.is_ascii() && word.to_ascii_lowercase().starts_with("ans") {
        return near.split(' ').take(4).any(|it| DENIALS.contains(&it));
    }
    denies(&format!("{near} "))
        || ["ない", "ません", "아니", "아닙"].iter().any(|it| near.contains(it))
}

/// [`after_marker`] behind a word of another language than English.
fn after_foreign_marker(rest: &str) -> Option<(usize, bool)> {
    #[rustfmt::skip]
    const VERBS: [&str; 15] = [
        " ist ", " lautet ", " beträgt ", " est ", " vaut ", " es ", " é ", " è ", " равен ", " это ", "是", "为", "為",
        "は", "은",
    ];
    let signs = [":", "：", "=", " — ", " – "].iter().map(|it| (*it, true));
    let verbs = VERBS.iter().map(|it| (*it, false));
    let found = signs.chain(verbs).filter_map(|(it, sign)| Some((rest.find(it)?, it.len(), sign)));
    let (at, len, is_sign) = found.min().filter(|it| it.0 <= REACH)?;
    let behind = rest[at + len..].trim_start();
    let is_denied = denies(&format!("{} ", &rest[..at]))
        || begins(behind, &["nicht ", "kein", "pas ", "no ", "não ", "non ", "не ", "不"])
        || ends(behind.trim_end_matches(['.', '。']), &["ない", "ません", "아닙니다", "아니다"]);
    (!is_denied && !rest[..at].contains(['.', '?', '!', '。'])).then_some((at + len, is_sign))
}

/// True for words of other languages that deny.
fn denies(text: &str) -> bool {
    #[rustfmt::skip]
    const DENIALS: [&str; 21] = [
        "nicht", "kein", "falsch", " pas", "fauss", " no ", "incorrect", "incorret", "erróne", "errad", "não",
        "non ", "sbagliat", " не ", "неправильн", "неверн", "不", "错", "錯", "間違", "틀린",
    ];
    DENIALS.iter().any(|it| text.contains(it))
}

/// True if the sentence before "answer" says that it is none.
pub(crate) fn is_denied(before: &str) -> bool {
    #[rustfmt::skip]
    const DENIALS: [&str; 18] = [
        "wrong", "incorrect", "false", "mistaken", "naive", "tempting", "trap", "think", "thought", "guess", "not",
        "isn't", "never", "cannot", "previous", "suppose", "assume", "claims",
    ];
    let sentence = last_sentence(before).to_lowercase();
    let mut words = sentence.split(|c: char| !(c.is_alphanumeric() || c == '\'')).rev().take(9);
    let is_mine = ["i think", "i guess", "not only"].iter().any(|it| sentence.contains(it));
    !is_mine && words.any(|it| DENIALS.contains(&it)) || denies(&sentence.replace("incorrect", ""))
}

/// The sentence that a text ends with, of its last bytes.
fn last_sentence(before: &str) -> &str {
    let near = tail(before, 120);
    let ends = ["\n", ". ", "! ", "? ", "; ", ", ", "。"];
    let at = ends.iter().filter_map(|it| near.rfind(it).map(|at| at + it.len())).max();
    &near[at.unwrap_or(0)..]
}

/// True if the words before an empty box tell where an answer belongs.
pub(crate) fn is_echo(before: &str) -> bool {
    const WORDS: [&str; 7] = ["within", "inside", "put", "place", "enclose", "enclosed", "in"];
    let mut words = last_sentence(before).split(|c: char| !c.is_alphabetic());
    words.any(|it| WORDS.contains(&it.to_lowercase().as_str()))
}

/// True if a text between two statements says nothing but that the second one follows.
pub(crate) fn is_lead_alone(between: &str) -> bool {
    const LEADS: &str = "so thus hence therefore the final my our correct and is that which means \
        in conclusion dollars units cm then";
    let mut words = between.split(|c: char| !c.is_alphabetic()).filter(|it| !it.is_empty());
    between.len() < 80 && words.all(|it| is_among(LEADS, &it.to_lowercase()))
}

/// `42` of `So 42 is the final answer.`
fn value_before<'a>(before: &'a str, after: &str) -> Option<&'a str> {
    let ends = after.trim_start_matches(['*', '_', '$']);
    if !(ends.is_empty() || ends.starts_with(['.', '!', ',', ';'])) {
        return None;
    }
    let verbs = ["is the", "is our", "is my", "is thus the", "is therefore the"];
    let rest = before.trim_end().trim_end_matches(['*', '_']);
    let rest =
        ["final", "correct", "right"].iter().find_map(|it| rest.strip_suffix(it)).unwrap_or(rest);
    let rest = verbs.iter().find_map(|it| rest.trim_end().strip_suffix(it))?.trim_end();
    let mut value = last_sentence(rest);
    if !rest.ends_with(value) {
        return None;
    }
    for lead in ["so ", "thus", "therefore", "hence", "and ", ","] {
        let head = value.trim_start();
        if head.get(..lead.len()).is_some_and(|it| it.eq_ignore_ascii_case(lead)) {
            value = &head[lead.len()..];
        }
    }
    let value = value.trim_start_matches([',', ' ']);
    let is_short = value.split(' ').count() < 6 && !value.contains("\\boxed");
    let is_closed = value.matches('{').count() == value.matches('}').count();
    (is_value(value) && is_short && is_closed).then_some(value)
}

/// The announced answer at the beginning of `rest`, and how far it reaches: a display, elements of a list, or what is
/// left of the line; of a following one where nothing is left of this one.
fn block(rest: &str) -> Option<(Cow<'_, str>, usize)> {
    let mut at = 0;
    for _ in 0..MAX_LEADS {
        let here = &rest[at..];
        let skipped = here.len()
            - here.trim_start_matches(|c: char| c.is_whitespace() || "*_:=：`".contains(c)).len();
        let is_next_line = at > 0 || here[..skipped].contains('\n');
        at += skipped;
        let here = &rest[at..];
        let begins =
            |it: &str| here.get(..it.len()).is_some_and(|head| head.eq_ignore_ascii_case(it));
        if begins("not ") || begins("n't ") {
            // `not 44 but 45`
            at += first_line(here).find(" but ")? + 5;
            continue;
        }
        if let Some((inside, len)) = display(here) {
            return Some((Cow::Owned(inside), at + len));
        }
        let line = first_line(here);
        if line.is_empty() {
            return None;
        }
        if is_next_line && line.starts_with('|') {
            let (value, len) = only_cell(here)?;
            return Some((Cow::Borrowed(value), at + len));
        }
        let is_lead = is_next_line
            && (worth_reading(line).is_none()
                || line.trim_end().ends_with(':')
                    && !line.starts_with(|c: char| c.is_ascii_digit())
                || line.trim_start_matches(['#', '*', ' ']).len() < line.len()
                    && line.starts_with('#'));
        if is_lead {
            at += line.len();
            continue;
        }
        if is_next_line && let Some((joined, len)) = elements(here) {
            return Some((joined, at + len));
        }
        let (part, end) = sentence(line);
        let part = closed(
            part.trim_end_matches("です").trim_end_matches("입니다").trim_end_matches("이다"),
        );
        return worth_reading(part).map(|it| (Cow::Borrowed(it), at + end));
    }
    None
}

/// Most lines that lead to an answer under a heading.
const MAX_LEADS: usize = 4;

/// The part of a line that says the answer, and where it ends.
fn sentence(line: &str) -> (&str, usize) {
    let part = announced_part(line.trim_end_matches("。"));
    let has_value = |it: &str| it.contains(|c: char| c.is_ascii_digit() || matches!(c, '$' | '\\'));
    if !is_value(line) && part.len() + 2 < line.len() && !has_value(part) {
        let parts = line.split_inclusive(". ").filter(|it| has_value(it));
        if let Some(it) = parts.last() {
            return (it.trim(), line.len());
        }
    }
    (part, line.len() - line.trim_start().len() + part.len())
}

/// A text without closing signs that nothing in it opened.
fn closed(text: &str) -> &str {
    let mut text = text.trim_end();
    loop {
        let pairs =
            [("\\[", "\\]"), ("\\(", "\\)"), ("{", "}"), ("[", "]"), ("(", ")"), ("「", "」")];
        let unopened = pairs.iter().find_map(|(open, close)| {
            let inner = text.strip_suffix(close)?;
            (text.matches(close).count() > text.matches(open).count()).then_some(inner)
        });
        let odd = ["$$", "$", "\"", "**"].iter().find_map(|it| {
            let inner = text.strip_suffix(it)?;
            (text.matches(it).count() % 2 == 1).then_some(inner)
        });
        match unopened.or(odd) {
            Some(inner) => text = inner.trim_end().trim_end_matches([',', '.']),
            None => return text,
        }
    }
}

/// The formula of a display at the beginning of a text, without its full stop and number, and the display's length.
fn display(text: &str) -> Option<(String, usize)> {
    let (inside, len) = [
        ("\\[", "\\]"),
        ("$$", "$$"),
        ("\\begin{equation}", "\\end{equation}"),
        ("\\begin{align}", "\\end{align}"),
        ("\\begin{align*}", "\\end{align*}"),
        ("\\begin{aligned}", "\\end{aligned}"),
    ]
    .iter()
    .find_map(|(open, close)| {
        let inside = text.strip_prefix(open)?;
        let end = inside.find(close)?;
        Some((&inside[..end], open.len() + end + close.len()))
    })?;
    let mut inside = inside.to_owned();
    while let Some(at) = inside.find("\\tag") {
        let end = inside[at..].find('}').map_or(inside.len(), |it| at + it + 1);
        inside.replace_range(at..end, "");
    }
    for name in ["aligned", "align*", "align", "gathered", "split"] {
        let [open, close] = [format!("\\begin{{{name}}}"), format!("\\end{{{name}}}")];
        if inside.contains(&open) || text.starts_with(&open) {
            inside = inside.replace(&open, "").replace(&close, "");
            inside = inside.replace('&', " ").replace("\\\\", " ");
        }
    }
    let inside = inside.trim().trim_end_matches(['.', ',', ';']).trim();
    worth_reading(inside).map(|it| (format!("${it}$"), len))
}

/// The elements of a list that a text begins with, joined by commas; the text without the mark of the only one.
fn elements(text: &str) -> Option<(Cow<'_, str>, usize)> {
    let mut all = Vec::new();
    let mut len = 0;
    for line in text.split_inclusive('\n').take(MAX_ELEMENTS) {
        let Some(element) = without_bullet(line.trim()) else { break };
        all.push(element);
        len += line.len();
    }
    let are_values = all.iter().all(|it| is_value(it) && it.len() < 60);
    match all.as_slice() {
        [] => None,
        [first, ..] if !are_values || all.len() == 1 => {
            let (part, end) = sentence(first);
            let start = text.find(first).unwrap_or(0);
            worth_reading(closed(part)).map(|it| (Cow::Borrowed(it), start + end))
        }
        all => {
            let all: Vec<_> = all.iter().map(|it| it.trim_end_matches([',', ';', '.'])).collect();
            Some((Cow::Owned(all.join(", ")), len))
        }
    }
}

/// Most elements of a list that are read as one answer.
const MAX_ELEMENTS: usize = 16;

/// An element of a list, or a quoted line, without its mark.
pub(crate) fn without_bullet(line: &str) -> Option<&str> {
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let numbered = line[digits..].strip_prefix([')', '.']).filter(|_| (1..3).contains(&digits));
    let marked = ["- ", "* ", "• ", "+ ", "> ", "– "].iter().find_map(|it| line.strip_prefix(it));
    let quoted = line.strip_prefix('>');
    let rest = marked.or(quoted).or(numbered.filter(|it| it.starts_with(' ')))?;
    Some(rest.trim_start())
}

/// The cell that a cell with "answer" names: the next one of its row, or the one below it.
fn cell(text: &str, line_start: usize, at: usize) -> Option<(&str, usize)> {
    let mut lines = text[line_start..].split_inclusive('\n');
    let row = lines.next()?;
    let column = row[..at - line_start].matches('|').count();
    let mut below = lines.take_while(|it| it.trim_start().starts_with('|'));
    let is_rule = |it: &str| it.contains('-') && it.chars().all(|c| "|-: \t\r\n".contains(c));
    let rule = below.next();
    if rule.is_some_and(is_rule) {
        let last = below.take(MAX_ROWS).last()?;
        let value = worth_reading(last.split('|').nth(column)?)?;
        return Some((value, line_start + row.len() + rule?.len() + last.len()));
    }
    let value = worth_reading(row.split('|').nth(column + 1)?)?;
    Some((value, line_start + row.trim_end().len()))
}

/// Most rows of a table that are looked at.
const MAX_ROWS: usize = 32;

/// The last cell of a table of one row at the beginning of a text.
fn only_cell(text: &str) -> Option<(&str, usize)> {
    let rows = text.split_inclusive('\n').take(MAX_ROWS);
    let rows: Vec<&str> = rows.take_while(|it| it.trim_start().starts_with('|')).collect();
    let (last, len) = (rows.last()?, rows.iter().map(|it| it.len()).sum());
    let cells = last.trim().trim_matches('|');
    let value = worth_reading(cells.rsplit('|').next()?)?;
    matches!(rows.len(), 1 | 3).then_some((value, len))
}

/// The text, if it holds more than marks.
pub(crate) fn worth_reading(text: &str) -> Option<&str> {
    let text = text.trim();
    let holds = |c: char| c.is_alphanumeric() || c == '\\' || !c.is_ascii();
    text.contains(holds).then_some(text)
}

/// True for a few words that may be an answer, and not what an answer may be.
fn are_few_words(text: &str) -> bool {
    const SAID_OF_ANSWERS: &str = "\
        correct right wrong reasonable in as given expressed therefore then consistent valid found obtained also \
        already that what indeed incorrect supposed clear";
    let mut words = text.split(|c: char| !c.is_alphanumeric()).filter(|it| !it.is_empty());
    let first = words.next().unwrap_or_default().to_lowercase();
    words.count() < 4 && !is_among(SAID_OF_ANSWERS, &first)
}
