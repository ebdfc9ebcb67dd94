//! Extraction: the part of a completion that a grader is shown. A grader that takes the last number of any text pays
//! for text in which the gold answer happens to stand. [`Extracting`] lets every grader look at an answer alone: the
//! last closed box, or, with [`Extraction::Announced`], what the completion states as its answer. A thought is not
//! looked at. The price is that an answer which is neither boxed nor announced is none.

use crate::around::Around;
use crate::grader::{AnswerForm, FoundAnswer, Grader, PreparedGold, Problem};
use crate::normalise::content_of;
use crate::statements::{boxed, stated};
use crate::verdict::{GoldError, Judgement, Reason, Verdict, reported};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The rule for which part of a completion is its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Extraction {
    /// The last `\boxed{…}`, if it is closed.
    Boxed,
    /// The last statement that nothing behind it takes back: a closed box, "the answer is …", a heading "Final answer",
    /// `<answer>…</answer>`, `"answer": …`, or a line `#### …`.
    #[default]
    Announced,
    /// The statement, or else the whole text: for answers that were cut out of a completion before.
    Whole,
    /// Whatever the grader itself takes for the answer; `math`, as Math-Verify, the last number if nothing is better.
    Any,
}

impl Extraction {
    /// Every rule, by its name.
    pub const ALL: &[(&str, Extraction)] = &[
        ("boxed", Extraction::Boxed),
        ("announced", Extraction::Announced),
        ("whole", Extraction::Whole),
        ("any", Extraction::Any),
    ];

    /// Its name in recipes and records.
    pub fn name(self) -> &'static str {
        Extraction::ALL.iter().find(|it| it.1 == self).map_or("", |it| it.0)
    }

    /// The rule of that name.
    pub fn named(name: &str) -> Option<Self> {
        Extraction::ALL.iter().find(|it| it.0 == name).map(|it| it.1)
    }
}

/// Finds the answer of a completion, or says why there is none.
pub fn find_answer(completion: &str, extraction: Extraction) -> Result<FoundAnswer<'_>, Reason> {
    let text = match outside_thought(without_end_tokens(completion))? {
        Cow::Borrowed(text) => text,
        Cow::Owned(text) => return find_in(&text, extraction).map(FoundAnswer::into_owned),
    };
    find_in(text, extraction)
}

fn find_in(text: &str, extraction: Extraction) -> Result<FoundAnswer<'_>, Reason> {
    match extraction {
        Extraction::Boxed => boxed(text),
        Extraction::Whole => {
            let text = unboxed(text.trim());
            match stated(text) {
                Err(Reason::NoAnswer) if !text.is_empty() => Ok(whole(text)),
                found => found,
            }
        }
        Extraction::Announced | Extraction::Any => stated(text),
    }
}

/// A text without the box around all of it.
fn unboxed(text: &str) -> &str {
    let content = text.starts_with("\\boxed").then(|| content_of(text, 0)).flatten();
    content.filter(|it| it.end + 1 == text.len()).map_or(text, |it| text[it].trim())
}

/// A text that is an answer and nothing else.
fn whole(text: &str) -> FoundAnswer<'_> {
    FoundAnswer {
        form: AnswerForm::Whole,
        passage: Cow::Owned(format!("\\boxed{{{text}}}")),
        answer: Cow::Borrowed(text),
        around: Around::default(),
        is_exclaimed: false,
    }
}

impl FoundAnswer<'_> {
    pub(crate) fn n_boxes(&self) -> usize {
        self.passage.matches("\\boxed").count() + self.passage.matches("\\fbox").count()
    }

    fn into_owned(self) -> FoundAnswer<'static> {
        let owned = |it: Cow<'_, str>| Cow::Owned(it.into_owned());
        FoundAnswer {
            form: self.form,
            passage: owned(self.passage),
            answer: owned(self.answer),
            is_exclaimed: self.is_exclaimed,
            around: Around {
                alternatives: self.around.alternatives.into_iter().map(owned).collect(),
                letter: self.around.letter.map(owned),
                ..self.around
            },
        }
    }
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

/// Tags around a thought, as models write them.
const THOUGHTS: [(&str, &str); 8] = [
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("<|channel|>analysis<|message|>", "<|end|>"),
    ("<|channel|>analysis", "<|channel|>final"),
];

/// The text without its thoughts. A tag that nothing opened ends a thought that the prompt opened.
fn outside_thought(text: &str) -> Result<Cow<'_, str>, Reason> {
    let mut text = Cow::Borrowed(text);
    for tags in THOUGHTS {
        if text.contains(tags.0) || text.contains(tags.1) {
            text = Cow::Owned(without_thoughts(&text, tags)?);
        }
    }
    Ok(text)
}

fn without_thoughts(text: &str, (open, close): (&str, &str)) -> Result<String, Reason> {
    let (mut outside, mut from, mut thinking) = (String::new(), 0, false);
    for (at, _) in text.match_indices(['<', '[']) {
        if text[at..].starts_with(open) && !thinking {
            outside.push_str(text.get(from..at).unwrap_or_default());
            outside.push('\n');
            thinking = true;
        } else if text[at..].starts_with(close) {
            if !thinking && close.contains('/') {
                outside.clear();
            }
            if thinking || close.contains('/') {
                (from, thinking) = (at + close.len(), false);
            }
        }
    }
    if thinking {
        return Err(Reason::UnclosedThink);
    }
    outside.push_str(&text[from..]);
    Ok(outside)
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
            Ok(it) => judge_found(&*self.gold, &it),
            Err(why) => Judgement::unparsable(why, self.gold.judge("").gold_read),
        }
    }
}

/// Judges a found answer by what stands around it, too: no part of a formula where the grader asks, nothing that is
/// taken back, and no value beside which another one is offered.
pub(crate) fn judge_found(gold: &dyn PreparedGold, found: &FoundAnswer<'_>) -> Judgement {
    let refused = |why| {
        let answer = reported(found.answer.to_string());
        Judgement::new(Verdict::Wrong, &answer, gold.judge("").gold_read, why)
    };
    if found.around.is_part && gold.wants_whole_answers() {
        return refused("a box that holds a part of a formula");
    }
    if found.around.is_denied {
        return refused("an answer that is denied");
    }
    let judgement = gold.judge_answer(found);
    let is_other = |it: &Cow<'_, str>| {
        !gold.judge_answer(&FoundAnswer::announced(Cow::Borrowed(it))).verdict.is_correct()
    };
    if judgement.verdict.is_correct() && found.around.alternatives.iter().any(is_other) {
        return refused("another value is offered beside the answer");
    }
    judgement
}
