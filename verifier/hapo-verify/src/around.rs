//! What stands around an answer and changes what it says. `\boxed{21}+1` is 22, and `not \boxed{7}` is no answer.
//! Looked at where an extraction finds the answer, the first by the policies that read meaning alone. The price is that
//! signs in a sentence may be taken for signs of a formula.

use std::borrow::Cow;

use crate::cursor::{SPACES, begins, ends, tail, without_spaces};
use crate::meaning::DEGREES;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Around<'a> {
    /// The formula goes on: the box holds a part of it.
    pub(crate) is_part: bool,
    pub(crate) is_denied: bool,
    /// Other values that are offered beside it.
    pub(crate) alternatives: Vec<Cow<'a, str>>,
    /// The letter of a choice that is announced behind a box with its content.
    pub(crate) letter: Option<Cow<'a, str>>,
}

impl<'a> Around<'a> {
    /// What the texts before and behind a box make of it.
    pub(crate) fn of(before: &str, after: &str) -> Around<'a> {
        let in_formula = is_in_formula(before);
        let is_part = leads_on(before, after, in_formula) || goes_on(before, after, in_formula);
        Around { is_part, is_denied: is_denied(before), ..Around::default() }
    }
}

const SIGNS: [char; 6] = ['+', '-', '−', '*', '/', '×'];
const OPERATORS: [&str; 4] = ["\\cdot", "\\times", "\\div", "\\pm"];

const FACTORS: [&str; 3] = ["\\pi", "\\sqrt", "\\frac"];

const LARGE: [&str; 6] = ["hundred", "thousand", "million", "billion", "trillion", "dozen"];

/// Marks behind a box that are no exponents, beside degrees.
const MARKS: [&str; 3] = ["^*", "^{*}", "^{\\text{"];

fn is_digit(c: char) -> bool {
    c.is_ascii_digit()
}

/// True for a text that begins with an operand. A letter or a bracket has to be glued to the sign before it.
fn is_operand(text: &str) -> bool {
    let mut letters = text.chars().take_while(char::is_ascii_alphabetic);
    let is_symbol = letters.next().is_some() && letters.next().is_none();
    text.trim_start().starts_with(|c: char| is_digit(c) || c == '\\')
        || text.starts_with(['(', '{'])
        || is_symbol
}

/// True if a formula that began before a box is still open.
fn is_in_formula(before: &str) -> bool {
    let paragraph = before.rsplit("\n\n").next().unwrap_or_default();
    let is_open = |open: &str, close: &str| paragraph.rfind(open) > paragraph.rfind(close);
    // Behind the end of a sentence a sign of money is none of a formula.
    let is_sentence = paragraph.rsplit('$').next().is_some_and(|it| it.contains(". "));
    let n_displays = paragraph.matches("$$").count();
    let n_signs = paragraph.matches('$').count() - paragraph.matches("\\$").count();
    is_open("\\[", "\\]")
        || is_open("\\(", "\\)")
        || !is_sentence && (n_displays % 2 == 1 || n_signs % 2 == 1)
}

/// The text before a box without what stands between a sign and its operand: spaces, braces, the sign that opens a formula.
fn without_gap(before: &str, is_in_formula: bool) -> &str {
    if !is_in_formula {
        return before;
    }
    if let Some(outside) = before.strip_suffix('$') {
        return outside.strip_suffix('$').unwrap_or(outside);
    }
    let without_spaces = |text| without_spaces(text, &SPACES[..6]);
    let rest = without_spaces(before);
    // Another brace opens the argument of a command.
    let inner = rest.strip_suffix('{').map(without_spaces);
    inner.filter(|it| it.ends_with(SIGNS)).unwrap_or(rest)
}

/// True if a formula before a box takes it for an operand or an argument.
fn leads_on(before: &str, after: &str, is_in_formula: bool) -> bool {
    let outside = before;
    let is_base = |c: char| is_digit(c) || matches!(c, '_' | '^');
    let before = without_gap(before, is_in_formula);
    // Stars on both sides are marks of emphasis, and a dash with a space behind it belongs to the sentence.
    let is_emphasis = before.ends_with('*') && after.trim_start_matches('$').starts_with('*')
        || ends(before, &["--", "**", ":-"]);
    before.ends_with(SIGNS) && !is_emphasis
        || outside.ends_with(is_digit)
        || is_in_formula && !outside.ends_with('$') && before.ends_with(is_base)
        || ends(before.trim_end(), &OPERATORS)
        || before.strip_suffix('{').is_some_and(is_argument)
}

/// True if what follows a box raises it, or gives it an index.
fn is_raised(before: &str, after: &str, is_in_formula: bool) -> bool {
    let is_index = |it: &str| it.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '{');
    // At the end of a sentence the mark is no factorial.
    let is_sentence = || before.split(|c: char| !c.is_alphabetic()).any(|word| word.len() > 1);
    let is_factorial = |it: &str| {
        is_in_formula
            || !is_sentence()
            || begins(it, &["$", "\\)", "\\]"])
            || it.starts_with(SIGNS) && !it.starts_with('*')
            || it.trim_start().starts_with('=')
    };
    after.starts_with('^') && !begins(after, &MARKS) && !begins(after, &DEGREES[..3])
        || after.strip_prefix('_').is_some_and(is_index)
        || after.strip_prefix('!').is_some_and(is_factorial)
}

/// True if the formula goes on behind a box.
fn goes_on(before: &str, after: &str, is_in_formula: bool) -> bool {
    let behind = after.trim_start_matches([' ', '}']);
    let is_summed = match behind.strip_prefix(SIGNS) {
        Some(rest) => is_operand(rest) && !before.ends_with('*'),
        None => begins(behind, &OPERATORS),
    };
    let mut letters = after.chars();
    // A letter that names a unit may be one.
    let is_multiplied =
        letters.next().is_some_and(|c| c.is_ascii_lowercase() && !"mgshl".contains(c))
            && !letters.next().is_some_and(char::is_alphabetic)
            || begins(after, &FACTORS);
    let is_element = ends(before.trim_end(), &["(", "[", "\\{"])
        && behind.strip_prefix(',').is_some_and(|it| is_operand(it.trim_start()));
    let words = behind.trim_start_matches(['$', ' ']).trim_start_matches("\\text{").trim_start();
    let has_decimals = after.strip_prefix('.').is_some_and(|it| it.starts_with(is_digit));
    is_summed
        || is_raised(before, after, is_in_formula)
        || is_multiplied
        || is_element
        || has_decimals
        || begins(words, &LARGE)
        || after.starts_with(is_digit)
}

/// True if the braces that follow hold the argument of a command that makes another value of it.
fn is_argument(before: &str) -> bool {
    const COMMANDS: [&str; 8] = ["^", "_", "\\sqrt", "]", "}", "\\frac", "\\dfrac", "\\binom"];
    ends(before.trim_end(), &COMMANDS)
}

/// Most bytes before a box that are looked at for words.
const MAX_WORDS_BEFORE: usize = 200;

/// True if the words before a box deny it: `is not \boxed{7}`.
fn is_denied(before: &str) -> bool {
    const DENIALS: [&str; 7] = ["not", "not be", "n't", "n't be", "cannot", "cannot be", "never"];
    const NOT: [&str; 7] = ["\\ne", "\\neq", "≠", "\\neg", "\\lnot", "¬", "\\not="];
    let before = tail(before, MAX_WORDS_BEFORE).trim_end();
    let sentence = before.rsplit(['\n', '.', ';']).next().unwrap_or_default();
    let words = sentence.trim_end_matches(|c: char| c.is_whitespace() || "$*([\\{}".contains(c));
    let words = words.to_lowercase().replace('’', "'");
    let denies = |denial: &&str| {
        let rest = words.strip_suffix(*denial);
        let is_whole = |it: &str| denial.contains('\'') || !it.ends_with(char::is_alphanumeric);
        rest.is_some_and(is_whole)
    };
    ends(before, &NOT)
        || DENIALS.iter().any(denies)
        || words.contains("wrong answer")
        || words.contains("incorrect answer")
}
