//! Boxes, in delimiters and bare.

use crate::normalise::{content_of, last_command};

use super::{Candidate, Context, Formula, Found, Scan};
use std::ops::Range;

impl Scan<'_> {
    /// Boxes: in delimiters, and bare.
    pub(super) fn boxes(&self, out: &mut Vec<Candidate>) {
        let Some(first) = self.text.find("\\boxed{") else {
            return;
        };
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
}

fn bare(start: usize, content: Range<usize>, end: usize) -> Candidate {
    let formula = Formula { content, percent: false, bare_box: true };
    Candidate { start, end, found: Found::Formulas(vec![formula]) }
}
