//! `math` under the policies `training` and `benchmark`: the answer as its writer means it.
//!
//! An answer is read as a whole ([`crate::meaning`]), held against the shape of the gold answer, and compared by value.

use super::{spellings, unknowns};
use crate::compare::{
    Comparison, are_joined_otherwise, is_list_for_inequality, same_condition, without_case,
};
use crate::error::GoldError;
use crate::expr::{Expr, Func};
use crate::extract::{Found, candidates};
use crate::extraction::{Extraction, find_answer, judge_found};
use crate::grader::{AnswerForm, FoundAnswer, PreparedGold};
use crate::meaning::{
    self, Clock, DOTS, Meaning, Refusal, Unit, announced_part, as_letter, as_words, asserted,
    begins_with_decision, clock, hedges, is_date, is_integer_ratio, is_ratio, labelled,
    names_nothing, opened, read, read_measured, said_value, same_words,
};
use crate::normalise::{Boxes, bare, contents, offers_another, open_boxes};
use crate::numeric;
use crate::options::MathOptions;
use crate::parse::{ParseError, Style};
use crate::policy::Policy;
use crate::verdict::{Judgement, Reason, Verdict, reported};
use std::borrow::Cow;

#[derive(Debug)]
pub(super) struct MeantGold {
    meaning: Meaning,
    /// The gold answer as it was given.
    text: String,
    shown: String,
    options: MathOptions,
}

impl MeantGold {
    pub(super) fn read(
        gold: &str,
        grader: &'static str,
        options: &MathOptions,
    ) -> Result<MeantGold, GoldError> {
        numeric::refuel();
        let inner = opened(gold);
        let meaning =
            read(&inner).map_err(|_| GoldError::unreadable(gold, grader, "one answer"))?;
        if meaning.text.is_empty() {
            return Err(GoldError::unreadable(gold, grader, "a formula, a number or a text"));
        }
        let shown = shown(&meaning);
        Ok(MeantGold { meaning, text: inner.into_owned(), shown, options: options.clone() })
    }

    /// The verdict on an answer without its box or announcement.
    fn compared(&self, answer: &str) -> Judgement {
        numeric::refuel();
        self.compared_within(answer)
    }

    /// [`MeantGold::compared`] with the steps that the judgement has left.
    fn compared_within(&self, answer: &str) -> Judgement {
        let extracted = Some(reported(answer.trim().to_owned()));
        let read = if self.meaning.unit.is_some() { read_measured } else { read };
        let is_rounded = spellings::rounds_to(&self.text, answer);
        let (answer, is_named) = self.respelled(answer);
        let answer = answer.as_str();
        let (verdict, answer_read, reason) = match read(answer) {
            _ if answer.trim() == self.text.trim() => {
                (Verdict::Correct, self.shown.clone(), "the same text")
            }
            _ if spellings::without_base(&self.text) == Some(answer.trim()) => {
                (Verdict::Correct, answer.to_owned(), "the same digits without their base")
            }
            _ if is_rounded => (Verdict::Correct, answer.to_owned(), "equal when rounded"),
            _ if spellings::same_cases(&self.text, answer, &self.options) => {
                (Verdict::Correct, answer.to_owned(), "the same cases")
            }
            _ if is_unfinished(answer) && !is_unfinished(&self.text) => {
                (Verdict::Wrong, String::new(), "an answer that goes on")
            }
            Err(why) => (Verdict::Wrong, String::new(), why),
            Ok(meaning) => {
                let (verdict, reason) = self.meets(&meaning, answer, is_named);
                (verdict, shown(&meaning), reason)
            }
        };
        let reason = match verdict {
            Verdict::Unparsable(why) => why.text(),
            _ => reason,
        };
        Judgement {
            extracted,
            answer_read,
            ..Judgement::new(verdict, "", self.shown.clone(), reason)
        }
    }

    /// The answer in the spelling that the gold answer asks for, and whether it had a name.
    fn respelled(&self, answer: &str) -> (String, bool) {
        let asked = self.meaning.value.as_ref().ok();
        let is_value = self.asks_for_number();
        // An answer that is said to be rounded is one, unless it rounds to the gold answer.
        let answer = answer.strip_prefix("approximately ").unwrap_or(answer);
        let mut text = answer.to_owned();
        let mut is_named = false;
        if is_value && self.meaning.words.is_none() {
            if let Some(value) = spellings::without_remark(&text) {
                text = String::from(value);
            }
            if let Some(value) = spellings::behind_name(&text) {
                (text, is_named) = (value.to_owned(), true);
            }
        }
        let spelled = match asked {
            Some(Expr::Num(_) | Expr::Float(_) | Expr::Percent(_)) => {
                let number = spellings::in_sentence(&text).unwrap_or_else(|| text.clone());
                let has_comma = self.asks_for_decimals() && number.contains(',');
                let decimal = has_comma.then(|| spellings::decimal_comma(&meaning::plain(&number)));
                Some(decimal.flatten().unwrap_or(number))
            }
            Some(Expr::Tuple(_) | Expr::Interval(_)) => Some(without_point_name(&text).to_owned()),
            Some(Expr::Set(items)) => {
                let roots = (!self.text.contains('_')).then(|| spellings::without_indices(&text));
                let are_values = !items.iter().any(Expr::is_relation);
                let listed = are_values.then(|| spellings::listed(&text));
                listed.flatten().or_else(|| roots.flatten())
            }
            _ => None,
        };
        (spelled.unwrap_or(text), is_named)
    }

    fn asks_for_decimals(&self) -> bool {
        match &self.meaning.value {
            Ok(Expr::Num(n) | Expr::Float(n)) => !n.is_integer() || self.text.contains('.'),
            Ok(Expr::Percent(_)) => self.text.contains(['.', '/']) || self.text.contains("frac"),
            _ => false,
        }
    }

    /// The verdict on an answer that is refused whatever its value.
    fn refused(&self, found: &FoundAnswer<'_>, why: Refusal) -> Judgement {
        let answer = reported(found.answer.to_string());
        Judgement::new(Verdict::Wrong, &answer, self.shown.clone(), why)
    }

    /// True if the gold answer is one value.
    fn asks_for_number(&self) -> bool {
        let is_value =
            |it: &Expr| !it.is_relation() && !it.is_set() && !matches!(it, Expr::Tuple(_));
        self.meaning.value.as_ref().is_ok_and(is_value)
    }

    /// The verdict on several boxes that each hold the gold answer, the ones before the last maybe as an equation.
    fn repeated(&self, passage: &str) -> Option<Judgement> {
        let contents = contents(passage);
        if !(2..=MAX_REPEATED).contains(&contents.len()) || !self.asks_for_number() {
            return None;
        }
        let lenient = MeantGold {
            meaning: self.meaning.clone(),
            text: self.text.clone(),
            shown: self.shown.clone(),
            options: MathOptions { policy: Policy::Benchmark, ..self.options.clone() },
        };
        let (last, others) = contents.split_last()?;
        let last = self.compared_within(last);
        let agree = others.iter().all(|it| lenient.compared_within(it).verdict.is_correct());
        let reason = Cow::Borrowed("each box holds it");
        (last.verdict.is_correct() && agree).then_some(Judgement { reason, ..last })
    }

    /// The verdict on an answer that was read, and the rule that decided.
    fn meets(&self, answer: &Meaning, text: &str, is_named: bool) -> (Verdict, Refusal) {
        let of = |same, yes, no| if same { (Verdict::Correct, yes) } else { (Verdict::Wrong, no) };
        if let Some(letter) = as_letter(&self.text).filter(char::is_ascii_uppercase) {
            let same = [text, &answer.text].iter().any(|it| as_letter(it) == Some(letter))
                || labelled(text) == Some(letter);
            return of(same, "the same letter", "another letter");
        }
        if let Some(time) = clock(&self.text).filter(Clock::is_certain) {
            let same = clock(text).is_some_and(|it| time.is_named_by(it));
            return of(same, "the same time", "another time");
        }
        if is_date(&self.text) || is_date(text) {
            return of(false, "", "a date against another text");
        }
        if is_integer_ratio(text)
            && matches!(&self.meaning.value, Ok(Expr::Num(n)) if n.is_integer())
            || is_ratio(&self.text) != is_ratio(text)
        {
            return of(false, "", "a ratio against another text");
        }
        if self.meaning.words.is_some() || answer.words.is_some() {
            let nothing =
                |it: &Meaning| names_nothing(&it.text) || it.value == Ok(Expr::Set(Vec::new()));
            let same = same_words(&self.meaning.text, &answer.text)
                || begins_with_decision(&self.meaning.text, text)
                || nothing(&self.meaning) && nothing(answer);
            return of(same, "the same words", "other words");
        }
        let (Ok(gold), Ok(value)) = (&self.meaning.value, &answer.value) else {
            return self.without_value(answer, text);
        };
        let [gold, value] = &without_case([gold, value]);
        match unknowns::in_order((gold, &self.text), (value, text)) {
            Some(Ok((gold, value))) => {
                let same = Comparison::new(&self.options).equal(&gold, &value);
                return of(same, "the unknowns' values in order", "other values of the unknowns");
            }
            Some(Err(why)) => return (Verdict::Wrong, why),
            None => {}
        }
        if let Some(why) = self.other_shape(gold, value, is_named) {
            let are_reals = is_interval_and_conditions(gold, value) && self.is_same_condition(text);
            return of(are_reals, "the same reals meet both", why);
        }
        if matches!(gold, Expr::Percent(_)) && answer.is_counted {
            return (Verdict::Wrong, "a number of things against a percentage");
        }
        let Some(value) = self.in_golds_unit(gold, answer, value) else {
            return (Verdict::Wrong, "another unit");
        };
        if are_joined_otherwise((gold, &self.text), (&value, text)) {
            return of(
                self.is_same_condition(text),
                "the same reals meet both",
                "joined otherwise",
            );
        }
        let (gold, value) = (&as_union(gold, &value), as_union(&value, gold));
        let (gold, value) = (&numeric::geometric_closed(gold), numeric::geometric_closed(&value));
        let mut comparison = Comparison::new(&self.options);
        if comparison.equal(&as_tuple(gold, &value), &as_tuple(&value, gold)) {
            return (Verdict::Correct, comparison.reason);
        }
        if let Expr::Percent(number) = gold
            && **number == value
        {
            return (Verdict::Correct, "a percentage without its sign");
        }
        if numeric::same_where_real(gold, &value) {
            return (Verdict::Correct, "equal to 50 digits wherever both are real");
        }
        of(self.is_same_condition(text), "the same reals meet both", comparison.reason)
    }

    /// True if the answer is met by the same reals as the gold answer.
    fn is_same_condition(&self, text: &str) -> bool {
        same_condition(&self.text, text, Style::Meant)
    }

    fn without_value(&self, answer: &Meaning, text: &str) -> (Verdict, Refusal) {
        let letters = if self.text.contains("\\begin") { joined } else { without_spaces };
        if letters(&answer.text) == letters(&self.meaning.text) {
            return (Verdict::Correct, "the same text");
        }
        if self.is_same_condition(text) {
            return (Verdict::Correct, "the same reals meet both");
        }
        match answer.value {
            Ok(_) => (Verdict::Wrong, "a value against a text"),
            Err(ParseError::Depth) => (Verdict::Unparsable(Reason::TooLarge), ""),
            Err(_) => (Verdict::Unparsable(Reason::Unreadable), ""),
        }
    }

    /// The reason why the answer has not the shape of the gold answer.
    fn other_shape(&self, gold: &Expr, value: &Expr, is_named: bool) -> Option<Refusal> {
        let is_tuple = |it: &Expr| matches!(it, Expr::Tuple(_) | Expr::Interval(_));
        let is_list = |it: &Expr| matches!(it, Expr::Set(_));
        if is_tuple(gold) && is_list(value) || is_tuple(value) && is_list(gold) {
            return Some("a list or a set against a tuple or an interval");
        }
        if is_list_for_inequality(gold, value) && !has_relation(value) {
            return Some("numbers against an inequality");
        }
        match (modulus(gold), modulus(value)) {
            (Some(wanted), Some(given)) if wanted != given => return Some("another modulus"),
            (Some(_), None) if is_list_or_relation(gold) && is_list_or_relation(value) => {
                return Some("a solution against a class of residues");
            }
            (None, Some(_)) if is_list_or_relation(gold) && is_list_or_relation(value) => {
                return Some("a class of residues against a solution");
            }
            _ => {}
        }
        let asks_for_value = !gold.is_relation() && !gold.is_set();
        if value.is_equation() && !gold.is_relation() && !(gold.is_set() && is_membership(value)) {
            if self.options.policy == Policy::Training && !is_named {
                return Some("an equation where a value is asked");
            }
            if !is_true_or_assigns(value) {
                return Some("an equation whose sides differ");
            }
        }
        if self.options.policy == Policy::Training && asks_for_value && is_list(value) {
            return Some("a list where one value is asked");
        }
        None
    }

    /// The answer's value in the unit of the gold answer; as it is where one of them has none.
    fn in_golds_unit(&self, gold: &Expr, answer: &Meaning, value: &Expr) -> Option<Expr> {
        let unit = answer.unit.as_ref();
        let is_other = |unit: Option<&Unit>, noun: Option<&String>| {
            unit.zip(noun).is_some_and(|(unit, noun)| unit.is_other_than(noun))
        };
        let has_pi = |it: &Expr| it.any(&mut |it| *it == Expr::Pi);
        let degrees = |it: Option<&Unit>| it.is_some_and(Unit::is_degrees);
        match (self.meaning.unit.as_ref(), unit) {
            // A scale that is left out is the gold answer's.
            (Some(wanted), Some(unit)) if wanted.is_temperature() && unit.is_degrees() => {
                Some(value.clone())
            }
            (Some(wanted), Some(unit)) => unit.convert(wanted, value.clone()),
            (wanted, unit)
                if is_other(wanted, answer.noun.as_ref())
                    || is_other(unit, self.meaning.noun.as_ref()) =>
            {
                None
            }
            // A multiple of π counts radians.
            (None, unit @ Some(_)) if degrees(unit) && has_pi(gold) => {
                unit.and_then(|it| it.convert(&Unit::radians(), value.clone()))
            }
            (wanted @ Some(_), None) if degrees(wanted) && has_pi(value) => {
                wanted.and_then(|it| Unit::radians().convert(it, value.clone()))
            }
            _ => Some(value.clone()),
        }
    }
}

/// Most boxes that are compared one by one.
const MAX_REPEATED: usize = 4;

/// A text without spaces, as a column of a matrix may have them between digits.
fn joined(text: &str) -> String {
    text.split_whitespace().collect()
}

/// A text without spaces, except between digits.
fn without_spaces(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        let is_digit = |it: &u8| it.is_ascii_digit();
        let are_digits = out.as_bytes().last().is_some_and(is_digit)
            && word.as_bytes().first().is_some_and(is_digit);
        out.push_str(if are_digits { " " } else { "" });
        out.push_str(word);
    }
    out
}

/// `P(1,2)` without the name of the point.
fn without_point_name(text: &str) -> &str {
    let text = text.trim();
    let named = text.strip_prefix(|c: char| c.is_ascii_uppercase());
    named.filter(|it| it.starts_with('(') || it.starts_with("\\left(")).unwrap_or(text)
}

fn modulus(e: &Expr) -> Option<&Expr> {
    match e {
        Expr::Call(Func::Mod, sides) => sides.last(),
        Expr::Rel(_, sides) => modulus(&sides.0).or_else(|| modulus(&sides.1)),
        // The parts of a list share it.
        Expr::Set(items) => items.iter().find_map(modulus),
        _ => None,
    }
}

fn has_relation(e: &Expr) -> bool {
    matches!(e, Expr::Set(items) if items.iter().any(Expr::is_relation))
}

fn is_list_or_relation(e: &Expr) -> bool {
    e.is_relation() || matches!(e, Expr::Set(_))
}

/// True for an interval on one side and a list of inequalities on the other.
fn is_interval_and_conditions(a: &Expr, b: &Expr) -> bool {
    let is_interval = |it: &Expr| matches!(it, Expr::Tuple(_) | Expr::Interval(_));
    let is_inequality = |it: &Expr| it.is_relation() && !it.is_equation();
    let has_one = |it: &Expr| matches!(it, Expr::Set(items) if items.iter().any(is_inequality));
    is_interval(a) && has_one(b) || is_interval(b) && has_one(a)
}

/// `x \in [1,4]` and `x = 3, 8`: a set, and no value.
fn is_membership(e: &Expr) -> bool {
    matches!(e, Expr::Rel(_, sides) if matches!(sides.0, Expr::Sym { .. }) && sides.1.is_set())
}

/// A list of intervals as their union, where the other side is a union.
fn as_union(it: &Expr, other: &Expr) -> Expr {
    let is_interval = |it: &Expr| matches!(it, Expr::Interval(_));
    match it {
        Expr::Set(items) if matches!(other, Expr::Union(_)) && items.iter().all(is_interval) => {
            Expr::Union(items.clone())
        }
        it => it.clone(),
    }
}

/// A column of a matrix as the tuple that it lists, where the other side is one.
fn as_tuple<'a>(it: &'a Expr, other: &Expr) -> Cow<'a, Expr> {
    match it {
        // `\binom{2}{3}` is a column where one is asked.
        Expr::Call(Func::Binomial, cells) if matches!(other, Expr::Matrix { cols: 1, cells } if cells.len() == 2) => {
            Cow::Owned(Expr::Matrix { cols: 1, cells: cells.clone() })
        }
        Expr::Matrix { cols: 1, cells } if matches!(other, Expr::Tuple(_) | Expr::Interval(_)) => {
            Cow::Owned(Expr::Tuple(cells.clone()))
        }
        it => Cow::Borrowed(it),
    }
}

/// True for an integer or a list that ends in dots: more digits or elements follow.
fn is_unfinished(text: &str) -> bool {
    let text = text.trim_end_matches(|c: char| c.is_whitespace() || c == '$');
    // A sum that goes on is a series.
    let goes_on = |before: &str| !before.contains('.') && !before.trim_end().ends_with('+');
    DOTS.iter().any(|it| text.strip_suffix(it).is_some_and(goes_on))
}

/// True for an equation that names its value, or has equal sides throughout.
fn is_true_or_assigns(equation: &Expr) -> bool {
    let mut sides = Vec::new();
    for link in equation.links() {
        let Expr::Rel(_, pair) = link else {
            return false;
        };
        if sides.is_empty() {
            sides.push(&pair.0);
        }
        sides.push(&pair.1);
    }
    let mut values = sides.into_iter().filter(|it| !it.is_only_symbols());
    let Some(first) = values.next() else {
        return true;
    };
    values.all(|it| it == first || numeric::same_value(it, first).is_same())
}

fn shown(meaning: &Meaning) -> String {
    match (&meaning.words, &meaning.value) {
        (Some(words), _) => format!("the text {words:?}"),
        (None, Ok(value)) => value.to_string(),
        (None, Err(_)) => format!("the text {:?}", cut(&meaning.text)),
    }
}

impl PreparedGold for MeantGold {
    fn judge_answer(&self, found: &FoundAnswer<'_>) -> Judgement {
        if let Some(letter) = &found.around.letter
            && as_letter(&self.text).is_some_and(|it| it.is_ascii_uppercase())
        {
            return self.compared(letter);
        }
        match answer_of(found, &self.text) {
            Ok(answer) => {
                let judgement = self.compared(&answer);
                let is_repeated = !judgement.verdict.is_correct() && found.n_boxes() > 1;
                let repeated = is_repeated.then(|| self.repeated(&found.passage)).flatten();
                repeated.unwrap_or(judgement)
            }
            Err(_) if found.answer.trim() == self.text.trim() => self.compared(&found.answer),
            Err(why) => self.refused(found, why),
        }
    }

    fn wants_whole_answers(&self) -> bool {
        true
    }

    fn judge(&self, completion: &str) -> Judgement {
        match find_answer(completion, Extraction::Announced) {
            Ok(found) => judge_found(self, &found),
            Err(why) if self.options.policy == Policy::Training || why == Reason::UnclosedThink => {
                Judgement::unparsable(why, self.shown.clone())
            }
            Err(why) => match best_candidate(completion, &self.options) {
                Some(_) if is_in_doubt(completion) => {
                    Judgement::unparsable(why, self.shown.clone())
                }
                Some(answer) => self.compared(&answer),
                None => Judgement::unparsable(why, self.shown.clone()),
            },
        }
    }
}

/// True if the last line of a text says that its value is none or may be another.
fn is_in_doubt(text: &str) -> bool {
    let line = text.trim_end().lines().next_back().unwrap_or_default();
    let words = as_words(&line[line.floor_char_boundary(line.len().saturating_sub(200))..]);
    let doubts = ["might", "could", "maybe", "perhaps", "cannot", "guess", "unsure", "not"];
    words.is_some_and(|it| it.split(' ').any(|word| doubts.contains(&word)))
}

/// The whole answer of a box, or what an announcement says.
fn answer_of<'a>(found: &'a FoundAnswer<'_>, gold: &str) -> Result<Cow<'a, str>, Refusal> {
    if found.form == AnswerForm::Whole {
        return Ok(Cow::Borrowed(asserted(&found.answer).unwrap_or(&found.answer)));
    }
    if found.form == AnswerForm::Boxed {
        if found.answer.trim().is_empty() {
            return Err("an empty box");
        }
        let is_list = found.n_boxes() > 1
            && !found.answer.contains("\\boxed")
            && !found.answer.contains("\\fbox")
            && !is_corrected(&found.passage);
        return Ok(match is_list {
            true if offers_another(&found.passage) => open_boxes(&found.passage, Boxes::All),
            true => opened(&found.passage),
            false => Cow::Borrowed(asserted(&found.answer).unwrap_or(&found.answer)),
        });
    }
    let said = match found.answer.strip_suffix('!') {
        // A factorial is asked for.
        Some(said) if found.is_exclaimed && !gold.contains('!') => bare(said),
        _ => &found.answer,
    };
    let part = announced_part(said);
    let part = asserted(part).unwrap_or(part);
    let is_joined = |word: &str| matches!(word, "or" | "and");
    let all = as_words(part).unwrap_or_default();
    let prose = all
        .split(' ')
        .filter(|it| it.len() > 1 && it.contains(char::is_alphabetic) && !is_joined(it))
        .filter(|it| !meaning::is_function(it))
        .count();
    if hedges(part) && (prose > 0 || part.contains('(')) {
        return Err("more than one answer, or none, is announced");
    }
    for sign in ["negative ", "minus "] {
        if let Some(number) = part.strip_prefix(sign) {
            return Ok(Cow::Owned(format!("-{number}")));
        }
    }
    let is_formula = part.len() > 2
        && part.matches('$').count() == 2
        && part.starts_with('$')
        && part.ends_with('$');
    if prose > 0
        && !is_formula
        && !hedges(part)
        && let Some(value) = said_value(part)
    {
        let candidate = best_candidate(&format!("answer: {value}"), &MathOptions::DEFAULT);
        let rounded = if part.starts_with("approximately ") { "approximately " } else { "" };
        return Ok(candidate.map_or(Cow::Borrowed(part), |it| Cow::Owned(format!("{rounded}{it}"))));
    }
    Ok(Cow::Borrowed(part))
}

/// True if the words before the last box say that it takes the place of the one before.
fn is_corrected(passage: &str) -> bool {
    const WORDS: [&str; 8] = [
        "wrong",
        "incorrect",
        "wait",
        "mistake",
        "error",
        "corrected",
        "final answer",
        "so the answer",
    ];
    let last = passage.rfind("\\boxed").unwrap_or(0);
    let before = passage[..last].rfind('}').map_or("", |at| &passage[at..last]).to_lowercase();
    WORDS.iter().any(|it| before.contains(it))
}

/// The text of the first candidate in Math-Verify's order.
fn best_candidate(text: &str, options: &MathOptions) -> Option<String> {
    let mut best = None;
    candidates(text, &options.targets, |group| {
        best = group.first().map(|it| match &it.found {
            Found::Formulas(all) => {
                let texts = all.iter().map(|it| &text[it.content.clone()]);
                opened(&texts.collect::<Vec<_>>().join(", ")).into_owned()
            }
            Found::Number { integer, decimal, percent } => {
                let sign = if *percent { "\\%" } else { "" };
                format!("{}{}{sign}", &text[integer.clone()], &text[decimal.clone()])
            }
            Found::Arithmetic(range) | Found::Word(range) => text[range.clone()].to_owned(),
        });
        best.is_some()
    });
    best
}

/// The first characters of a text, for a reason.
pub(super) fn cut(text: &str) -> &str {
    text.char_indices().nth(120).map_or(text, |(at, _)| &text[..at])
}
