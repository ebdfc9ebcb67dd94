//! Reads a normalised answer: tokens of [`lexer`] through [`grammar`].

pub(crate) mod grammar;
pub(crate) mod lexer;

use crate::cursor::{is_digits, replaced_at};
use crate::expr::Expr;
use lexer::{Bracket, Token};

/// Deepest nesting that is read. Deeper texts are first folded by [`fold`], then refused.
pub(crate) const MAX_DEPTH: usize = 96;

/// Why a text is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParseError {
    /// The text does not fit the grammar.
    Syntax,
    /// Nested deeper than [`MAX_DEPTH`], chained or spelled out beyond the bounds.
    Depth,
    /// The text fits the grammar but has no value, as an operation on the wrong kind of operand.
    Meaning,
}

pub(crate) type ParseResult<T> = Result<T, ParseError>;

/// Whose reading of an ambiguous notation is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// The reference's: an integer before any positive number is a mixed number, a lone `i` makes symbols complex.
    Peer,
    /// A reader's: only a proper fraction makes a mixed number.
    Meant,
}

/// Longest text that is read as a formula, in bytes. A longer one is compared as text.
pub(crate) const MAX_FORMULA: usize = 32_768;

/// Reads a normalised LaTeX answer. Of an equation chain that cannot be read whole the reference takes the last part.
pub(crate) fn latex(text: &str, style: Style) -> ParseResult<Expr> {
    if text.len() > MAX_FORMULA {
        return Err(ParseError::Depth);
    }
    let whole = latex_once(text, style);
    if whole.is_err()
        && style == Style::Peer
        && let Some(last) = last_equation(text)
    {
        return latex_once(last, style);
    }
    whole
}

/// What values side by side are in arithmetic.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Products {
    /// An error, as in Python.
    Signed,
    /// A product, which binds as one with a sign does.
    Implied,
}

/// Arithmetic of plain text, whose commands have their backslashes.
pub(crate) fn arithmetic(text: &str, products: Products, style: Style) -> ParseResult<Expr> {
    if text.len() > MAX_FORMULA {
        return Err(ParseError::Depth);
    }
    // A point behind a number ends the sentence.
    let is_digit = |c: char| c.is_ascii_digit();
    let text = replaced_at(text, ".", |cursor, out| {
        (out.ends_with(is_digit) && !cursor.rest().starts_with(is_digit)).then_some(())
    });
    let mut tokens: Vec<Token<'_>> = Vec::new();
    for token in lexer::lex(&text).map_err(|_| ParseError::Syntax)? {
        let is_product = tokens.last().is_some_and(|it| it.ends_value()) && token.begins_value();
        if is_product && products == Products::Signed {
            return Err(ParseError::Syntax);
        }
        tokens.extend(is_product.then_some(Token::Mul));
        tokens.push(token);
    }
    grammar::parse(&tokens, style, false)
}

/// A text that is one number in e-notation, such as `-2.5e3`.
pub(crate) fn scientific(text: &str) -> Option<Expr> {
    let magnitude = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = magnitude.split_once(['e', 'E'])?;
    let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
    if !is_digits(digits) || !mantissa.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let number = grammar::e_notation(magnitude).ok()?;
    Some(if magnitude.len() < text.len() { number.negated() } else { number })
}

fn latex_once(text: &str, style: Style) -> ParseResult<Expr> {
    if let Some(it) = grouped_number(text) {
        return it;
    }
    let tokens = lexer::lex(text).map_err(|_| ParseError::Syntax)?;
    let complex = style == Style::Peer && looks_complex(text);
    match grammar::parse(&tokens, style, complex) {
        Err(ParseError::Depth) => grammar::parse(&fold(tokens), style, complex),
        it => it,
    }
}

/// `1,234` and `-12,345.6`: one number, not a list. A leading zero makes the comma a decimal point.
fn grouped_number(text: &str) -> Option<ParseResult<Expr>> {
    let trimmed = text.trim();
    let digits = trimmed.strip_prefix('-').unwrap_or(trimmed);
    let negative = digits.len() < trimmed.len();
    let (whole, fraction) = match digits.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (digits, None),
    };
    let (first, groups) = whole.split_once(',')?;
    let is_grouped = first.len() <= 3
        && is_digits(first)
        && groups.split(',').all(|it| it.len() == 3 && is_digits(it))
        && fraction.is_none_or(is_digits);
    if !is_grouped {
        return None;
    }
    let text = if negative || !first.starts_with('0') {
        digits.replace(',', "")
    } else {
        whole.replace(',', ".")
    };
    Some(grammar::number(&text).map(|it| if negative { it.negated() } else { it }))
}

/// The text behind the last `=` of a chain of at least two, where no list is in the way.
fn last_equation(text: &str) -> Option<&str> {
    if text.contains([',', ';']) {
        return None;
    }
    let bytes = text.as_bytes();
    let is_split = |at: usize| at == 0 || !matches!(bytes[at - 1], b'\\' | b'<' | b'!' | b'>');
    let mut splits = text.match_indices('=').map(|it| it.0).filter(|at| is_split(*at));
    let (_, second) = (splits.next()?, splits.next()?);
    let last = splits.next_back().unwrap_or(second);
    Some(&text[last + 1..])
}

/// True if an `i` stands alone in the text, in which case its symbols are not assumed to be real.
pub(crate) fn looks_complex(text: &str) -> bool {
    let word = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    let bytes = text.as_bytes();
    bytes.iter().enumerate().any(|(at, b)| {
        *b == b'i' && !word(bytes.get(at + 1)) && (at == 0 || !word(bytes.get(at - 1)))
    })
}

/// The tokens with `(n)` and `{n}` replaced by `n` where nothing else claims the bracket, and `1^n` by `1`: a tower of
/// braces around a plain number is read however deep it is. Used only where the grammar's depth limit was met.
fn fold(tokens: Vec<Token<'_>>) -> Vec<Token<'_>> {
    let mut out: Vec<Token<'_>> = Vec::with_capacity(tokens.len());
    for token in tokens {
        let Token::Close(kind) = token else {
            out.push(token);
            continue;
        };
        let n = out.len();
        let is_group = n >= 2
            && matches!(out[n - 1], Token::Number(_))
            && out[n - 2] == Token::Open(kind)
            && matches!(kind, Bracket::Brace | Bracket::Paren);
        let before = n.checked_sub(3).map(|it| out[it]);
        let free = matches!(
            before,
            None | Some(Token::Open(_) | Token::Caret | Token::Add | Token::Sub | Token::Mul)
        );
        if !is_group || !free {
            out.push(token);
            continue;
        }
        let number = out[n - 1];
        out.truncate(n - 2);
        let n = out.len();
        if n >= 2 && out[n - 1] == Token::Caret && out[n - 2] == Token::Number("1") {
            out.pop();
        } else {
            out.push(number);
        }
    }
    out
}
