//! The grader `choice`: the letter that a completion chooses is the gold answer's. A box, an announcement (`the answer
//! is (C)`), a conclusion (`therefore B`) or the beginning of the answer (`C Cecile`) names the letter; of several the
//! last in the first of these ways counts. A letter after `not` is not chosen. No option's text is compared; the price
//! is that an answer which gives the text alone is unparsable.

use crate::extraction::{Extraction, find_answer, judge_found};
use crate::grader::{AnswerForm, FoundAnswer, Grader, PreparedGold};
use crate::meaning::lists_letters;
use crate::verdict::{GoldError, Judgement, Reason, Verdict};
use std::borrow::Cow;

/// The letter of a choice.
pub static CHOICE: Choice = Choice;

/// The grader of [`CHOICE`].
#[derive(Clone, Copy, Debug)]
pub struct Choice;

impl Grader for Choice {
    fn name(&self) -> &'static str {
        "choice"
    }

    fn summary(&self) -> &'static str {
        "the letter of a multiple choice, boxed, announced or concluded"
    }

    fn prepare(&self, gold: &str) -> Result<Box<dyn PreparedGold>, GoldError> {
        if gold.trim().is_empty() {
            return Err(GoldError::Empty);
        }
        match leading_letter(gold) {
            Some(it) => Ok(Box::new(Letter(it))),
            None => Err(GoldError::unreadable(gold, self.name(), "a letter such as `C` or `(C)`")),
        }
    }
}

#[derive(Debug)]
struct Letter(char);

impl PreparedGold for Letter {
    fn wants_whole_answers(&self) -> bool {
        true
    }

    fn judge(&self, completion: &str) -> Judgement {
        if let Ok(it) = find_answer(completion, Extraction::Announced) {
            return judge_found(self, &it);
        }
        let chosen = concluded(completion).or_else(|| leading_letter(completion));
        self.compare(chosen)
    }

    fn judge_answer(&self, found: &FoundAnswer<'_>) -> Judgement {
        if let Some(letter) = &found.around.letter {
            return self.compare(leading_letter(letter));
        }
        if lists_letters(&found.answer) {
            let gold = self.0.to_string();
            return Judgement::new(Verdict::Wrong, &found.answer, gold, "more than one letter");
        }
        let chosen = match found.form {
            AnswerForm::Boxed | AnswerForm::Whole => leading_letter(&found.answer),
            AnswerForm::Announced => {
                leading_letter(&found.answer).or_else(|| concluded(&found.answer))
            }
        };
        self.compare(chosen)
    }
}

impl Letter {
    fn compare(&self, chosen: Option<char>) -> Judgement {
        let gold = self.0.to_string();
        let Some(chosen) = chosen else { return Judgement::unparsable(Reason::NoAnswer, gold) };
        let (verdict, rule) = if chosen == self.0 {
            (Verdict::Correct, "the same letter")
        } else {
            (Verdict::Wrong, "another letter")
        };
        Judgement::new(verdict, &chosen.to_string(), gold, rule)
    }
}

/// The letter that a text begins with, marks aside: a capital that stands alone, or a small one, alone or bracketed.
fn leading_letter(text: &str) -> Option<char> {
    let mut text = Cow::Borrowed(text.trim());
    for command in ["\\text{", "\\textbf{", "\\mathrm{", "\\mathbf{"] {
        if let Some(inside) = text.strip_prefix(command) {
            text = Cow::Owned(inside.replacen('}', "", 1));
        }
    }
    let text = text.trim_start_matches(|c: char| c.is_whitespace() || "*_$([{`\"'".contains(c));
    let text = ["option ", "Option ", "choice ", "Choice "]
        .iter()
        .find_map(|it| text.strip_prefix(it))
        .unwrap_or(text)
        .trim_start_matches(['(', '[', '*']);
    let letter = text.chars().next().filter(char::is_ascii_alphabetic)?;
    let after = text[1..].chars().next();
    let stands_alone = !after.is_some_and(|c| c.is_alphanumeric() || c == '\'');
    // "A" before a word is an article, and "I" is who writes.
    let article = matches!(letter, 'A' | 'I')
        && after == Some(' ')
        && text[2..].starts_with(char::is_lowercase);
    let small = letter.is_ascii_lowercase() && after.is_some_and(|c| c == ' ' || c == ',');
    (stands_alone && !article && !small).then(|| letter.to_ascii_uppercase())
}

/// The last capital letter behind a word that concludes.
fn concluded(text: &str) -> Option<char> {
    const WORDS: [&str; 7] = ["therefore", "thus", "hence", "so", "choose", "pick", "correct is"];
    let lower = text.to_ascii_lowercase();
    let starts =
        WORDS.iter().flat_map(|word| lower.match_indices(word).map(|it| it.0 + word.len()));
    let letters = starts.filter_map(|at| {
        let rest = text[at..].trim_start_matches([' ', ',', ':']);
        let rest =
            ["it is ", "it's ", "the "].iter().find_map(|it| rest.strip_prefix(it)).unwrap_or(rest);
        (text[at..].len() != rest.len()).then(|| leading_letter(rest).map(|it| (at, it)))?
    });
    letters.max_by_key(|it| it.0).map(|it| it.1)
}
