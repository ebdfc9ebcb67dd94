//! Finds the candidates for the final answer in a completion, best first.
//!
//! The priorities and the shape of each candidate follow Math-Verify 0.9.0: an answer that announces itself beats a
//! box, a box beats an "answer", that beats any formula or number; among equals the one that ends last, then the
//! longest. The scanners are written by hand so that each is linear in the text: whatever must be looked for ahead
//! (a closing delimiter, the end of a run) is found once and remembered.

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

/// What was found, and how it is to be read.
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
    /// Digits and operators in plain text.
    Arithmetic(Range<usize>),
    /// One of the given strings.
    Word(Range<usize>),
}

/// One candidate.
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

/// What to look for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Targets {
    /// Formulas in LaTeX delimiters and boxes.
    pub latex: Search,
    /// Plain numbers and arithmetic.
    pub expressions: Search,
    /// Literal strings, such as the letters of a multiple choice; empty to look for none.
    pub strings: Vec<String>,
    /// Where boxes stand among the priorities (0, 50, 100, 200, 300 are the others); `None` does not look for them.
    pub boxed_priority: Option<u32>,
}

impl Targets {
    /// Math-Verify 0.9.0: LaTeX and expressions, boxes at 50.
    pub const DEFAULT: Targets = Targets {
        latex: Search::Anywhere,
        expressions: Search::Anywhere,
        strings: Vec::new(),
        boxed_priority: Some(50),
    };
}

impl Default for Targets {
    fn default() -> Targets {
        Targets::DEFAULT
    }
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
            search == Search::Anywhere || search == Search::AfterAnchor && priority != 300
        };
        if wanted(targets.latex) {
            match priority {
                0 => anchors.announced(text, &mut found, |at| scan.formulas_at(at, Context::Plain)),
                50 => anchors.final_is(text, &mut found, Dots::MatchNewlines, |at| {
                    scan.formulas_at(at, Context::Plain)
                }),
                100 | 200 => anchors.near(
                    text,
                    &mut found,
                    priority == 100,
                    50,
                    Dots::MatchNewlines,
                    |at| scan.formulas_at(at, Context::Plain),
                ),
                300 => scan.all_formulas(Context::Plain, &mut found),
                _ => {}
            }
        }
        if wanted(targets.expressions) {
            match priority {
                0 => anchors.announced(text, &mut found, |at| scan.expression_at(at)),
                50 => anchors.final_is_expression(&scan, &mut found),
                100 | 200 => anchors.near_expression(&scan, &mut found, priority == 100),
                300 => {
                    scan.all_arithmetic(&mut found);
                    scan.all_numbers(&mut found);
                }
                _ => {}
            }
        }
        if !targets.strings.is_empty() {
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
    /// Any formula.
    Plain,
    /// Only formulas that hold a box.
    Boxed,
}

#[derive(Clone, Copy, PartialEq)]
enum Dots {
    MatchNewlines,
    StopAtNewlines,
}

// ---- anchors ------------------------------------------------------------------------------------------------------

/// Where "answer" and "final answer" stand, in any case.
struct Anchors {
    /// Byte ranges of "answer".
    answers: Vec<usize>,
    /// Starts of "final answer".
    finals: Vec<usize>,
}

const ANSWER: &[u8] = b"answer";
const FINAL: &[u8] = b"final ";

impl Anchors {
    fn of(text: &str) -> Anchors {
        let bytes = text.as_bytes();
        let mut it = Anchors {
            answers: Vec::new(),
            finals: Vec::new(),
        };
        let mut at = 0;
        // 'w' is rare, so the word is looked for by its middle.
        while let Some(next) = bytes[at..].iter().position(|b| *b | 32 == b'w') {
            let w = at + next;
            at = w + 1;
            if w < 3 || bytes.len() < w + 3 || !bytes[w - 3..w + 3].eq_ignore_ascii_case(ANSWER) {
                continue;
            }
            let start = w - 3;
            it.answers.push(start);
            if start >= 6 && bytes[start - 6..start].eq_ignore_ascii_case(FINAL) {
                it.finals.push(start - 6);
            }
        }
        it
    }

    /// `final answer is X. I hope`.
    fn announced(
        &self,
        text: &str,
        out: &mut Vec<Candidate>,
        mut read: impl FnMut(usize) -> Option<Candidate>,
    ) {
        let mut from = 0;
        for start in self.finals.iter().copied() {
            if start < from {
                continue;
            }
            let rest = &text[start + 12..];
            let Some(rest) = strip_ignore_case(rest, " is") else {
                continue;
            };
            let rest = rest.strip_prefix(':').unwrap_or(rest);
            // The expression's own prefix may need the last white space, so both ends are tried.
            let after_space = text.len() - rest.trim_start().len();
            let before_space = text.len() - rest.len();
            let candidates = [
                after_space,
                last_char_start(text, before_space, after_space),
            ];
            for at in candidates {
                let Some(mut it) = read(at) else { continue };
                let tail = &text[it.end..];
                let tail = tail.strip_prefix('.').unwrap_or(tail);
                let tail = tail
                    .strip_prefix(|c: char| c.is_whitespace())
                    .unwrap_or(tail);
                if tail.starts_with("I hope") {
                    it.start = start;
                    it.end = text.len() - tail.len() + 6;
                    from = it.end;
                    out.push(it);
                    break;
                }
            }
        }
    }

    /// `final answer … is X` with at most 100 characters between.
    fn final_is(
        &self,
        text: &str,
        out: &mut Vec<Candidate>,
        dots: Dots,
        mut read: impl FnMut(usize) -> Option<Candidate>,
    ) {
        let mut from = 0;
        for start in self.finals.iter().copied() {
            if start < from {
                continue;
            }
            let anchor_end = start + 12;
            for (idx, c) in text[anchor_end..].char_indices().take(101) {
                let at = anchor_end + idx;
                if c.is_whitespace() {
                    let rest = text[at..].trim_start();
                    if let Some(rest) = rest.strip_prefix("is") {
                        let rest = rest.strip_prefix(':').unwrap_or(rest).trim_start();
                        if let Some(mut it) = read(text.len() - rest.len()) {
                            it.start = start;
                            from = it.end;
                            out.push(it);
                            break;
                        }
                    }
                }
                if dots == Dots::StopAtNewlines && c == '\n' {
                    break;
                }
            }
        }
    }

    fn final_is_expression(&self, scan: &Scan<'_>, out: &mut Vec<Candidate>) {
        let text = scan.text;
        let mut from = 0;
        for start in self.finals.iter().copied() {
            if start < from {
                continue;
            }
            let anchor_end = start + 12;
            for (idx, c) in text[anchor_end..].char_indices().take(101) {
                let at = anchor_end + idx;
                if c.is_whitespace() {
                    let rest = text[at..].trim_start();
                    if let Some(rest) = rest.strip_prefix("is") {
                        let rest = rest.strip_prefix(':').unwrap_or(rest);
                        if let Some(mut it) = scan.expression_at(text.len() - rest.len()) {
                            it.start = start;
                            from = it.end;
                            out.push(it);
                            break;
                        }
                    }
                }
                if c == '\n' {
                    break;
                }
            }
        }
    }

    /// `answer[:] … X` with at most `reach` characters between.
    fn near(
        &self,
        text: &str,
        out: &mut Vec<Candidate>,
        colon: bool,
        reach: usize,
        dots: Dots,
        mut read: impl FnMut(usize) -> Option<Candidate>,
    ) {
        let mut from = 0;
        for start in self.answers.iter().copied() {
            if start < from {
                continue;
            }
            let mut anchor_end = start + 6;
            if colon {
                if !text[anchor_end..].starts_with(':') {
                    continue;
                }
                anchor_end += 1;
            }
            let ends = text[anchor_end..]
                .char_indices()
                .map(|(idx, c)| (anchor_end + idx, Some(c)));
            for (at, c) in ends.chain([(text.len(), None)]).take(reach + 1) {
                if let Some(mut it) = read(at) {
                    it.start = start;
                    from = it.end;
                    out.push(it);
                    break;
                }
                if dots == Dots::StopAtNewlines && c == Some('\n') {
                    break;
                }
            }
        }
    }

    /// `answer … = X`, at the last equals sign within 100 characters, else `answer … X` within 50; not before another
    /// equals sign.
    fn near_expression(&self, scan: &Scan<'_>, out: &mut Vec<Candidate>, colon: bool) {
        let text = scan.text;
        let mut from = 0;
        for start in self.answers.iter().copied() {
            if start < from {
                continue;
            }
            let mut anchor_end = start + 6;
            if colon {
                if !text[anchor_end..].starts_with(':') {
                    continue;
                }
                anchor_end += 1;
            }
            // Nothing further than a hundred characters counts.
            let reach = text[anchor_end..]
                .char_indices()
                .take_while(|(_, c)| *c != '\n')
                .take(102);
            let line_len = reach.last().map_or(0, |(idx, c)| idx + c.len_utf8());
            let line = &text[anchor_end..anchor_end + line_len];
            let within = |n: usize| {
                line.char_indices()
                    .nth(n)
                    .map_or(line.len(), |(idx, _)| idx)
            };
            let mut best = None;
            // The equals sign itself comes after at most 100 characters.
            let window = &line[..within(101)];
            for (idx, _) in window.rmatch_indices('=') {
                let after = anchor_end + idx + 1;
                let spaces_end = text.len() - text[after..].trim_start().len();
                let at = last_char_start(text, after, spaces_end);
                best = (at < spaces_end)
                    .then(|| scan.expression_not_before_equals(at))
                    .flatten();
                if best.is_some() {
                    break;
                }
            }
            if best.is_none() {
                let positions = line
                    .char_indices()
                    .map(|(idx, _)| idx)
                    .chain([line.len()])
                    .take(51);
                best = positions
                    .into_iter()
                    .find_map(|idx| scan.expression_not_before_equals(anchor_end + idx));
            }
            if let Some(mut it) = best {
                it.start = start;
                from = it.end;
                out.push(it);
            }
        }
    }
}

/// The start of the last character in `text[from..to]`, or `to` if that is empty.
fn last_char_start(text: &str, from: usize, to: usize) -> usize {
    text[from..to]
        .char_indices()
        .next_back()
        .map_or(to, |(idx, _)| from + idx)
}

fn strip_ignore_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix)
        .then(|| &text[prefix.len()..])
}

// ---- scanning -----------------------------------------------------------------------------------------------------

struct Scan<'a> {
    text: &'a str,
    bytes: &'a [u8],
    /// Shared by the anchored attempts, which move forwards with small steps back.
    finders: RefCell<Finders<'a>>,
}

/// Remembers where a needle is next found, so that asking at increasing positions costs one pass in all.
struct Next<'a> {
    text: &'a [u8],
    needle: [u8; 2],
    from: usize,
    at: usize,
}

impl<'a> Next<'a> {
    fn new(text: &'a [u8], needle: [u8; 2]) -> Next<'a> {
        Next {
            text,
            needle,
            from: usize::MAX,
            at: 0,
        }
    }

    /// The first occurrence at or after `from`; the length if there is none.
    fn after(&mut self, from: usize) -> usize {
        if self.from != usize::MAX && from <= self.at {
            if self.from <= from {
                return self.at;
            }
            // A step back: only what lies before the known stretch is new.
            let end = (self.from + 1).min(self.text.len());
            let found = self.text[from..end]
                .windows(2)
                .position(|it| it == self.needle);
            self.from = from;
            if let Some(found) = found {
                self.at = from + found;
            }
            return self.at;
        }
        let from = from.min(self.text.len());
        self.from = from;
        let mut at = from;
        while at + 1 < self.text.len() {
            match self.text[at..self.text.len() - 1]
                .iter()
                .position(|b| *b == self.needle[0])
            {
                Some(next) if self.text[at + next + 1] == self.needle[1] => {
                    self.at = at + next;
                    return self.at;
                }
                Some(next) => at += next + 1,
                None => break,
            }
        }
        self.at = self.text.len();
        self.at
    }
}

struct Finders<'a> {
    dollars: Next<'a>,
    square: Next<'a>,
    round: Next<'a>,
    text: &'a [u8],
    line_end: usize,
    line_from: usize,
}

impl<'a> Finders<'a> {
    fn new(text: &'a [u8]) -> Finders<'a> {
        Finders {
            dollars: Next::new(text, *b"$$"),
            square: Next::new(text, *b"\\]"),
            round: Next::new(text, *b"\\)"),
            text,
            line_end: 0,
            line_from: usize::MAX,
        }
    }

    /// The end of the line that holds `at`.
    fn line_end(&mut self, at: usize) -> usize {
        let newline = |text: &[u8]| text.iter().position(|b| *b == b'\n');
        if self.line_from != usize::MAX && at <= self.line_end {
            if at < self.line_from {
                let before = newline(&self.text[at..self.line_from]);
                self.line_from = at;
                if let Some(found) = before {
                    self.line_end = at + found;
                }
            }
            return self.line_end;
        }
        self.line_from = at;
        self.line_end = newline(&self.text[at..]).map_or(self.text.len(), |it| at + it);
        self.line_end
    }
}

impl<'a> Scan<'a> {
    fn new(text: &'a str) -> Scan<'a> {
        Scan {
            text,
            bytes: text.as_bytes(),
            finders: RefCell::new(Finders::new(text.as_bytes())),
        }
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.bytes.get(at).copied()
    }

    fn before(&self, at: usize) -> Option<u8> {
        at.checked_sub(1).and_then(|it| self.byte(it))
    }

    // ---- formulas ---------------------------------------------------------------------------------------------

    /// Boxes: in delimiters, and bare.
    fn boxes(&self, out: &mut Vec<Candidate>) {
        let Some(first) = self.text.find("\\boxed{") else {
            return;
        };
        self.all_formulas(Context::Boxed, out);
        if let Some(last) = self.text.rfind('}')
            && last > first + 7
        {
            let content = first..last + 1;
            let formula = Formula {
                content: content.clone(),
                percent: false,
                bare_box: true,
            };
            out.push(Candidate {
                start: first,
                end: last + 1,
                found: Found::Formulas(vec![formula]),
            });
        }
    }

    /// A closed frame, or a box with space before its brace, in a text that has no other candidate.
    fn loose_box(&self) -> Option<Candidate> {
        let start = self.text.rfind("\\boxed").max(self.text.rfind("\\fbox"))?;
        let open = start + self.text[start..].find('{')?;
        let command = self.text[start..open].trim_end();
        if command != "\\boxed" && command != "\\fbox" {
            return None;
        }
        let close = crate::normalise::closing_brace(self.text, open, self.text.len())?;
        let content = open + 1..close;
        if self.text[content.clone()].trim().is_empty() {
            return None;
        }
        let formula = Formula {
            content,
            percent: false,
            bare_box: true,
        };
        Some(Candidate {
            start,
            end: close + 1,
            found: Found::Formulas(vec![formula]),
        })
    }

    fn all_formulas(&self, context: Context, out: &mut Vec<Candidate>) {
        let mut finders = Finders::new(self.bytes);
        let mut at = 0;
        while at < self.bytes.len() {
            let Some(next) = self.bytes[at..]
                .iter()
                .position(|b| matches!(b, b'$' | b'\\' | b'[' | b'-'))
            else {
                return;
            };
            // A bracket needs the white space before it; a minus sign belongs to a fraction.
            let here = at + next;
            let start = match self.bytes[here] {
                b'[' => match self.text[..here].chars().next_back() {
                    Some(c) if c.is_whitespace() && here - c.len_utf8() >= at => {
                        here - c.len_utf8()
                    }
                    _ => {
                        at = here + 1;
                        continue;
                    }
                },
                _ => here,
            };
            match self.formulas(start, context, &mut finders) {
                Some(it) => {
                    at = it.end;
                    out.push(it);
                }
                None => at = here + 1,
            }
        }
    }

    fn formulas_at(&self, at: usize, context: Context) -> Option<Candidate> {
        // Anchored attempts are at most a hundred per anchor; the delimiters they need are near.
        if !matches!(
            self.byte(at)?,
            b'$' | b'\\' | b'-' | b' ' | b'\n' | b'\t' | b'\r'
        ) {
            return None;
        }
        self.formulas(at, context, &mut self.finders.borrow_mut())
    }

    /// One formula and up to five more that a comma, "and" or "or" joins to it.
    fn formulas(
        &self,
        at: usize,
        context: Context,
        finders: &mut Finders<'a>,
    ) -> Option<Candidate> {
        let (first, mut end) = self.formula(at, context, finders)?;
        let mut all = vec![first];
        while all.len() < 6 {
            let mut next = end + self.spaces(end);
            let rest = &self.text[next..];
            next += if rest.starts_with(",and") {
                4
            } else if rest.starts_with("and") || rest.starts_with(",or") {
                3
            } else if rest.starts_with("or") {
                2
            } else {
                usize::from(rest.starts_with(','))
            };
            if next == end + self.spaces(end) {
                break;
            }
            next += self.spaces(next);
            // White space may be the delimiter's own.
            let Some((formula, formula_end)) = self
                .formula(next, context, finders)
                .or_else(|| self.formula(last_char_start(self.text, end, next), context, finders))
            else {
                break;
            };
            all.push(formula);
            end = formula_end;
        }
        Some(Candidate {
            start: at,
            end,
            found: Found::Formulas(all),
        })
    }

    fn spaces(&self, at: usize) -> usize {
        let rest = &self.text[at..];
        match rest.bytes().next() {
            Some(b) if b > b' ' && b < 0x80 => 0,
            _ => rest.len() - rest.trim_start().len(),
        }
    }

    /// The formula whose delimiter starts at `at`, with the percent sign after it; and where that ends.
    fn formula(
        &self,
        at: usize,
        context: Context,
        finders: &mut Finders<'a>,
    ) -> Option<(Formula, usize)> {
        let (content, end) = self.delimited(at, context, finders)?;
        let end = end + self.spaces(end);
        let rest = &self.text[end..];
        let sign = [
            "\\%",
            "%",
            "percentage",
            "percent",
            "Percentage",
            "Percent",
            "pct",
            "Pct",
        ]
        .iter()
        .find(|it| rest.starts_with(**it));
        // The shorter word is tried first, so "percentage" counts as "percent".
        let len = sign.map_or(0, |it| {
            if it.ends_with("age") {
                it.len() - 3
            } else {
                it.len()
            }
        });
        Some((
            Formula {
                content,
                percent: len > 0,
                bare_box: false,
            },
            end + len,
        ))
    }

    fn delimited(
        &self,
        at: usize,
        context: Context,
        finders: &mut Finders<'a>,
    ) -> Option<(Range<usize>, usize)> {
        let first = self.byte(at)?;
        let escaped = self.before(at) == Some(b'\\');
        let fits = |content: &Range<usize>| {
            !content.is_empty() && (context == Context::Plain || self.has_box(content.clone()))
        };
        match first {
            b'$' => {
                if !escaped && self.byte(at + 1) == Some(b'$') {
                    let close = finders.dollars.after(at + 2);
                    let content = at + 2..close;
                    if close < self.bytes.len() && self.bytes[close - 1] != b'\\' && fits(&content)
                    {
                        return Some((content, close + 2));
                    }
                }
                if escaped || self.before(at).is_some_and(|b| b.is_ascii_digit()) {
                    return None;
                }
                let line_end = finders.line_end(at);
                let mut close = at + 1;
                loop {
                    close += self.bytes[close..line_end]
                        .iter()
                        .position(|b| *b == b'$')?;
                    if self.bytes[close - 1] != b'\\' || close == at + 1 {
                        break;
                    }
                    close += 1;
                }
                let content = at + 1..close;
                fits(&content).then_some((content, close + 1))
            }
            b'\\' => {
                match self.byte(at + 1)? {
                    b'[' if !escaped => {
                        let close = finders.square.after(at + 2);
                        let content = at + 2..close;
                        if close < self.bytes.len()
                            && self.bytes[close - 1] != b'\\'
                            && fits(&content)
                        {
                            return Some((content, close + 2));
                        }
                    }
                    b'(' if !escaped => {
                        let close = finders.round.after(at + 2);
                        let content = at + 2..close;
                        if close < finders.line_end(at)
                            && self.bytes[close - 1] != b'\\'
                            && fits(&content)
                        {
                            return Some((content, close + 2));
                        }
                    }
                    _ => {}
                }
                self.bare_fraction(at, context)
            }
            b'-' => self.bare_fraction(at, context),
            _ => {
                let space = self
                    .text
                    .get(at..)?
                    .chars()
                    .next()
                    .filter(|c| c.is_whitespace())?;
                let open = at + space.len_utf8();
                if self.byte(open) != Some(b'[') {
                    return None;
                }
                let close = open
                    + 1
                    + self.bytes[open + 1..]
                        .iter()
                        .position(|b| matches!(b, b'\n' | b'[' | b']'))?;
                let content = open + 1..close;
                let after = self.text[close..]
                    .strip_prefix(']')?
                    .chars()
                    .next()
                    .filter(|c| c.is_whitespace())?;
                fits(&content).then_some((content, close + 1 + after.len_utf8()))
            }
        }
    }

    fn has_box(&self, range: Range<usize>) -> bool {
        let content = &self.text[range];
        content.find("\\boxed{").is_some_and(|at| {
            content[at + 7..]
                .char_indices()
                .nth(1)
                .is_some_and(|(one, _)| content[at + 7 + one..].contains('}'))
        })
    }

    /// `\frac{1}{2}` of plain numbers, without delimiters.
    fn bare_fraction(&self, at: usize, context: Context) -> Option<(Range<usize>, usize)> {
        if context == Context::Boxed {
            return None;
        }
        let sign = usize::from(self.byte(at) == Some(b'-'));
        let rest = self.text[at + sign..].strip_prefix("\\frac{")?;
        let number = |text: &str| {
            let start = usize::from(text.starts_with('-'));
            let digits = |from: usize| {
                text.as_bytes()[from..]
                    .iter()
                    .take_while(|b| b.is_ascii_digit())
                    .count()
            };
            let whole = digits(start);
            if whole == 0 {
                return None;
            }
            let mut end = start + whole;
            if text[end..].starts_with(['.', ',']) {
                let fraction = digits(end + 1);
                if fraction > 0 {
                    end += 1 + fraction;
                }
            }
            Some(end)
        };
        let upper = number(rest)?;
        let rest = rest[upper..].strip_prefix("}{")?;
        let lower = number(rest)?;
        let rest = rest[lower..].strip_prefix('}')?;
        let end = self.text.len() - rest.len();
        Some((at..end, end))
    }

    // ---- numbers ----------------------------------------------------------------------------------------------

    /// Arithmetic or, failing that, a number.
    fn expression_at(&self, at: usize) -> Option<Candidate> {
        let starts = at == 0
            || self
                .text
                .get(at..)?
                .starts_with(|c: char| c.is_whitespace() || c == '=');
        if !starts {
            return None;
        }
        let mut memo = Run::default();
        self.arithmetic_at(at, &mut memo)
            .or_else(|| self.number_at(at))
    }

    /// As [`Scan::expression_at`], but not where an equals sign follows; a number then gives up its last digit.
    fn expression_not_before_equals(&self, at: usize) -> Option<Candidate> {
        let starts = at == 0
            || self
                .text
                .get(at..)?
                .starts_with(|c: char| c.is_whitespace() || c == '=');
        if !starts {
            return None;
        }
        let equals_follows = |end: usize| self.text[end..].trim_start().starts_with('=');
        let mut memo = Run::default();
        if let Some(it) = self.arithmetic_at(at, &mut memo)
            && !equals_follows(it.end)
        {
            return Some(it);
        }
        let mut it = self.number_at(at)?;
        if !equals_follows(it.end) {
            return Some(it);
        }
        let Found::Number {
            integer,
            decimal,
            percent,
        } = &mut it.found
        else {
            return None;
        };
        *percent = false;
        let shortened = if decimal.start == decimal.end {
            integer
        } else {
            decimal
        };
        if shortened.len() < 2 || !self.bytes[shortened.end - 2].is_ascii_digit() {
            return None;
        }
        shortened.end -= 1;
        it.end = shortened.end;
        Some(it)
    }

    fn all_arithmetic(&self, out: &mut Vec<Candidate>) {
        let mut at = 0;
        let mut memo = Run::default();
        while let Some(start) = self.next_start(at) {
            match self.arithmetic_at(start, &mut memo) {
                Some(it) => {
                    at = it.end;
                    out.push(it);
                }
                None => at = start + 1,
            }
        }
    }

    fn all_numbers(&self, out: &mut Vec<Candidate>) {
        let mut at = 0;
        while let Some(start) = self.next_start(at) {
            match self.number_at(start) {
                Some(it) => {
                    at = it.end;
                    out.push(it);
                }
                None => at = start + 1,
            }
        }
    }

    /// The next position at which a number or arithmetic may start: the text's start, white space, or `=`.
    fn next_start(&self, at: usize) -> Option<usize> {
        if at == 0 && !self.bytes.is_empty() {
            return Some(0);
        }
        let mut at = at;
        loop {
            let found = at
                + self
                    .bytes
                    .get(at..)?
                    .iter()
                    .position(|b| *b <= b' ' || *b == b'=' || *b >= 0x80)?;
            let is_start = match self.bytes[found] {
                b'=' => true,
                b if b < 0x80 => (b as char).is_whitespace(),
                _ => self
                    .text
                    .get(found..)
                    .is_some_and(|it| it.starts_with(char::is_whitespace)),
            };
            if is_start {
                // Of a run of white space only the last can be followed by a number.
                let next = self.byte(found + 1);
                if !next.is_some_and(|b| b == b' ' || b == b'\n') {
                    return Some(found);
                }
            }
            at = found + 1;
        }
    }

    /// Past the prefix: the start, white space or `=`, then maybe two asterisks.
    fn after_prefix(&self, at: usize) -> Option<usize> {
        let rest = self.text.get(at..)?;
        let c = rest.chars().next()?;
        let mut after = if c.is_whitespace() || c == '=' {
            at + c.len_utf8()
        } else if at == 0 {
            0
        } else {
            return None;
        };
        if self.text[after..].starts_with("**") {
            after += 2;
        }
        Some(after)
    }

    fn arithmetic_at(&self, at: usize, memo: &mut Run) -> Option<Candidate> {
        let start = self.after_prefix(at)?;
        let mut digit = start;
        digit += usize::from(self.byte(digit) == Some(b'-'));
        digit += usize::from(self.byte(digit) == Some(b'('));
        digit += usize::from(self.byte(digit) == Some(b'-'));
        if !self.byte(digit)?.is_ascii_digit() {
            return None;
        }
        if memo.end <= digit {
            *memo = self.run(digit);
        }
        // At least one operator, with at least one character of the run after it.
        let end = memo.last_end?;
        let operator = memo.operator?;
        if operator <= digit {
            return None;
        }
        let mut match_end = end;
        if self.byte(match_end) == Some(b')') && self.suffix(match_end + 1).is_some() {
            match_end += 1;
        }
        let stop = self.suffix(match_end)?;
        Some(Candidate {
            start: at,
            end: stop,
            found: Found::Arithmetic(start..match_end),
        })
    }

    /// The run of digits, dots, white space and operators from `start`, and the last place in it where a match may
    /// end.
    fn run(&self, start: usize) -> Run {
        let mut run = Run {
            end: self.text.len() + 1,
            ..Run::default()
        };
        // The last two operators: one that touches the end of the match does not count.
        let mut operators: [Option<(usize, usize)>; 2] = [None; 2];
        let visit = |run: &mut Run, operators: &[Option<(usize, usize)>; 2], at: usize| {
            if self.ends_match(at) {
                run.last_end = Some(at);
                run.operator = operators
                    .iter()
                    .flatten()
                    .find(|it| it.1 < at)
                    .map(|it| it.0);
            }
        };
        for (idx, c) in self.text[start..].char_indices() {
            let at = start + idx;
            visit(&mut run, &operators, at);
            if !(c.is_ascii_digit() || c == '.' || c.is_whitespace() || is_operator(c)) {
                run.end = at;
                return run;
            }
            if is_operator(c) {
                operators = [Some((at, at + c.len_utf8())), operators[0]];
            }
        }
        visit(&mut run, &operators, self.text.len());
        run
    }

    /// Whether arithmetic may end here: before a closing parenthesis and a suffix, or before a suffix.
    fn ends_match(&self, at: usize) -> bool {
        self.suffix(at).is_some() || self.byte(at) == Some(b')') && self.suffix(at + 1).is_some()
    }

    /// Past the suffix that must follow arithmetic: `.`, `,`, `:`, white space, `)`, `$` or the end.
    fn suffix(&self, at: usize) -> Option<usize> {
        let rest = self.text.get(at..)?;
        let one = |rest: &str| match rest.chars().next() {
            None => Some(0),
            Some(c) if matches!(c, '.' | ',' | ':' | ')' | '$') || c.is_whitespace() => {
                Some(c.len_utf8())
            }
            _ => None,
        };
        if let Some(after) = rest.strip_prefix("**")
            && let Some(len) = one(after)
        {
            return Some(at + 2 + len);
        }
        one(rest).map(|len| at + len)
    }

    fn number_at(&self, at: usize) -> Option<Candidate> {
        let mut start = self.after_prefix(at)?;
        let currency = self.text[start..].chars().next()?;
        if currency == '$' || matches!(currency, '€' | '£' | '¥' | '฿' | '₠'..='₿') {
            start += currency.len_utf8();
        }
        if self.before(start).is_some_and(|b| b.is_ascii_digit()) {
            return None;
        }
        let minus = usize::from(self.byte(start) == Some(b'-'));
        let digits = |from: usize| {
            self.bytes
                .get(from..)
                .map_or(0, |it| it.iter().take_while(|b| b.is_ascii_digit()).count())
        };
        let whole = digits(start + minus);
        let mut integer = start..start + minus + whole;
        let mut decimal = integer.end..integer.end;
        if whole == 0 {
            if minus > 0 || self.byte(start) != Some(b'.') || digits(start + 1) == 0 {
                return None;
            }
            integer = start..start;
            decimal = start..start + 1 + digits(start + 1);
        } else {
            let mut grouped = integer.end;
            if whole <= 3 && self.bytes[start + minus] != b'0' {
                while matches!(self.byte(grouped), Some(b' ' | b',')) && digits(grouped + 1) >= 3 {
                    grouped += 4;
                }
            } else if whole > 3 && self.bytes[start + minus] != b'0' {
                // The grouped form takes at most three digits first, which here leaves no separator.
                grouped = integer.end;
            }
            if grouped > integer.end {
                integer.end = grouped;
                decimal = grouped..grouped;
                if self.byte(grouped) == Some(b'.') && digits(grouped + 1) > 0 {
                    decimal.end = grouped + 1 + digits(grouped + 1);
                }
            } else if matches!(self.byte(integer.end), Some(b'.' | b','))
                && digits(integer.end + 1) > 0
            {
                decimal = integer.end..integer.end + 1 + digits(integer.end + 1);
            }
        }
        let mut end = decimal.end.max(integer.end);
        let rest = self.text[end..].trim_start();
        let sign = ["%", "percent", "Percent", "pct", "Pct"]
            .iter()
            .find(|it| rest.starts_with(**it));
        if let Some(sign) = sign {
            end = self.text.len() - rest.len() + sign.len();
        }
        Some(Candidate {
            start: at,
            end,
            found: Found::Number {
                integer,
                decimal,
                percent: sign.is_some(),
            },
        })
    }

    // ---- literal strings --------------------------------------------------------------------------------------

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
        let suffix = |at: usize| {
            let rest = self.text[at..]
                .strip_prefix("**")
                .unwrap_or(&self.text[at..]);
            let end = self.text.len() - rest.len();
            match rest.chars().next() {
                None => Some(end),
                Some(c) if matches!(c, '.' | ',' | ':') || c.is_whitespace() => {
                    Some(end + c.len_utf8())
                }
                _ => None,
            }
        };
        let whole = |at: usize| {
            let start = self
                .after_prefix(at)
                .filter(|_| self.text[at..].starts_with(char::is_whitespace) || at == 0)?;
            let word = word_at(start)?;
            let end = suffix(word.end)?;
            Some(Candidate {
                start: at,
                end,
                found: Found::Word(word),
            })
        };
        let bare = |at: usize| {
            let word = word_at(at)?;
            Some(Candidate {
                start: at,
                end: word.end,
                found: Found::Word(word),
            })
        };
        match priority {
            0 => anchors.announced(self.text, out, bare),
            50 => anchors.final_is(self.text, out, Dots::StopAtNewlines, bare),
            100 | 200 => anchors.near(
                self.text,
                out,
                priority == 100,
                50,
                Dots::StopAtNewlines,
                whole,
            ),
            250 => {
                let start = if self.text.starts_with("**") { 2 } else { 0 };
                if let Some(word) = word_at(start)
                    && let Some(end) = suffix(word.end)
                {
                    out.push(Candidate {
                        start: 0,
                        end,
                        found: Found::Word(word),
                    });
                }
            }
            300 => {
                let mut at = 0;
                while let Some(start) = self.next_start(at) {
                    match whole(start) {
                        Some(it) => {
                            at = it.end.max(start + 1);
                            out.push(it);
                        }
                        None => at = start + 1,
                    }
                }
            }
            _ => {}
        }
    }
}

/// A run of characters that arithmetic is made of.
#[derive(Default)]
struct Run {
    /// One past the run.
    end: usize,
    /// The last place in the run where a match may end.
    last_end: Option<usize>,
    /// The last operator with at least one character between it and that place.
    operator: Option<usize>,
}

fn is_operator(c: char) -> bool {
    matches!(c, '+' | '-' | '*' | '×' | '/' | '^' | '(' | ')' | '÷')
}
