//! LaTeX and plain text into tokens, longest match first, in one pass.
//!
//! The token table follows the published grammar of latex2sympy2-extended 1.11 (what Math-Verify 0.9.0 reads), since a
//! text that it cannot read is compared as a string and the verdict depends on it. An unknown command or character
//! ends the reading with an error; nothing is skipped silently but white space and spacing commands.

mod commands;
mod letters;

use crate::expr::{Domain, Func, Op};
use crate::work;
use commands::command;
use letters::{letters, unicode};

/// One token. Text is borrowed from the input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Token<'a> {
    Number(&'a str),
    /// A number with its percent sign removed.
    Percent(&'a str),
    /// `1.5E-3`.
    ENotation(&'a str),
    Letter(char),
    /// `e`, the constant.
    ExpE,
    /// `E`, a symbol.
    BigE,
    /// A Greek letter, by its name without the backslash.
    Greek(&'static str),
    /// `\gamma` or `\Gamma`, by its name: a function when an argument follows, a constant otherwise.
    Gamma(&'static str),
    /// Another symbol command, by its name.
    Symbol(&'a str),
    /// An accent or text command and its content.
    Accent(&'a str, &'a str),
    /// `dx`: the variable without the `d`.
    Differential(&'a str),
    Infinity,
    InfinityPercent,
    Partial,
    Variable(&'a str),
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Open(Bracket),
    Close(Bracket),
    Bar,
    Vert,
    Norm,
    Phantom,
    Boxed,
    Function(Fn1),
    /// `\gcd`, `\max`, …: several arguments.
    MultiFunction(&'static str),
    /// A bare word that the grammar reserves (`gcd`, `tr`, …).
    Word(&'a str),
    OperatorName,
    Frac,
    Binom,
    Choose,
    Sqrt,
    Int,
    Sum,
    Prod,
    Lim,
    Approach,
    MatrixStart,
    MatrixEnd,
    DetStart,
    DetEnd,
    Ampersand,
    RowEnd,
    Underscore,
    Caret,
    Semicolon,
    Comma,
    Period,
    In,
    NotIn,
    Assign,
    Approx,
    Relation(Op),
    Bang,
    Transpose,
    Degree,
    Domain(Domain),
    Primes,
    Union,
    Intersection,
    SetMinus,
    PlusMinus,
    Subset,
    Superset,
    /// A token of the grammar that no expression can use.
    Other,
}

/// The brackets that the grammar tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bracket {
    Paren,
    ParenVisual,
    Group,
    Brace,
    BraceVisual,
    BraceCommand,
    Square,
    SquareCommand,
    VertBar,
    Floor,
    Ceil,
    Angle,
}

/// A function of one argument.
#[derive(Clone, Debug, PartialEq, Eq, Copy)]
pub(crate) enum Fn1 {
    Log,
    Ln,
    Exp,
    Known(&'static str),
}

impl Token<'_> {
    /// True for the start of a value, functions and bars aside.
    pub(crate) fn is_operand(self) -> bool {
        use Token as T;
        matches!(self, T::Number(_) | T::Percent(_) | T::ENotation(_))
            || matches!(self, T::Letter(_) | T::BigE | T::Greek(_) | T::Gamma(_))
            || matches!(self, T::Symbol(_) | T::Accent(..) | T::Variable(_))
            || matches!(self, T::Differential(_) | T::Partial)
            || matches!(self, T::Infinity | T::InfinityPercent)
            || matches!(self, T::Phantom | T::Boxed | T::Frac | T::Binom)
            || matches!(self, T::Open(_) | T::MatrixStart | T::DetStart)
    }

    /// True for the start of a function with its arguments.
    pub(crate) fn is_function(self) -> bool {
        matches!(self, Token::ExpE | Token::Function(_) | Token::MultiFunction(_))
            || matches!(self, Token::OperatorName | Token::Sqrt | Token::Int)
            || matches!(self, Token::Sum | Token::Prod | Token::Lim)
    }
}

/// Functions by their names.
#[rustfmt::skip]
static FUNCTION_NAMES: [(&str, Func); 40] = [
    ("sin", Func::Sin), ("cos", Func::Cos), ("tan", Func::Tan), ("csc", Func::Csc), ("sec", Func::Sec),
    ("cot", Func::Cot), ("arcsin", Func::Asin), ("asin", Func::Asin), ("arccos", Func::Acos), ("acos", Func::Acos),
    ("arctan", Func::Atan), ("atan", Func::Atan), ("arccsc", Func::Acsc), ("acsc", Func::Acsc),
    ("arcsec", Func::Asec), ("asec", Func::Asec), ("arccot", Func::Acot), ("acot", Func::Acot),
    ("sinh", Func::Sinh), ("cosh", Func::Cosh), ("tanh", Func::Tanh),
    ("arsinh", Func::Asinh), ("arcsinh", Func::Asinh), ("asinh", Func::Asinh),
    ("arcosh", Func::Acosh), ("arccosh", Func::Acosh), ("acosh", Func::Acosh),
    ("artanh", Func::Atanh), ("arctanh", Func::Atanh), ("atanh", Func::Atanh),
    ("floor", Func::Floor), ("ceil", Func::Ceil), ("det", Func::Det), ("tr", Func::Trace), ("trace", Func::Trace),
    ("norm", Func::Norm), ("gcd", Func::Gcd), ("lcm", Func::Lcm), ("max", Func::Max), ("min", Func::Min),
];

/// The meaning of a function's name.
pub(crate) fn function_by_name(name: &str) -> Option<Func> {
    let found = FUNCTION_NAMES.iter().find(|it| it.0 == name);
    found.map(|it| it.1.clone())
}

/// Most tokens that an answer may have.
pub(crate) const MAX_TOKENS: usize = 32_768;

/// Splits `text` into tokens.
///
/// # Errors
/// The byte at which no token starts, or the length if there are more than [`MAX_TOKENS`].
pub(crate) fn lex(text: &str) -> Result<Vec<Token<'_>>, usize> {
    let mut tokens = Vec::with_capacity(text.len().min(64));
    let mut rest = text;
    while let Some(first) = rest.bytes().next() {
        let (token, len) = next_token(rest, first).ok_or(text.len() - rest.len())?;
        if let Some(token) = token {
            if tokens.len() >= MAX_TOKENS {
                return Err(text.len());
            }
            tokens.push(token);
        }
        work::count(len);
        rest = &rest[len..];
    }
    Ok(tokens)
}

/// The next token and its length; a skipped one has no token.
fn next_token(rest: &str, first: u8) -> Option<(Option<Token<'_>>, usize)> {
    use Token as T;
    let some = |token, len| Some((Some(token), len));
    match first {
        b' ' | b'\t' | b'\r' | b'\n' => Some((None, 1)),
        b'0'..=b'9' => Some(number(rest)),
        b'.' if rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit) => Some(number(rest)),
        b'\\' => command(rest),
        b'a'..=b'z' | b'A'..=b'Z' => Some(letters(rest, first)),
        b'+' => some(T::Add, 1),
        b'-' => some(T::Sub, 1),
        b'*' => some(T::Mul, 1),
        b'/' | b':' => some(T::Div, 1),
        b'(' => some(T::Open(Bracket::Paren), 1),
        b')' => some(T::Close(Bracket::Paren), 1),
        b'[' => some(T::Open(Bracket::Square), 1),
        b']' => some(T::Close(Bracket::Square), 1),
        b'{' => some(T::Open(Bracket::Brace), 1),
        b'}' => some(T::Close(Bracket::Brace), 1),
        b'|' => some(T::Bar, 1),
        b'_' => some(T::Underscore, 1),
        b'^' => {
            const WHOLE: [(&str, Token<'_>); 11] = [
                ("^{\\circle}", Token::Degree),
                ("^{\\degree}", Token::Degree),
                ("^{\\circ}", Token::Degree),
                ("^\\circle", Token::Degree),
                ("^\\degree", Token::Degree),
                ("^\\circ", Token::Degree),
                ("^{°}", Token::Degree),
                ("^°", Token::Degree),
                ("^{\\\\top}", Token::Transpose),
                ("^{T}", Token::Transpose),
                ("^T", Token::Transpose),
            ];
            let whole = WHOLE.iter().find(|(text, _)| rest.starts_with(text));
            whole.map_or(some(T::Caret, 1), |(text, token)| some(*token, text.len()))
        }
        b'\'' => some(T::Transpose, 1),
        b';' => some(T::Semicolon, 1),
        b',' => some(T::Comma, 1),
        b'.' => some(T::Period, 1),
        b'&' => some(T::Ampersand, 1),
        b'!' if rest.starts_with("!==") => some(T::Relation(Op::Ne), 3),
        b'!' if rest.starts_with("!=") => some(T::Relation(Op::Ne), 2),
        b'!' => some(T::Bang, 1),
        b'=' if rest.starts_with("==") => some(T::Relation(Op::Eq), 2),
        b'=' => some(T::Assign, 1),
        b'~' if rest.starts_with("~=") => some(T::Approx, 2),
        b'<' if rest.starts_with("<->") || rest.starts_with("<=>") => some(T::Other, 3),
        b'<' if rest.starts_with("<=") => some(T::Relation(Op::Le), 2),
        b'<' => some(T::Relation(Op::Lt), 1),
        b'>' if rest.starts_with(">=") => some(T::Relation(Op::Ge), 2),
        b'>' => some(T::Relation(Op::Gt), 1),
        0x80.. => unicode(rest),
        _ => None,
    }
}

fn number(rest: &str) -> (Option<Token<'_>>, usize) {
    let bytes = rest.as_bytes();
    let digits = |from: usize| bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let mut len = digits(0);
    if bytes.get(len) == Some(&b'.') {
        let fraction = digits(len + 1);
        if fraction > 0 {
            len += 1 + fraction;
        }
    }
    if bytes.get(len) == Some(&b'E') {
        let sign = usize::from(matches!(bytes.get(len + 1), Some(b'+' | b'-')));
        let exponent = digits((len + 1 + sign).min(bytes.len()));
        if exponent > 0 {
            let end = len + 1 + sign + exponent;
            return (Some(Token::ENotation(&rest[..end])), end);
        }
    }
    let space = usize::from(matches!(bytes.get(len), Some(b' ' | b'\t' | b'\r' | b'\n')));
    let after = &rest[len + space..];
    let sign = if after.starts_with("\\%") { 2 } else { usize::from(after.starts_with('%')) };
    if sign > 0 {
        return (Some(Token::Percent(&rest[..len])), len + space + sign);
    }
    (Some(Token::Number(&rest[..len])), len)
}
