//! Boxes, in delimiters and bare.

use crate::normalise::{content_of, last_command};

use super::{Candidate, Context, Formula, Found, Scan};

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
            let content = first..last + 1;
            let formula = Formula { content: content.clone(), percent: false, bare_box: true };
            out.push(Candidate {
                start: first,
                end: last + 1,
                found: Found::Formulas(vec![formula]),
            });
        }
    }

    /// A closed frame, or a box with space before its brace, in a text that has no other candidate.
    pub(super) fn loose_box(&self) -> Option<Candidate> {
        let start = last_command(self.text)?;
        let content = content_of(self.text, start)?;
        if self.text[content.clone()].trim().is_empty() {
            return None;
        }
        let end = content.end + 1;
        let formula = Formula { content, percent: false, bare_box: true };
        Some(Candidate { start, end, found: Found::Formulas(vec![formula]) })
    }
}
