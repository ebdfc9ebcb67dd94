//! Searches that remember what they found, so that a scan stays linear.

use crate::work;

/// Remembers where a needle is next found, so that asking at increasing positions costs one pass in all.
pub(super) struct Next<'a> {
    text: &'a [u8],
    needle: &'static [u8],
    from: usize,
    at: usize,
}

impl<'a> Next<'a> {
    pub(super) fn new(text: &'a [u8], needle: &'static [u8]) -> Next<'a> {
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

pub(super) struct Finders<'a> {
    pub(super) dollars: Next<'a>,
    pub(super) square: Next<'a>,
    pub(super) round: Next<'a>,
    pub(super) newline: Next<'a>,
}

impl<'a> Finders<'a> {
    pub(super) fn new(text: &'a [u8]) -> Finders<'a> {
        Finders {
            dollars: Next::new(text, b"$$"),
            square: Next::new(text, b"\\]"),
            round: Next::new(text, b"\\)"),
            newline: Next::new(text, b"\n"),
        }
    }
}
