//! Words that announce an answer, and what follows them.

use super::{Candidate, Dots, Scan};

/// Where "answer" and "final answer" stand, in any case.
pub(super) struct Anchors {
    answers: Vec<usize>,
    finals: Vec<usize>,
}

impl Anchors {
    pub(super) fn of(text: &str) -> Anchors {
        let bytes = text.as_bytes();
        let mut it = Anchors { answers: Vec::new(), finals: Vec::new() };
        let mut at = 0;
        // 'w' is rare, so the word is looked for by its middle.
        while let Some(next) = bytes[at..].iter().position(|b| *b | 32 == b'w') {
            let w = at + next;
            at = w + 1;
            if w < 3 || bytes.len() < w + 3 || !bytes[w - 3..w + 3].eq_ignore_ascii_case(b"answer")
            {
                continue;
            }
            let start = w - 3;
            it.answers.push(start);
            if start >= 6 && bytes[start - 6..start].eq_ignore_ascii_case(b"final ") {
                it.finals.push(start - 6);
            }
        }
        it
    }

    /// `final answer is X. I hope`.
    pub(super) fn announced(
        &self,
        text: &str,
        out: &mut Vec<Candidate>,
        mut read: impl FnMut(usize) -> Option<Candidate>,
    ) {
        out.extend(after_each(&self.finals, |start| {
            let rest = strip_ignore_case(&text[start + 12..], " is")?;
            let rest = rest.strip_prefix(':').unwrap_or(rest);
            // The expression's own prefix may need the last white space, so both ends are tried.
            let after_space = text.len() - rest.trim_start().len();
            let before_space = text.len() - rest.len();
            let mut starts =
                [after_space, last_char_start(text, before_space, after_space)].into_iter();
            starts.find_map(|at| {
                let it = read(at)?;
                let tail = &text[it.end..];
                let tail = tail.strip_prefix('.').unwrap_or(tail);
                let tail = tail.strip_prefix(|c: char| c.is_whitespace()).unwrap_or(tail);
                let end = text.len() - tail.len() + 6;
                tail.starts_with("I hope").then_some(Candidate { end, ..it })
            })
        }));
    }

    /// `final answer … is X` with at most 100 characters between. X may begin with white space.
    pub(super) fn final_is(
        &self,
        text: &str,
        out: &mut Vec<Candidate>,
        dots: Dots,
        mut read: impl FnMut(usize) -> Option<Candidate>,
    ) {
        out.extend(after_each(&self.finals, |start| {
            for (idx, c) in text[start + 12..].char_indices().take(101) {
                let rest = text[start + 12 + idx..].trim_start();
                if c.is_whitespace()
                    && let Some(rest) = rest.strip_prefix("is")
                    && let Some(it) =
                        read(text.len() - rest.strip_prefix(':').unwrap_or(rest).len())
                {
                    return Some(it);
                }
                if dots == Dots::StopAtNewlines && c == '\n' {
                    break;
                }
            }
            None
        }));
    }

    /// `answer[:] … X` with at most `reach` characters between.
    pub(super) fn near(
        &self,
        text: &str,
        colon: bool,
        reach: usize,
        dots: Dots,
        mut read: impl FnMut(usize) -> Option<Candidate>,
    ) -> Vec<Candidate> {
        // An anchor close behind another one tries no place again.
        let mut tried = 0_usize;
        self.after_answers(text, colon, |anchor_end| {
            let ends =
                text[anchor_end..].char_indices().map(|(idx, c)| (anchor_end + idx, Some(c)));
            for (at, c) in ends.chain([(text.len(), None)]).take(reach + 1) {
                let found = if at < tried { None } else { read(at) };
                tried = tried.max(at + 1);
                if found.is_some() || dots == Dots::StopAtNewlines && c == Some('\n') {
                    return found;
                }
            }
            None
        })
    }

    /// What `read` finds behind each `answer[:]`.
    fn after_answers(
        &self,
        text: &str,
        colon: bool,
        mut read: impl FnMut(usize) -> Option<Candidate>,
    ) -> Vec<Candidate> {
        let anchor = if colon { "answer:" } else { "answer" };
        after_each(&self.answers, |start| {
            let is_here = !colon || text[start + 6..].starts_with(':');
            if is_here { read(start + anchor.len()) } else { None }
        })
    }

    /// `answer … = X`, at the last equals sign within 100 characters, else `answer … X` within 50; not before another sign.
    pub(super) fn near_expression(&self, scan: &Scan<'_>, colon: bool) -> Vec<Candidate> {
        let text = scan.text;
        let mut tried = 0_usize;
        self.after_answers(text, colon, |anchor_end| {
            // Nothing further than a hundred characters counts.
            let line = head_of_line(&text[anchor_end..], 102);
            // The equals sign itself comes after at most 100 characters.
            let end = line.char_indices().nth(101).map_or(line.len(), |(idx, _)| idx);
            let mut signs = line[..end].rmatch_indices('=');
            let behind_sign = signs.find_map(|(idx, _)| {
                let after = anchor_end + idx + 1;
                let spaces_end = text.len() - text[after..].trim_start().len();
                let at = last_char_start(text, after, spaces_end);
                (at < spaces_end).then(|| scan.expression_not_before_equals(at)).flatten()
            });
            behind_sign.or_else(|| {
                let ends = line.char_indices().map(|(idx, _)| idx).chain([line.len()]);
                ends.take(51).find_map(|idx| {
                    let at = anchor_end + idx;
                    let is_new = at >= tried;
                    tried = tried.max(at + 1);
                    is_new.then(|| scan.expression_not_before_equals(at)).flatten()
                })
            })
        })
    }
}

/// At most `n` characters of the line that a text begins with.
fn head_of_line(text: &str, n: usize) -> &str {
    let reach = text.char_indices().take_while(|(_, c)| *c != '\n').take(n);
    &text[..reach.last().map_or(0, |(idx, c)| idx + c.len_utf8())]
}

/// What `read` finds at each place, beginning there. A place inside the last find is passed over.
fn after_each(
    starts: &[usize],
    mut read: impl FnMut(usize) -> Option<Candidate>,
) -> Vec<Candidate> {
    let (mut found, mut from) = (Vec::new(), 0);
    for start in starts.iter().copied() {
        if start >= from
            && let Some(it) = read(start)
        {
            from = it.end;
            found.push(Candidate { start, ..it });
        }
    }
    found
}

/// The start of the last character in `text[from..to]`, or `to` if that is empty.
pub(super) fn last_char_start(text: &str, from: usize, to: usize) -> usize {
    text[from..to].char_indices().next_back().map_or(to, |(idx, _)| from + idx)
}

fn strip_ignore_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then(|| &text[prefix.len()..])
}
