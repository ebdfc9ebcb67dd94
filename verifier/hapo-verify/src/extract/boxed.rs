//! Boxes, in delimiters and bare.

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
        let formula = Formula { content, percent: false, bare_box: true };
        Some(Candidate { start, end: close + 1, found: Found::Formulas(vec![formula]) })
    }
}
