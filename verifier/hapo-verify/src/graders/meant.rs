//! `math` under the policies `training` and `benchmark`: the answer as its writer means it. An answer is read as a
//! whole ([`crate::meaning`]), held against the shape of the gold answer, and compared by value.

use super::spellings;
use crate::compare::{
    Comparison, are_joined_otherwise, is_list_for_inequality, same_condition, without_case,
};
use crate::expr::{Expr, Op};
use crate::extract::{Found, candidates};
use crate::extraction::{Extraction, find_answer, judge_found};
use crate::grader::{AnswerForm, FoundAnswer, PreparedGold};
use crate::meaning::{
    self, DOTS, Meaning, Refusal, Unit, announced_part, as_letter, as_words, begins_with_decision,
    condition, hedges, is_date, is_integer_ratio, is_ratio, is_time, labelled, names_nothing,
    numeral, opened, read, read_measured, said_formula, said_value, same_date, same_time,
    same_words, shown_period, words,
};
use crate::normalise::{Boxes, bare, offers_another, open_boxes};
use crate::numeric;
use crate::options::{MathOptions, Policy};
use crate::parse::{ParseError, Style};
use crate::verdict::{GoldError, Judgement, Reason, Verdict, reported};
use std::borrow::Cow;
use std::collections::BTreeMap;

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
        let extracted = Some(reported(answer.trim().to_owned()));
        let is_rounded = spellings::rounds_to(&self.text, answer);
        let (answer, is_named) = self.respelled(answer);
        let answer = answer.as_str();
        let read = if self.meaning.unit.is_some() { read_measured } else { read };
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

    /// The verdict on an answer that was read, and the rule that decided.
    fn meets(&self, answer: &Meaning, text: &str, is_named: bool) -> (Verdict, Refusal) {
        let of = |same, yes, no| if same { (Verdict::Correct, yes) } else { (Verdict::Wrong, no) };
        if let Some(letter) = as_letter(&self.text).filter(char::is_ascii_uppercase) {
            let same = [text, &answer.text].iter().any(|it| as_letter(it) == Some(letter))
                || labelled(text) == Some(letter);
            return of(same, "the same letter", "another letter");
        }
        if [self.text.as_str(), text].iter().any(|it| is_time(it) || is_date(it)) {
            return of(same_time(&self.text, text), "the same time", "another time or date");
        }
        if same_date(&self.text, text) {
            return (Verdict::Correct, "the same date");
        }
        if is_integer_ratio(text)
            && !is_integer_ratio(&self.text)
            && matches!(&self.meaning.value, Ok(Expr::Num(n)) if n.is_integer())
            || is_ratio(&self.text)
            || is_ratio(text)
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
        if let Some(same) = self.same_unknowns(gold, value, text) {
            return of(same, "the unknowns' values by name", "other values of the unknowns");
        }
        if let Some(why) = self.other_shape(gold, value, is_named) {
            return of(self.is_same_condition(text), "the same reals meet both", why);
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

    /// Whether values of several unknowns meet: by name, or in the alphabet's order where one side has no names.
    fn same_unknowns(&self, gold: &Expr, value: &Expr, text: &str) -> Option<bool> {
        let is_list = |it: &Expr| matches!(it, Expr::Set(_) | Expr::Tuple(_) | Expr::Interval(_));
        let in_order = |it: BTreeMap<String, Expr>| Expr::Tuple(it.into_values().collect());
        let (gold, value) = match (named(gold), named(value)) {
            (Some(a), Some(b)) if !a.keys().eq(b.keys()) => {
                // `a=b, c=4` may be turned.
                let is_symbol = |it: &Expr| matches!(it, Expr::Sym { .. });
                return (!a.values().any(is_symbol)).then_some(false);
            }
            (Some(a), Some(b)) => (in_order(a), in_order(b)),
            (Some(a), None) if is_list(value) => (in_order(a), value.clone()),
            (None, Some(b)) if is_list(gold) => (gold.clone(), in_order(b)),
            _ => return None,
        };
        let is_set = [&self.text, text].iter().any(|it| it.trim().starts_with("\\{"));
        let as_tuple = |it: Expr| match it {
            Expr::Set(items) => Expr::Tuple(items),
            it => it,
        };
        let (gold, value) = (as_tuple(gold), as_tuple(value));
        Some(!is_set && Comparison::new(&self.options).equal(&gold, &value))
    }

    /// True if the answer is met by the same reals as the gold answer.
    fn is_same_condition(&self, text: &str) -> bool {
        same_condition(condition(&self.text), condition(text), Style::Meant)
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
        if is_list_for_inequality(gold, value) {
            return Some("numbers against an inequality");
        }
        let asks_for_value = !gold.is_relation() && !gold.is_set();
        if value.is_equation() && !gold.is_relation() && !gold.is_set() {
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
        // Things that are counted, or a unit that is not known.
        let is_other =
            |unit: Option<&Unit>, noun: &Option<String>| unit.is_some() && noun.is_some();
        let has_pi = |it: &Expr| it.any(&mut |it| *it == Expr::Pi);
        let degrees = |it: Option<&Unit>| it.is_some_and(Unit::is_degrees);
        match (self.meaning.unit.as_ref(), unit) {
            (Some(wanted), Some(unit)) => unit.convert(wanted, value.clone()),
            (wanted, unit)
                if is_other(wanted, &answer.noun) || is_other(unit, &self.meaning.noun) =>
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

/// The values of several unknowns by their names: `x=2, y=3` and `(x,y)=(2,3)`. Roots with an index are values of one.
fn named(e: &Expr) -> Option<BTreeMap<String, Expr>> {
    let is_list = |it: &Expr| matches!(it, Expr::Set(_) | Expr::Tuple(_) | Expr::Interval(_));
    let pairs: Vec<(String, Expr)> = match e {
        Expr::Rel(Op::Eq, sides) if is_list(&sides.0) && is_list(&sides.1) => {
            let (names, values) = (sides.0.children(), sides.1.children());
            let pairs = names.into_iter().map(ToString::to_string).zip(values.into_iter().cloned());
            pairs.collect()
        }
        Expr::Set(items) => {
            let pair = |it: &Expr| match it {
                Expr::Rel(Op::Eq, sides) => Some((sides.0.to_string(), sides.1.clone())),
                _ => None,
            };
            items.iter().map(pair).collect::<Option<_>>()?
        }
        _ => return None,
    };
    let n_pairs = pairs.len();
    let named: BTreeMap<String, Expr> = pairs.into_iter().collect();
    let is_name = |it: &String| it.chars().all(char::is_alphabetic);
    (n_pairs > 1 && named.len() == n_pairs && named.keys().all(is_name)).then_some(named)
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
        Expr::Matrix { cols: 1, cells } if matches!(other, Expr::Tuple(_) | Expr::Interval(_)) => {
            Cow::Owned(Expr::Tuple(cells.clone()))
        }
        it => Cow::Borrowed(it),
    }
}

/// True for a number or a list that ends in dots: more digits or elements follow.
fn is_unfinished(text: &str) -> bool {
    let text = text.trim_end_matches(|c: char| c.is_whitespace() || c == '$');
    // A sum that goes on is a series, and a long decimal was cut.
    let is_cut = |it: &str| {
        let decimals = it.rsplit('.').next().filter(|it| it.bytes().all(|b| b.is_ascii_digit()));
        it.contains('.') && decimals.is_some_and(|it| it.len() > 5 || shown_period(it).is_some())
    };
    let goes_on = |before: &str| !before.trim_end().ends_with('+') && !is_cut(before.trim_end());
    DOTS.iter().any(|it| text.strip_suffix(it).is_some_and(goes_on))
}

/// True for an equation that names its value, or has equal sides throughout.
fn is_true_or_assigns(equation: &Expr) -> bool {
    let mut sides = Vec::new();
    for link in equation.links() {
        let Expr::Rel(_, pair) = link else { return false };
        if sides.is_empty() {
            sides.push(&pair.0);
        }
        sides.push(&pair.1);
    }
    let mut values = sides.into_iter().filter(|it| !it.is_only_symbols());
    let Some(first) = values.next() else { return true };
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
            Ok(answer) => self.compared(&answer),
            Err(why) => self.refused(found, why),
        }
    }

    fn wants_whole_answers(&self) -> bool {
        true
    }

    fn judge(&self, completion: &str) -> Judgement {
        match find_answer(completion, Extraction::Announced) {
            Ok(found) => judge_found(self, &found),
            Err(why) => {
                let is_final =
                    self.options.policy == Policy::Training || why == Reason::UnclosedThink;
                let best = (!is_final).then(|| best_candidate(completion, &self.options)).flatten();
                match best.filter(|_| !is_in_doubt(completion)) {
                    Some(answer) => self.compared(&answer),
                    None => Judgement::unparsable(why, self.shown.clone()),
                }
            }
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
        return Ok(Cow::Borrowed(&*found.answer));
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
            false => Cow::Borrowed(&*found.answer),
        });
    }
    let said = match found.answer.strip_suffix('!') {
        // A factorial is asked for.
        Some(said) if found.is_exclaimed && !gold.contains('!') => bare(said),
        _ => &found.answer,
    };
    let part = announced_part(said);
    if let Some(numeral) = numeral(part) {
        return Ok(Cow::Owned(numeral));
    }
    let n_words = if is_formula(&found.passage) { 0 } else { prose(part) };
    if hedges(part) && (n_words > 0 || part.contains('(')) {
        return Err("more than one answer, or none, is announced");
    }
    for sign in ["negative ", "minus "] {
        if let Some(number) = part.strip_prefix(sign) {
            let numeral = numeral(number);
            return Ok(Cow::Owned(format!("-{}", numeral.as_deref().unwrap_or(number))));
        }
    }
    if n_words > 0 && !hedges(part) {
        if let Some(formula) = said_formula(found.passage.trim_start_matches("answer: ")) {
            return Ok(Cow::Owned(formula.to_owned()));
        }
        if let Some(value) = said_value(part) {
            // What is measured or counted keeps its unit, as in a box.
            let is_whole = read(value).is_ok_and(|it| it.unit.is_some() || it.noun.is_some());
            let found = || best_candidate(&format!("answer: {value}"), &MathOptions::DEFAULT);
            let candidate = is_whole.then(|| value.to_owned()).or_else(found);
            let rounded = if part.starts_with("approximately ") { "approximately " } else { "" };
            let whole = |it| Cow::Owned(format!("{rounded}{it}"));
            return Ok(candidate.map_or(Cow::Borrowed(part), whole));
        }
    }
    Ok(Cow::Borrowed(part))
}

/// True for an announced answer that is one formula between delimiters.
fn is_formula(passage: &str) -> bool {
    let marks = |c: char| c.is_whitespace() || "*_.,;!".contains(c);
    let content = passage.trim_start_matches("answer:").trim_matches(marks);
    [("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")].iter().any(|(open, close)| {
        let inner = content.strip_prefix(open).and_then(|it| it.strip_suffix(close));
        inner.is_some_and(|it| !it.is_empty() && !it.contains(close))
    })
}

/// The number of words of a text that is not read as a formula.
fn prose(text: &str) -> usize {
    let is_joined = |word: &str| matches!(word, "or" | "and");
    let all = words(text).filter(|it| it.chars().nth(1).is_some() && !is_joined(it));
    if text.contains("\\begin{") { 0 } else { all.filter(|it| !meaning::is_function(it)).count() }
}

/// True if the words before the last box say that it takes the place of the one before.
fn is_corrected(passage: &str) -> bool {
    #[rustfmt::skip]
    const WORDS: [&str; 8] = [
        "wrong", "incorrect", "wait", "mistake", "error", "corrected", "final answer", "so the answer",
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
