//! Extraction: the part of a completion that a grader is shown.
//!
//! A grader that takes the last number of any text pays for text in which the gold answer happens to stand.
//! [`Extracting`] lets every grader look at an answer alone: the last closed box, or, with [`Extraction::Announced`],
//! what the completion says is its answer. What stands between `<think>` and `</think>` is not looked at. The price is
//! that an answer which is neither boxed nor announced is none.

use crate::around::Around;
use crate::error::GoldError;
use crate::grader::{AnswerForm, FoundAnswer, Grader, PreparedGold, Problem};
use crate::normalise::{
    are_one_list, bare, closing_brace, content_of, last_command, offers_another,
};
use crate::verdict::{Judgement, Reason};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::ops::Range;

/// The rule for which part of a completion is its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Extraction {
    /// The last `\boxed{…}`, if it is closed.
    Boxed,
    /// The last closed box, or else the last announced answer: "the answer is …", "Final answer: …",
    /// `<answer>…</answer>`, or a last line `#### …`.
    #[default]
    Announced,
    /// Whatever the grader itself takes for the answer; `math` takes the last number if there is nothing better, as
    /// Math-Verify does.
    Any,
}

impl Extraction {
    /// Every rule, by its name.
    pub const ALL: &[(&str, Extraction)] = &[
        ("boxed", Extraction::Boxed),
        ("announced", Extraction::Announced),
        ("any", Extraction::Any),
    ];

    /// Its name in recipes and records.
    pub fn name(self) -> &'static str {
        Extraction::ALL.iter().find(|it| it.1 == self).map_or("", |it| it.0)
    }
}

/// Finds the answer of a completion: its last closed box, or else, unless only boxes count, its last announcement.
///
/// # Errors
/// Why there is none.
pub fn find_answer(completion: &str, extraction: Extraction) -> Result<FoundAnswer<'_>, Reason> {
    let text = match outside_thought(without_end_tokens(completion))? {
        Cow::Borrowed(text) => text,
        Cow::Owned(text) => return find_in(&text, extraction).map(FoundAnswer::into_owned),
    };
    find_in(text, extraction)
}

impl FoundAnswer<'_> {
    pub(crate) fn n_boxes(&self) -> usize {
        self.passage.matches("\\boxed").count() + self.passage.matches("\\fbox").count()
    }

    fn into_owned(self) -> FoundAnswer<'static> {
        FoundAnswer {
            form: self.form,
            passage: Cow::Owned(self.passage.into_owned()),
            answer: Cow::Owned(self.answer.into_owned()),
            is_exclaimed: self.is_exclaimed,
            around: Around {
                alternative: self.around.alternative.map(|it| Cow::Owned(it.into_owned())),
                ..self.around
            },
        }
    }
}

fn find_in(text: &str, extraction: Extraction) -> Result<FoundAnswer<'_>, Reason> {
    let missing = match last_boxes(text) {
        Ok((passage, answer)) => {
            // A box without braces ends with its number.
            let is_braced = text[answer.end..].starts_with('}');
            let end = if is_braced { passage.end } else { answer.end };
            return Ok(FoundAnswer {
                around: Around::of(&text[..passage.start], &text[end..]),
                form: AnswerForm::Boxed,
                passage: Cow::Borrowed(&text[passage]),
                answer: Cow::Borrowed(text[answer].trim()),
                is_exclaimed: false,
            });
        }
        Err(why) => why,
    };
    if extraction == Extraction::Boxed {
        return Err(missing);
    }
    let (content, is_enclosed) = match last_line(text) {
        Some(it) => (it, true),
        None => announced(text).ok_or(missing)?,
    };
    // What a mark encloses is a whole answer: of several values none is the first.
    let is_whole = is_enclosed && lists_values(content);
    let passage =
        if is_whole { format!("\\boxed{{{content}}}") } else { format!("answer: {content}") };
    Ok(FoundAnswer {
        form: AnswerForm::Announced,
        passage: Cow::Owned(passage),
        answer: Cow::Borrowed(bare(content)),
        around: Around::default(),
        is_exclaimed: !is_enclosed && is_exclaimed(content),
    })
}

/// The text without the tokens that end a turn, which some engines decode.
fn without_end_tokens(mut text: &str) -> &str {
    const TOKENS: [&str; 3] = ["</s>", "<eos>", "<end_of_turn>"];
    loop {
        let end = text.trim_end();
        let token = end.strip_suffix('>').and_then(|it| it.rfind('<')).map_or("", |at| &end[at..]);
        let is_special = ["<|", "<｜"].iter().any(|it| token.starts_with(it));
        if !is_special && !TOKENS.contains(&token) {
            return text;
        }
        text = &end[..end.len() - token.len()];
    }
}

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// The text without what stands between `<think>` and `</think>`. A `</think>` that nothing opened ends a thought that
/// the prompt opened.
fn outside_thought(text: &str) -> Result<Cow<'_, str>, Reason> {
    if !text.contains(OPEN) && !text.contains(CLOSE) {
        return Ok(Cow::Borrowed(text));
    }
    let (mut outside, mut from, mut thinking) = (String::new(), 0, false);
    for (at, _) in text.match_indices('<') {
        if text[at..].starts_with(OPEN) && !thinking {
            outside.push_str(&text[from..at]);
            outside.push('\n');
            thinking = true;
        } else if text[at..].starts_with(CLOSE) {
            if !thinking {
                outside.clear();
            }
            (from, thinking) = (at + CLOSE.len(), false);
        }
    }
    if thinking {
        return Err(Reason::UnclosedThink);
    }
    outside.push_str(&text[from..]);
    Ok(Cow::Owned(outside))
}

/// True if an enclosed answer offers more than one value.
fn lists_values(content: &str) -> bool {
    let joined =
        |it: &str| it.contains(" or ") || it.contains("\\text{ or }") || it.contains(" / ");
    joined(content)
        && closing_brace(&format!("{{{content}}}"), 0, content.len() + 2) == Some(content.len() + 1)
}

/// True for a sentence that ends in an exclamation mark outside of its formulas.
fn is_exclaimed(content: &str) -> bool {
    content.trim_end_matches(|c: char| c.is_whitespace() || "*_`".contains(c)).ends_with('!')
}

/// Most boxes that form one list.
const MAX_LISTED: usize = 64;

/// Most bytes between two boxes that are offered as two cases.
const MAX_BETWEEN: usize = 140;

/// The last boxes, as far as they form a list, and the content of the last; or why there is none.
fn last_boxes(text: &str) -> Result<(Range<usize>, Range<usize>), Reason> {
    let start = last_command(text).ok_or(Reason::NoAnswer)?;
    let (last, end) = if let Some(it) = content_of(text, start) {
        (it.clone(), it.end + 1)
    } else {
        let it = unbraced(text, start).ok_or(Reason::UnclosedBox)?;
        // The reference is shown what follows the number, if anything does.
        let next = text[it.end..].chars().next().map_or(0, char::len_utf8);
        (it.clone(), it.end + next)
    };
    if let Some(outer) = enclosing_box(text, start, last.end) {
        return Ok(outer);
    }
    let (mut first, mut next) = (start, last.clone());
    for _ in 1..MAX_LISTED {
        if let Some(start) = last_command(&text[..first])
            && let Some(content) = content_of(&text[..first], start)
            && let between = &text[content.end + 1..first]
            && (are_one_list(between, &text[content.clone()], &text[next.clone()])
                || between.len() < MAX_BETWEEN && offers_another(between))
        {
            (first, next) = (start, content);
        } else {
            break;
        }
    }
    Ok((first..end, last))
}

/// The outermost box that holds the one which begins at `start` and ends at `end`, where it says more than that one.
fn enclosing_box(text: &str, start: usize, end: usize) -> Option<(Range<usize>, Range<usize>)> {
    let (mut outermost, mut before) = (None, start);
    for _ in 0..MAX_NESTED {
        let Some(outer) = last_command(&text[..before]) else {
            break;
        };
        if let Some(content) = content_of(text, outer).filter(|it| it.end > end) {
            let says_more =
                |part: &str| part.contains(|c: char| !c.is_whitespace() && !"{}$.,".contains(c));
            if says_more(&text[content.start..start]) || says_more(&text[end..content.end]) {
                outermost = Some((outer..content.end + 1, content));
            }
        }
        before = outer;
    }
    outermost
}

/// Most boxes before the last that are looked at.
const MAX_NESTED: usize = 8;

/// The content of a box without braces: the number or command behind `\boxed`.
fn unbraced(text: &str, start: usize) -> Option<Range<usize>> {
    let after = text[start..].strip_prefix("\\boxed ")?.trim_start();
    let from = text.len() - after.len();
    let len = after.find(|c: char| c.is_whitespace() || matches!(c, '$' | ',' | ';' | '{'));
    let content = after[..len.unwrap_or(after.len())].trim_end_matches('.');
    let is_number = content.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b'.' | b'/'));
    (is_number && !content.is_empty()).then(|| from..from + content.len())
}

/// The text behind `####` on the last line: the answer of a worked solution.
fn last_line(text: &str) -> Option<&str> {
    let line = text.trim_end().lines().next_back()?.trim_start();
    worth_reading(line.strip_prefix("####")?)
}

const ANSWER: &str = "answer";

/// Most bytes between "answer" and the word or sign that announces it.
const REACH: usize = 60;

/// The answer of the last announcement, and whether a pair of tags encloses it.
fn announced(text: &str) -> Option<(&str, bool)> {
    // Lower case of ASCII letters alone keeps every byte where it is.
    let lower = text.to_ascii_lowercase();
    let (mut end, mut closing_tag) = (lower.len(), None);
    while let Some(at) = lower[..end].rfind(ANSWER) {
        end = at;
        let (before, after) = (&lower[..at], &lower[at + ANSWER.len()..]);
        if after.starts_with('>') && before.ends_with("</") {
            closing_tag = Some(at - 2);
            continue;
        }
        let inside = at + ANSWER.len() + 1;
        let found = match closing_tag.take() {
            Some(close) if after.starts_with('>') && before.ends_with('<') => {
                worth_reading(&text[inside..close]).map(|it| (it, true))
            }
            _ => after_marker(after)
                .and_then(|it| content(&text[at + ANSWER.len() + it..]))
                .map(|it| (it, false)),
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Where the announced answer begins, behind a colon, an equals sign or a verb in the same sentence. `rest` is what
/// follows "answer", in lower case.
fn after_marker(rest: &str) -> Option<usize> {
    let mut word = 0;
    for (at, c) in rest.char_indices().take_while(|it| it.0 <= REACH) {
        if c.is_ascii_alphabetic() {
            continue;
        }
        match &rest[word..at] {
            // A list of answers to choose from announces none of them, and a denial none at all.
            // What may be is not said to be.
            "choices" | "choice" | "options" | "option" | "not" | "cannot" | "never" | "could"
            | "might" | "may" => {
                return None;
            }
            "t" if rest[..at].ends_with("n't") || rest[..at].ends_with("n’t") => return None,
            _ if matches!(c, ':' | '=' | '：') => return Some(at + c.len_utf8()),
            "is" | "are" | "be" | "equals" if word > 0 => return Some(at),
            _ if ".?!\n".contains(c) => return None,
            _ => word = at + c.len_utf8(),
        }
    }
    None
}

/// The announced answer at the beginning of `rest`: a displayed formula, or what is left of the line; of the next line
/// that is not empty where nothing is left of this one.
fn content(rest: &str) -> Option<&str> {
    let rest = rest.trim_start_matches(|c: char| c.is_whitespace() || "*_:=".contains(c));
    let negated = ["not ", "n't "]
        .iter()
        .any(|it| rest.get(..it.len()).is_some_and(|head| head.eq_ignore_ascii_case(it)));
    if negated {
        return None;
    }
    for (open, close) in [("\\[", "\\]"), ("$$", "$$")] {
        if let Some(inside) = rest.strip_prefix(open)
            && let Some(end) = inside.find(close)
        {
            return worth_reading(&rest[..open.len() + end + close.len()]);
        }
    }
    worth_reading(rest.lines().next()?)
}

/// The text, if it holds more than marks.
fn worth_reading(text: &str) -> Option<&str> {
    let text = text.trim();
    let holds = |c: char| c.is_alphanumeric() || c == '\\' || !c.is_ascii();
    text.contains(holds).then_some(text)
}

/// A grader that is shown what an [`Extraction`] finds.
#[derive(Clone, Copy, Debug)]
pub struct Extracting<'a> {
    grader: &'a dyn Grader,
    extraction: Extraction,
}

impl<'a> Extracting<'a> {
    /// `grader` on the answers that `extraction` finds.
    pub fn new(grader: &'a dyn Grader, extraction: Extraction) -> Extracting<'a> {
        Extracting { grader, extraction }
    }

    /// The rule for answers; [`Extraction::Any`] for a grader that looks at whole completions.
    pub fn extraction(&self) -> Extraction {
        if self.grader.reads_answers() { self.extraction } else { Extraction::Any }
    }

    /// The grader that is shown it.
    pub fn grader(&self) -> &'a dyn Grader {
        self.grader
    }
}

impl Grader for Extracting<'_> {
    fn name(&self) -> &'static str {
        self.grader.name()
    }

    fn summary(&self) -> &'static str {
        self.grader.summary()
    }

    fn prepare(&self, gold: &str) -> Result<Box<dyn PreparedGold>, GoldError> {
        let read = self.grader.prepare(gold)?;
        Ok(match self.extraction() {
            Extraction::Any => read,
            extraction => Box::new(ExtractingGold { gold: read, extraction }),
        })
    }

    fn prepare_problem(
        &self,
        problem: &Problem<'_>,
    ) -> Option<Result<Box<dyn PreparedGold>, GoldError>> {
        self.grader.prepare_problem(problem)
    }

    fn workers(&self) -> Option<usize> {
        self.grader.workers()
    }

    fn counterpart(&self) -> Option<&'static str> {
        self.grader.counterpart()
    }

    fn reads_answers(&self) -> bool {
        self.grader.reads_answers()
    }

    fn finish(&self) -> Result<(), String> {
        self.grader.finish()
    }
}

#[derive(Debug)]
struct ExtractingGold {
    gold: Box<dyn PreparedGold>,
    extraction: Extraction,
}

impl PreparedGold for ExtractingGold {
    fn judge(&self, completion: &str) -> Judgement {
        match find_answer(completion, self.extraction) {
            Ok(it) => self.gold.judge_answer(&it),
            Err(why) => Judgement::unparsable(why, self.gold.judge("").gold_read),
        }
    }
}
