//! Literal strings, such as the letters of a multiple choice.

use super::anchors::Anchors;
use super::{Candidate, Dots, Found, Scan};

impl Scan<'_> {
    pub(super) fn strings(
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
}
