//! Formulas in LaTeX delimiters.

use super::anchors::last_char_start;
use super::finders::Finders;
use super::{Candidate, Context, Formula, Found, Scan};
use std::ops::Range;

impl<'a> Scan<'a> {
    pub(super) fn all_formulas(&self, context: Context, out: &mut Vec<Candidate>) {
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

    pub(super) fn formulas_at(&self, at: usize, context: Context) -> Option<Candidate> {
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
}
