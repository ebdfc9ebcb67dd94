//! The grader `math`: Math-Verify 0.9.0's judgement with its defaults, as `verify(parse("$gold$"), parse(completion))`.
//!
//! A completion is scanned for candidates ([`crate::extract`]), each is normalised ([`crate::normalise`]) and read
//! ([`crate::parse`]) until one has a meaning, and that meaning is compared with the gold answer's
//! ([`crate::compare`]). Both sides also keep the normalised text of their first candidate, and equal texts are a match too.

use super::meant::{MeantGold, cut};
use crate::compare::{Comparison, is_list_for_inequality, same_condition};
use crate::expr::Expr;
use crate::extract::{Candidate, Formula, Found, Targets, candidates};
use crate::grader::{FoundAnswer, Grader, PreparedGold};
use crate::meaning::{as_meant, plain_formula};
use crate::normalise::{Boxes, CleanUp, normalise};
use crate::numeric;
use crate::options::{Fallback, MathOptions, Policy, Tries, Variables};
use crate::parse::{self, ParseError, ParseResult, Products, Style};
use crate::verdict::{GoldError, Judgement, Reason, Verdict, reported};
use std::borrow::Cow;

/// Math-Verify's judgement.
pub static MATH: Math = Math::new(MathOptions::DEFAULT);

/// The meaning of the answer, wherever it stands.
pub static BENCHMARK: Math = Math::new(MathOptions::of(Policy::Benchmark));

/// The meaning of one boxed or announced answer in the gold answer's shape.
pub static TRAINING: Math = Math::new(MathOptions::of(Policy::Training));

/// The grader of [`MATH`], with options.
#[derive(Clone, Debug)]
pub struct Math {
    options: MathOptions,
}

impl Math {
    /// The grader with these options.
    pub const fn new(options: MathOptions) -> Math {
        Math { options }
    }

    /// Reads the answer of a text, as Math-Verify's `parse` does.
    pub fn read(&self, text: &str) -> Reading {
        numeric::refuel();
        read(text, &self.options.targets, &self.options)
    }

    /// True if an answer means the gold answer, as Math-Verify's `verify` says.
    pub fn same(&self, gold: &Reading, answer: &Reading) -> bool {
        numeric::refuel();
        compare(gold, answer, &self.options).0
    }
}

impl Grader for Math {
    fn name(&self) -> &'static str {
        match self.options.policy {
            Policy::MathVerify => "math",
            Policy::Benchmark => "benchmark",
            Policy::Training => "training",
        }
    }

    fn summary(&self) -> &'static str {
        match self.options.policy {
            Policy::MathVerify => {
                "Math-Verify 0.9.0's judgement: boxed, LaTeX or plain answers, compared by meaning"
            }
            Policy::Benchmark => "the answer as its writer means it, wherever it stands",
            Policy::Training => {
                "one boxed or announced answer, as its writer means it, without hedges"
            }
        }
    }

    fn prepare(&self, gold: &str) -> Result<Box<dyn PreparedGold>, GoldError> {
        let gold = gold.trim();
        if gold.is_empty() {
            return Err(GoldError::Empty);
        }
        if self.options.policy.reads_meaning() {
            return Ok(Box::new(MeantGold::read(gold, self.name(), &self.options)?));
        }
        let read = MathGold::read(&format!("${gold}$"), gold, &self.options)?;
        Ok(Box::new(read))
    }

    fn counterpart(&self) -> Option<&'static str> {
        Some("oat")
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Expr(Expr),
    /// One of the literal strings that were looked for.
    Word(String),
}

/// All that was read from one text.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    pub(crate) value: Option<Value>,
    /// The normalised text of the first candidate.
    pub text: Option<String>,
    /// The normalised text of the candidate that was read.
    pub(crate) read_from: Option<String>,
    /// True if a candidate was refused for its size.
    pub too_large: bool,
    /// How many candidates could not be read before one could.
    pub(crate) n_skipped: usize,
    /// The value is a numeral with a base.
    pub(crate) based: bool,
}

impl Reading {
    /// The value in sympy's notation.
    pub fn value(&self) -> Option<String> {
        self.expr().map(ToString::to_string)
    }

    fn expr(&self) -> Option<&Expr> {
        match &self.value {
            Some(Value::Expr(it)) => Some(it),
            _ => None,
        }
    }

    /// The literal string that was found.
    pub fn word(&self) -> Option<&str> {
        self.read_from.as_deref().filter(|_| matches!(self.value, Some(Value::Word(_))))
    }
}

#[derive(Debug)]
pub(crate) struct MathGold {
    reading: Reading,
    /// The gold answer as it was given.
    text: String,
    shown: String,
    options: MathOptions,
}

impl MathGold {
    /// Reads a gold answer that is itself a text with delimiters, as Math-Verify's `parse` does.
    pub(crate) fn read(
        text: &str,
        gold: &str,
        options: &MathOptions,
    ) -> Result<MathGold, GoldError> {
        numeric::refuel();
        let reading = read(text, &options.gold_targets, options);
        if reading.value.is_none() && reading.text.is_none() {
            return Err(GoldError::unreadable(gold, "math", "a formula, a number or a text"));
        }
        let shown = shown(&reading);
        Ok(MathGold { shown, reading, text: gold.to_owned(), options: options.clone() })
    }

    /// The judgement, and how the completion was read.
    fn judged(&self, completion: &str) -> (Judgement, Reading) {
        numeric::refuel();
        let answer = read(completion, &self.options.targets, &self.options);
        let (same, rule) = compare(&self.reading, &answer, &self.options);
        let verdict = verdict_of(&answer, same);
        let reason = match verdict {
            Verdict::Unparsable(why) => Cow::Borrowed(why.text()),
            _ if answer.n_skipped > 0 && answer.value.is_some() => Cow::Owned(format!(
                "{rule}; {} earlier candidates could not be read",
                answer.n_skipped
            )),
            _ => Cow::Borrowed(rule),
        };
        let extracted = answer.read_from.clone().or_else(|| answer.text.clone()).map(reported);
        let judgement = Judgement {
            answer_read: shown(&answer),
            extracted,
            ..Judgement::new(verdict, "", self.shown.clone(), reason)
        };
        (judgement, answer)
    }

    /// True if the answer is met by the same reals as the gold answer.
    fn is_same_condition(&self, found: &FoundAnswer<'_>) -> bool {
        // Of several boxes the last is a part alone.
        found.n_boxes() < 2 && same_condition(&self.text, &found.answer, Style::Peer)
    }
}

impl PreparedGold for MathGold {
    /// Where an answer was looked for, more is read than Math-Verify reads: `1\,000\,000` is one number, a condition
    /// such as `x < -1` or `x > 1` is the set of reals that meet it, and a gold answer that is one capital letter, which
    /// names a choice or a point, is met by that letter alone. [`PreparedGold::judge`] on a whole completion stays the
    /// reference's.
    fn judge_answer(&self, found: &FoundAnswer<'_>) -> Judgement {
        let (mut judgement, answer) = self.judged(&found.passage);
        let number = || spaced_number(&found.answer);
        let values = self.reading.expr().zip(answer.expr());
        let (verdict, reason) = if judgement.verdict.is_correct() {
            let gold = self.reading.text.as_deref().unwrap_or_default().trim();
            let is_capital = matches!(gold.as_bytes(), [b'A'..=b'Z']);
            if is_capital && judgement.extracted.as_ref() == Some(&gold.to_ascii_lowercase()) {
                (Verdict::Wrong, "a small letter against a capital")
            } else if values.is_some_and(|(gold, it)| is_list_for_inequality(gold, it)) {
                (Verdict::Wrong, "numbers against an inequality")
            } else {
                return judgement;
            }
        } else if let (Some(gold), Some(number)) = (self.reading.expr(), number()) {
            if !Comparison::new(&self.options).equal(gold, &number) {
                return judgement;
            }
            judgement.answer_read = number.to_string();
            (Verdict::Correct, "groups of three digits are one number")
        } else if self.is_same_condition(found) {
            judgement.answer_read = reported(found.answer.to_string());
            (Verdict::Correct, "the same reals meet both")
        } else {
            return judgement;
        };
        Judgement { verdict, reason: Cow::Borrowed(reason), ..judgement }
    }

    fn judge(&self, completion: &str) -> Judgement {
        self.judged(completion).0
    }
}

fn verdict_of(answer: &Reading, same: bool) -> Verdict {
    if same {
        Verdict::Correct
    } else if answer.value.is_some() {
        Verdict::Wrong
    } else if answer.text.is_none() {
        Verdict::Unparsable(Reason::NoAnswer)
    } else if answer.too_large {
        Verdict::Unparsable(Reason::TooLarge)
    } else {
        Verdict::Unparsable(Reason::Unreadable)
    }
}

fn shown(reading: &Reading) -> String {
    match &reading.value {
        Some(Value::Expr(it)) => it.to_string(),
        Some(Value::Word(it)) => it.clone(),
        None => {
            reading.text.as_ref().map_or_else(String::new, |it| format!("the text {:?}", cut(it)))
        }
    }
}

/// True if any meaning or text of the two readings meets.
fn compare(gold: &Reading, answer: &Reading, options: &MathOptions) -> (bool, &'static str) {
    let mut reason = "different";
    match (&gold.value, &answer.value) {
        (Some(Value::Expr(_)), Some(Value::Expr(_))) if answer.based && !gold.based => {
            reason = "a numeral with a base against a plain number";
        }
        (Some(Value::Expr(a)), Some(Value::Expr(b))) => {
            let mut comparison = Comparison::new(options);
            let same = if options.variables == Variables::ByPosition {
                comparison.equal(a, &crate::compare::renamed(a, b))
            } else {
                comparison.equal(a, b)
            };
            if same {
                return (true, comparison.reason);
            }
            reason = comparison.reason;
            let text = answer.read_from.as_deref().unwrap_or_default();
            if let Some((a, b)) = other_readings(a, b, text) {
                let mut comparison = Comparison::new(options);
                if comparison.equal(&a, &b) {
                    return (true, comparison.reason);
                }
            }
        }
        (Some(Value::Word(a)), Some(Value::Word(b))) if a == b => return (true, "the same word"),
        _ => {}
    }
    let word = |it: &Reading| match &it.value {
        Some(Value::Word(word)) => Some(word.clone()),
        _ => None,
    };
    let texts = |it: &Reading| [it.text.clone().map(|it| it.trim().to_owned()), word(it)];
    for a in texts(gold).iter().flatten().filter(|it| !it.is_empty()) {
        if texts(answer).iter().flatten().any(|b| a == b) {
            return (true, "the same text");
        }
    }
    (false, reason)
}

/// A further meaning of an answer, where the reference's reading of it is not what anyone writes: `2.5e3` is a number
/// (not 2.5·e·3), and `i` against a side without symbols is the imaginary unit.
fn other_readings(gold: &Expr, answer: &Expr, text: &str) -> Option<(Expr, Expr)> {
    if let Some(it) = parse::scientific(text) {
        return Some((gold.clone(), it));
    }
    match (gold.has_symbol(), answer.has_symbol()) {
        (false, true) => Some((gold.clone(), crate::compare::with_imaginary_unit(answer)?)),
        (true, false) => Some((crate::compare::with_imaginary_unit(gold)?, answer.clone())),
        _ => None,
    }
}

/// A number whose groups of three digits are set apart by spaces.
fn spaced_number(text: &str) -> Option<Expr> {
    let joined = as_meant(text);
    let spaced = joined.len() < text.len() && is_number(&joined);
    spaced.then(|| parse::grammar::number(&joined).ok())?
}

fn is_number(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    digits > 0 && digits + usize::from(text.contains('.')) == text.len()
}

/// Reads the best candidate of `text` that can be read.
pub(crate) fn read(text: &str, targets: &Targets, options: &MathOptions) -> Reading {
    let mut reading = Reading::default();
    candidates(text, targets, |group| {
        for it in group {
            let (value, normal) =
                read_candidate(text, it, targets.clean_up, &mut reading.too_large);
            if reading.text.is_none() && !normal.is_empty() && options.fallback == Fallback::Text {
                reading.text = Some(normal.clone());
            }
            if value.is_some() {
                reading.based =
                    matches!(value, Some(Value::Expr(Expr::Num(_)))) && has_base(&normal);
                reading.value = value;
                reading.read_from = Some(normal);
                return true;
            }
            // What is too large to be read, or denied, ends the search: a number picked out of it is no answer.
            if options.tries == Tries::First || reading.too_large || is_denied(&normal) {
                return true;
            }
            reading.n_skipped += 1;
        }
        false
    });
    reading
}

/// True if a text says what the answer is not.
fn is_denied(text: &str) -> bool {
    ["\\neq", "\\ne ", "\\neg", "\\lnot", "\\not", "≠", "¬"].iter().any(|it| text.starts_with(it))
}

/// True if a digit is followed by a subscript.
fn has_base(text: &str) -> bool {
    text.match_indices('_')
        .any(|(at, _)| text[..at].trim_end().ends_with(|c: char| c.is_ascii_digit()))
}

/// The meaning of one candidate and its normalised text.
fn read_candidate(
    text: &str,
    candidate: &Candidate,
    clean_up: CleanUp,
    too_large: &mut bool,
) -> (Option<Value>, String) {
    match &candidate.found {
        Found::Number { integer, decimal, percent } => {
            let (number, shown) = read_number(&text[integer.clone()], &text[decimal.clone()]);
            *too_large |= number.is_none();
            let value = number.map(|it| Value::Expr(as_percent(it, *percent)));
            (value, shown)
        }
        Found::Arithmetic(range) => {
            let source = &text[range.clone()];
            let value = parse::arithmetic(&plain_formula(source), Products::Signed, Style::Peer);
            *too_large |= matches!(value, Err(ParseError::Depth));
            (value.ok().map(Value::Expr), source.to_owned())
        }
        Found::Word(range) => {
            let word = &text[range.clone()];
            (Some(Value::Word(word.to_lowercase())), word.to_owned())
        }
        Found::Formulas(all) => read_formulas(text, all, clean_up, too_large),
    }
}

fn as_percent(value: Expr, percent: bool) -> Expr {
    if percent { Expr::Percent(Box::new(value)) } else { value }
}

/// A plain number and how it is shown; `None` instead of the number where it is too long.
fn read_number(integer: &str, decimal: &str) -> (Option<Expr>, String) {
    let digits = integer.replace([',', ' '], "");
    let digits = digits.trim_start_matches('0');
    let digits = if digits.is_empty() { "0" } else { digits };
    let shown = format!("{digits}{}", decimal.replace(',', "."));
    let number = match shown.strip_prefix('-') {
        Some(magnitude) => parse::grammar::number(magnitude).map(Expr::negated),
        None => parse::grammar::number(&shown),
    };
    (number.ok(), shown)
}

/// The meaning of joined formulas: the set of all, or else that of the first alone.
fn read_formulas(
    text: &str,
    all: &[Formula],
    clean_up: CleanUp,
    too_large: &mut bool,
) -> (Option<Value>, String) {
    let mut values = Vec::with_capacity(all.len());
    let mut texts = Vec::with_capacity(all.len());
    let mut first_is_read = None;
    for it in all {
        let boxes = if it.bare_box { Some(Boxes::Last) } else { clean_up.boxes };
        let (normal, value) =
            read_formula(&text[it.content.clone()], CleanUp { boxes, ..clean_up });
        first_is_read.get_or_insert(value.is_ok());
        match value {
            Ok(value) => values.push(as_percent(value, it.percent)),
            Err(error) => *too_large |= error == ParseError::Depth,
        }
        texts.push(normal);
    }
    if values.len() == all.len() && all.len() > 1 {
        let items = values.into_iter().flat_map(|it| match it {
            Expr::Set(items) => items,
            it => vec![it],
        });
        let set = Expr::Set(items.collect());
        return (Some(Value::Expr(set)), texts.join(" and "));
    }
    // Where one of several cannot be read, the first alone counts, if it can.
    let mut values = values.into_iter();
    let first = values.next().filter(|_| first_is_read == Some(true));
    (first.map(Value::Expr), texts.swap_remove(0))
}

/// The normalised text of a formula and its meaning.
fn read_formula(content: &str, clean_up: CleanUp) -> (String, ParseResult<Expr>) {
    let normal = normalise(content, clean_up);
    let value = parse::latex(&normal, Style::Peer);
    // A full stop behind a number ends the sentence.
    match normal.strip_suffix('.').filter(|it| is_number(it)) {
        Some(number) if value.is_err() => {
            let value = parse::latex(number, Style::Peer);
            (number.to_owned(), value)
        }
        _ => (normal, value),
    }
}
