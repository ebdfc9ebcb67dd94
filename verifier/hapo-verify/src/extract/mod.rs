//! Finds the candidates for the final answer in a completion, best first. The priorities and the shape of each
//! candidate follow Math-Verify 0.9.0: an answer that announces itself beats a box, a box beats an "answer", that beats
//! any formula or number; among equals the one that ends last, then the longest. The scanners are linear in the text:
//! whatever must be looked for ahead (a closing delimiter, the end of a run) is found once and remembered.

mod anchors;
mod formulas;
mod numbers;

use crate::normalise::CleanUp;
use crate::work;
use anchors::Anchors;
use numbers::Run;
use std::cell::RefCell;
use std::ops::Range;

/// Where a formula was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Formula {
    pub(crate) content: Range<usize>,
    /// A percent sign follows the closing delimiter.
    pub(crate) percent: bool,
    /// Found as a box without delimiters: only the last boxes count.
    pub(crate) bare_box: bool,
}

/// A find, and the way to read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// One formula, or several joined by commas, "and" or "or".
    Formulas(Vec<Formula>),
    /// A number in plain text: its integer part (with a sign and separators), its decimal part, and a percent sign.
    Number {
        integer: Range<usize>,
        decimal: Range<usize>,
        percent: bool,
    },
    Arithmetic(Range<usize>),
    Word(Range<usize>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) found: Found,
}

/// Where one kind of answer is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// Nowhere.
    Off,
    /// Only after words such as "answer".
    AfterAnchor,
    /// Everywhere.
    Anywhere,
}

/// The kinds of answers to look for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Targets {
    /// Formulas in LaTeX delimiters and boxes.
    pub latex: Search,
    /// Plain numbers and arithmetic.
    pub expressions: Search,
    /// Literal strings, such as the letters of a multiple choice; empty to look for none.
    pub strings: Vec<String>,
    /// Where they are looked for.
    pub string_search: Search,
    /// Where boxes stand among the priorities (0, 50, 100, 200, 300 are the others); `None` does not look for them.
    pub boxed_priority: Option<u32>,
    /// The clean-up of formulas before they are read.
    pub clean_up: CleanUp,
}

impl Targets {
    /// Math-Verify 0.9.0: LaTeX and expressions, boxes at 50.
    pub const DEFAULT: Targets = Targets {
        latex: Search::Anywhere,
        expressions: Search::Anywhere,
        strings: Vec::new(),
        string_search: Search::Anywhere,
        boxed_priority: Some(50),
        clean_up: CleanUp::DEFAULT,
    };
}

/// Most candidates that are tried in one priority group.
pub(crate) const MAX_CANDIDATES: usize = 48;

/// Calls `visit` with each priority group's candidates, best first, until it returns `true`.
pub(crate) fn candidates(
    text: &str,
    targets: &Targets,
    mut visit: impl FnMut(&[Candidate]) -> bool,
) {
    let mut priorities = vec![0, 50, 100, 200, 250, 300];
    if let Some(it) = targets.boxed_priority
        && targets.latex != Search::Off
        && !priorities.contains(&it)
    {
        priorities.push(it);
        priorities.sort_unstable();
    }
    let scan = Scan::new(text);
    let anchors = Anchors::of(text);
    let mut nothing = true;
    for priority in priorities {
        let mut found = Vec::new();
        if targets.latex != Search::Off && targets.boxed_priority == Some(priority) {
            scan.boxes(&mut found);
        }
        // Whether this group holds what the search is for.
        let wanted = |search: Search| {
            search == Search::Anywhere || search == Search::AfterAnchor && priority < 250
        };
        if wanted(targets.latex) {
            match priority {
                0 => anchors.announced(text, &mut found, |at| scan.formulas_at(at, Context::Plain)),
                50 => anchors.final_is(text, &mut found, Dots::MatchNewlines, |at| {
                    scan.formulas_at(scan.after_spaces(at), Context::Plain)
                }),
                100 | 200 => {
                    let read = |at| scan.formulas_at(at, Context::Plain);
                    let dots = Dots::MatchNewlines;
                    found.extend(anchors.near(text, priority == 100, 50, dots, read));
                }
                300 => scan.all_formulas(Context::Plain, &mut found),
                _ => {}
            }
        }
        if wanted(targets.expressions) {
            match priority {
                0 => anchors.announced(text, &mut found, |at| scan.expression_at(at)),
                50 => anchors
                    .final_is(text, &mut found, Dots::StopAtNewlines, |at| scan.expression_at(at)),
                100 | 200 => found.extend(anchors.near_expression(&scan, priority == 100)),
                300 => {
                    let mut memo = Run::default();
                    scan.each_start(&mut found, |at| scan.arithmetic_at(at, &mut memo));
                    scan.each_start(&mut found, |at| scan.number_at(at));
                }
                _ => {}
            }
        }
        if !targets.strings.is_empty() && wanted(targets.string_search) {
            scan.strings(&anchors, &targets.strings, priority, &mut found);
        }
        if found.is_empty() {
            continue;
        }
        // Equal spans keep the order in which the patterns are listed.
        found.sort_by(|a, b| b.end.cmp(&a.end).then(a.start.cmp(&b.start)));
        found.truncate(MAX_CANDIDATES);
        nothing = false;
        if visit(&found) {
            return;
        }
    }
    if nothing
        && targets.latex != Search::Off
        && targets.boxed_priority.is_some()
        && let Some(it) = scan.loose_box()
    {
        visit(&[it]);
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Context {
    Plain,
    /// Only formulas that hold a box.
    Boxed,
}

#[derive(Clone, Copy, PartialEq)]
enum Dots {
    MatchNewlines,
    StopAtNewlines,
}

struct Scan<'a> {
    text: &'a str,
    bytes: &'a [u8],
    /// Shared by the anchored attempts, which move forwards with small steps back.
    finders: RefCell<Finders<'a>>,
}

impl<'a> Scan<'a> {
    fn new(text: &'a str) -> Scan<'a> {
        Scan { text, bytes: text.as_bytes(), finders: RefCell::new(Finders::new(text.as_bytes())) }
    }

    /// The candidates that `find` sees where a number or a word may start, from left to right.
    fn each_start(
        &self,
        out: &mut Vec<Candidate>,
        mut find: impl FnMut(usize) -> Option<Candidate>,
    ) {
        let mut at = 0;
        while let Some(start) = self.next_start(at) {
            let found = find(start);
            at = found.as_ref().map_or(0, |it| it.end).max(start + 1);
            out.extend(found);
        }
    }

    /// Literal strings, such as the letters of a multiple choice.
    fn strings(
        &self,
        anchors: &Anchors,
        strings: &[String],
        priority: u32,
        out: &mut Vec<Candidate>,
    ) {
        let word_at = |at: usize| {
            let rest = self.text.get(at..)?;
            let found = strings.iter().find(|it| rest.starts_with(it.as_str()))?;
            Some(at..at + found.len())
        };
        let whole = |at: usize| {
            let start = self
                .after_prefix(at)
                .filter(|_| self.text[at..].starts_with(char::is_whitespace) || at == 0)?;
            let word = word_at(start)?;
            let end = self.suffix(word.end, ".,:")?;
            Some(Candidate { start: at, end, found: Found::Word(word) })
        };
        let bare = |at: usize| {
            let word = word_at(at)?;
            Some(Candidate { start: at, end: word.end, found: Found::Word(word) })
        };
        match priority {
            0 => anchors.announced(self.text, out, bare),
            50 => anchors
                .final_is(self.text, out, Dots::StopAtNewlines, |at| bare(self.after_spaces(at))),
            100 | 200 => {
                let dots = Dots::StopAtNewlines;
                out.extend(anchors.near(self.text, priority == 100, 50, dots, whole));
            }
            250 => {
                let start = if self.text.starts_with("**") { 2 } else { 0 };
                if let Some(word) = word_at(start)
                    && let Some(end) = self.suffix(word.end, ".,:")
                {
                    out.push(Candidate { start: 0, end, found: Found::Word(word) });
                }
            }
            300 => self.each_start(out, whole),
            _ => {}
        }
    }

    fn after_spaces(&self, at: usize) -> usize {
        self.text.len() - self.text[at..].trim_start().len()
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.bytes.get(at).copied()
    }

    fn before(&self, at: usize) -> Option<u8> {
        at.checked_sub(1).and_then(|it| self.byte(it))
    }
}

/// Remembers where a needle is next found, so that asking at increasing positions costs one pass in all.
struct Next<'a> {
    text: &'a [u8],
    needle: &'static [u8],
    from: usize,
    at: usize,
}

impl<'a> Next<'a> {
    fn new(text: &'a [u8], needle: &'static [u8]) -> Next<'a> {
        Next { text, needle, from: usize::MAX, at: 0 }
    }

    /// The first occurrence at or after `from`; the length if there is none.
    fn after(&mut self, from: usize) -> usize {
        let known = self.at;
        let found = self.found_after(from);
        work::count(if found == known { 1 } else { found.saturating_sub(from) });
        found
    }

    fn found_after(&mut self, from: usize) -> usize {
        if self.from != usize::MAX && from <= self.at {
            if self.from <= from {
                return self.at;
            }
            // A step back: only what is before the known stretch is new.
            let end = (self.from + self.needle.len() - 1).min(self.text.len());
            let found = self.position(from, end);
            self.from = from;
            self.at = found.unwrap_or(self.at);
            return self.at;
        }
        self.from = from.min(self.text.len());
        self.at = self.position(self.from, self.text.len()).unwrap_or(self.text.len());
        self.at
    }

    fn position(&self, from: usize, end: usize) -> Option<usize> {
        let last = (end + 1).checked_sub(self.needle.len())?;
        let mut at = from;
        while at < last {
            at += self.text[at..last].iter().position(|b| *b == self.needle[0])?;
            if self.text[at..].starts_with(self.needle) {
                return Some(at);
            }
            at += 1;
        }
        None
    }
}

struct Finders<'a> {
    dollars: Next<'a>,
    square: Next<'a>,
    round: Next<'a>,
    newline: Next<'a>,
}

impl<'a> Finders<'a> {
    fn new(text: &'a [u8]) -> Finders<'a> {
        Finders {
            dollars: Next::new(text, b"$$"),
            square: Next::new(text, b"\\]"),
            round: Next::new(text, b"\\)"),
            newline: Next::new(text, b"\n"),
        }
    }
}
