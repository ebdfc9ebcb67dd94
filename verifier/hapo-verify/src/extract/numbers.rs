//! Plain numbers and arithmetic.

use super::{Candidate, Found, Scan};
use crate::work;

const MARKS: &str = ".,:)$";

impl Scan<'_> {
    /// Arithmetic or, failing that, a number.
    pub(super) fn expression_at(&self, at: usize) -> Option<Candidate> {
        let mut memo = Run::default();
        self.arithmetic_at(at, &mut memo).or_else(|| self.number_at(at))
    }

    /// As [`Scan::expression_at`], but not where an equals sign follows.
    pub(super) fn expression_not_before_equals(&self, at: usize) -> Option<Candidate> {
        let equals_follows = |end: usize| self.text[end..].trim_start().starts_with('=');
        let mut memo = Run::default();
        if let Some(it) = self.arithmetic_at(at, &mut memo)
            && !equals_follows(it.end)
        {
            return Some(it);
        }
        self.number_at(at).filter(|it| !equals_follows(it.end))
    }

    /// The next position at which a number or arithmetic may start: the text's start, white space, or `=`.
    pub(super) fn next_start(&self, mut at: usize) -> Option<usize> {
        if at == 0 && !self.bytes.is_empty() {
            return Some(0);
        }
        loop {
            let mut rest = self.bytes.get(at..)?.iter();
            let found = at + rest.position(|b| *b <= b' ' || *b == b'=' || *b >= 0x80)?;
            work::count(found + 1 - at);
            let is_start = match self.bytes[found] {
                b'=' => true,
                b if b < 0x80 => (b as char).is_whitespace(),
                _ => self.text.get(found..).is_some_and(|it| it.starts_with(char::is_whitespace)),
            };
            // Of a run of white space only the last can be followed by a number.
            if is_start && !matches!(self.byte(found + 1), Some(b' ' | b'\n')) {
                return Some(found);
            }
            at = found + 1;
        }
    }

    /// Past the prefix: the start, white space or `=`, then maybe two asterisks.
    pub(super) fn after_prefix(&self, at: usize) -> Option<usize> {
        let rest = self.text.get(at..)?;
        let c = rest.chars().next()?;
        let after = match at {
            _ if c.is_whitespace() || c == '=' => at + c.len_utf8(),
            0 => 0,
            _ => return None,
        };
        Some(after + if self.text[after..].starts_with("**") { 2 } else { 0 })
    }

    pub(super) fn arithmetic_at(&self, at: usize, memo: &mut Run) -> Option<Candidate> {
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
        memo.operator.filter(|it| *it > digit)?;
        let stop = self.suffix(end, MARKS)?;
        Some(Candidate { start: at, end: stop, found: Found::Arithmetic(start..end) })
    }

    /// The run of digits, dots, white space and operators from `start`, and its last position where a match may end.
    fn run(&self, start: usize) -> Run {
        let mut run = Run { end: self.text.len() + 1, ..Run::default() };
        // The last two operators: one that touches the end of the match does not count.
        let mut operators: [Option<(usize, usize)>; 2] = [None; 2];
        let visit = |run: &mut Run, operators: &[Option<(usize, usize)>; 2], at: usize| {
            if self.suffix(at, MARKS).is_some() {
                run.last_end = Some(at);
                run.operator = operators.iter().flatten().find(|it| it.1 < at).map(|it| it.0);
            }
        };
        for (idx, c) in self.text[start..].char_indices() {
            let at = start + idx;
            work::count(1);
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

    /// Past the suffix that must follow: maybe two asterisks, and one of `marks`, white space or the end.
    pub(super) fn suffix(&self, at: usize, marks: &str) -> Option<usize> {
        let rest = self.text.get(at..)?;
        let rest = rest.strip_prefix("**").unwrap_or(rest);
        let end = self.text.len() - rest.len();
        match rest.chars().next() {
            None => Some(end),
            Some(c) => (marks.contains(c) || c.is_whitespace()).then(|| end + c.len_utf8()),
        }
    }

    pub(super) fn number_at(&self, at: usize) -> Option<Candidate> {
        let mut start = self.after_prefix(at)?;
        let currency = self.text[start..].chars().next()?;
        if currency == '$' || matches!(currency, '€' | '£' | '¥' | '฿' | '₠'..='₿') {
            start += currency.len_utf8();
        }
        let minus = usize::from(self.byte(start) == Some(b'-'));
        let count = |it: &[u8]| it.iter().take_while(|b| b.is_ascii_digit()).count();
        let digits = |from: usize| self.bytes.get(from..).map_or(0, count);
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
        let sign =
            ["%", "percent", "Percent", "pct", "Pct"].iter().find(|it| rest.starts_with(**it));
        if let Some(sign) = sign {
            end = self.text.len() - rest.len() + sign.len();
        }
        let found = Found::Number { integer, decimal, percent: sign.is_some() };
        Some(Candidate { start: at, end, found })
    }
}

/// A run of characters that arithmetic is made of.
#[derive(Default)]
pub(super) struct Run {
    pub(super) end: usize,
    /// The last position in the run where a match may end.
    last_end: Option<usize>,
    /// The last operator with at least one character between it and that position.
    operator: Option<usize>,
}

fn is_operator(c: char) -> bool {
    matches!(c, '+' | '-' | '*' | '×' | '/' | '^' | '(' | ')' | '÷')
}
