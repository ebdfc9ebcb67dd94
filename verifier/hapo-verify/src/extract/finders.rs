//! Searches that remember what they found, so that a scan stays linear.

use crate::work;

/// Remembers where a needle is next found, so that asking at increasing positions costs one pass in all.
pub(super) struct Next<'a> {
    pub(super) text: &'a [u8],
    needle: [u8; 2],
    from: usize,
    pub(super) at: usize,
}

impl<'a> Next<'a> {
    pub(super) fn new(text: &'a [u8], needle: [u8; 2]) -> Next<'a> {
        Next { text, needle, from: usize::MAX, at: 0 }
    }

    /// The first occurrence at or after `from`; the length if there is none.
    pub(super) fn after(&mut self, from: usize) -> usize {
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
            let end = (self.from + 1).min(self.text.len());
            let found = self.text[from..end].windows(2).position(|it| it == self.needle);
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
            match self.text[at..self.text.len() - 1].iter().position(|b| *b == self.needle[0]) {
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

pub(super) struct Finders<'a> {
    pub(super) dollars: Next<'a>,
    pub(super) square: Next<'a>,
    pub(super) round: Next<'a>,
    pub(super) text: &'a [u8],
    pub(super) line_end: usize,
    line_from: usize,
}

impl<'a> Finders<'a> {
    pub(super) fn new(text: &'a [u8]) -> Finders<'a> {
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
    pub(super) fn line_end(&mut self, at: usize) -> usize {
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
        work::count(self.line_end - at);
        self.line_end
    }
}
