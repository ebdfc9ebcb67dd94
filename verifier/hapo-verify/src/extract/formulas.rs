//! Boxes, and formulas in LaTeX delimiters.

use super::anchors::last_char_start;
use super::{Candidate, Context, Finders, Formula, Found, Scan};
use crate::cursor::Cursor;
use crate::normalise::{content_of, last_command};
use crate::work;
use std::ops::Range;

impl<'a> Scan<'a> {
    /// Boxes: in delimiters, and bare.
    pub(super) fn boxes(&self, out: &mut Vec<Candidate>) {
        let Some(first) = self.text.find("\\boxed{") else { return };
        self.all_formulas(Context::Boxed, out);
        if let Some(last) = self.text.rfind('}')
            && last > first + 7
        {
            out.push(bare(first, first..last + 1, last + 1));
        }
    }

    /// A closed frame, or a box with space before its brace, in a text that has no other candidate.
    pub(super) fn loose_box(&self) -> Option<Candidate> {
        let start = last_command(self.text)?;
        let content = content_of(self.text, start)?;
        let end = content.end + 1;
        let is_empty = self.text[content.clone()].trim().is_empty();
        (!is_empty).then(|| bare(start, content, end))
    }

    pub(super) fn all_formulas(&self, context: Context, out: &mut Vec<Candidate>) {
        let mut finders = Finders::new(self.bytes);
        let mut at = 0;
        while at < self.bytes.len() {
            let Some(next) =
                self.bytes[at..].iter().position(|b| matches!(b, b'$' | b'\\' | b'[' | b'-'))
            else {
                return;
            };
            // A bracket needs the white space before it; a minus sign belongs to a fraction.
            let here = at + next;
            let start = if self.bytes[here] == b'[' {
                let space = self.text[..here].chars().next_back().filter(|c| c.is_whitespace());
                space.map(|c| here - c.len_utf8()).filter(|start| *start >= at)
            } else {
                Some(here)
            };
            let found = start.and_then(|start| self.formulas(start, context, &mut finders));
            at = found.as_ref().map_or(here + 1, |it| it.end);
            out.extend(found);
        }
    }

    pub(super) fn formulas_at(&self, at: usize, context: Context) -> Option<Candidate> {
        // Anchored attempts are at most a hundred per anchor; the delimiters they need are near.
        if !matches!(self.byte(at)?, b'$' | b'\\' | b'-' | b' ' | b'\n' | b'\t' | b'\r') {
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
            let joints = [",and", "and", ",or", "or", ","];
            let Some(joint) = joints.iter().find(|it| rest.starts_with(**it)) else { break };
            next += joint.len();
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
        Some(Candidate { start: at, end, found: Found::Formulas(all) })
    }

    fn spaces(&self, at: usize) -> usize {
        let rest = &self.text[at..];
        match rest.bytes().next() {
            Some(b) if b > b' ' && b < 0x80 => 0,
            _ => {
                let n_spaces = rest.len() - rest.trim_start().len();
                work::count(n_spaces);
                n_spaces
            }
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
        let sign = ["\\%", "%", "percentage", "percent", "Percentage", "Percent", "pct", "Pct"]
            .iter()
            .find(|it| rest.starts_with(**it));
        // The shorter word is tried first, so "percentage" counts as "percent".
        let len = sign.map_or(0, |it| if it.ends_with("age") { it.len() - 3 } else { it.len() });
        Some((Formula { content, percent: len > 0, bare_box: false }, end + len))
    }

    /// The content between the delimiters that start at `at`, and where they end.
    fn delimited(
        &self,
        at: usize,
        context: Context,
        finders: &mut Finders<'a>,
    ) -> Option<(Range<usize>, usize)> {
        let escaped = self.before(at) == Some(b'\\');
        let fits = |content: &Range<usize>| {
            !content.is_empty() && (context == Context::Plain || self.has_box(content.clone()))
        };
        // Two characters on each side, the closing ones before `end`.
        let double = |close: usize, end: usize| {
            let content = at + 2..close;
            (close < end && self.bytes[close - 1] != b'\\' && fits(&content))
                .then_some((content, close + 2))
        };
        match (self.byte(at)?, self.byte(at + 1)) {
            (b'$', next) => {
                if !escaped && next == Some(b'$') {
                    let found = double(finders.dollars.after(at + 2), self.bytes.len());
                    if found.is_some() {
                        return found;
                    }
                }
                if escaped || self.before(at).is_some_and(|b| b.is_ascii_digit()) {
                    return None;
                }
                let close = self.closing_dollar(at, finders.newline.after(at))?;
                let content = at + 1..close;
                fits(&content).then_some((content, close + 1))
            }
            (b'\\', next) => {
                let found = match next? {
                    b'[' if !escaped => double(finders.square.after(at + 2), self.bytes.len()),
                    b'(' if !escaped => {
                        let close = finders.round.after(at + 2);
                        double(close, finders.newline.after(at))
                    }
                    _ => None,
                };
                found.or_else(|| self.bare_fraction(at, context))
            }
            (b'-', _) => self.bare_fraction(at, context),
            _ => self.spaced_brackets(at).filter(|it| fits(&it.0)),
        }
    }

    /// The next dollar sign on the line that is not escaped.
    fn closing_dollar(&self, at: usize, line_end: usize) -> Option<usize> {
        let mut close = at + 1;
        loop {
            let skipped = self.bytes[close..line_end].iter().position(|b| *b == b'$');
            work::count(skipped.unwrap_or(line_end - close));
            close += skipped?;
            if self.bytes[close - 1] != b'\\' || close == at + 1 {
                return Some(close);
            }
            close += 1;
        }
    }

    /// `[…]` on one line, between white space.
    fn spaced_brackets(&self, at: usize) -> Option<(Range<usize>, usize)> {
        let white_space = |text: &str| text.chars().next().filter(|c| c.is_whitespace());
        let open = at + white_space(self.text.get(at..)?)?.len_utf8();
        if self.byte(open) != Some(b'[') {
            return None;
        }
        let inside = open + 1;
        let n = self.bytes[inside..].iter().position(|b| matches!(b, b'\n' | b'[' | b']'))?;
        work::count(n);
        let close = inside + n;
        let after = white_space(self.text[close..].strip_prefix(']')?)?;
        Some((inside..close, close + 1 + after.len_utf8()))
    }

    fn has_box(&self, range: Range<usize>) -> bool {
        self.text[range].split_once("\\boxed{").is_some_and(|it| it.1.contains('}'))
    }

    /// `\frac{1}{2}` of plain numbers, without delimiters.
    fn bare_fraction(&self, at: usize, context: Context) -> Option<(Range<usize>, usize)> {
        if context == Context::Boxed {
            return None;
        }
        let mut cursor = Cursor::new(&self.text[at..]);
        cursor.eat("-");
        cursor.eat("\\frac{")?;
        number(&mut cursor)?;
        cursor.eat("}{")?;
        number(&mut cursor)?;
        cursor.eat("}")?;
        let end = at + cursor.before().len();
        Some((at..end, end))
    }
}

/// Moves over a number with its sign and decimals.
fn number(cursor: &mut Cursor<'_>) -> Option<()> {
    cursor.eat("-");
    cursor.digits()?;
    let mut decimals = *cursor;
    if decimals.one_of(&[".", ","]).is_some() && decimals.digits().is_some() {
        *cursor = decimals;
    }
    Some(())
}

fn bare(start: usize, content: Range<usize>, end: usize) -> Candidate {
    let formula = Formula { content, percent: false, bare_box: true };
    Candidate { start, end, found: Found::Formulas(vec![formula]) }
}
