//! LaTeX and plain text into tokens, longest match first, in one pass. The token table follows the published grammar of
//! latex2sympy2-extended 1.11 (what Math-Verify 0.9.0 reads), since a text that it cannot read is compared as a string
//! and the verdict depends on it. An unknown command or character ends the reading with an error; nothing is skipped
//! silently but white space and spacing commands.

mod commands;
mod letters;

use crate::cursor::Cursor;
use crate::expr::{Domain, Func, Op};
use crate::work;
use commands::command;
use letters::{letters, unicode};
use {Bracket as B, Token as T};

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
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Open(Bracket),
    Close(Bracket),
    Bar,
    Function(Fn1<'a>),
    Frac,
    Binom,
    Choose,
    Sqrt,
    Int,
    MatrixStart,
    MatrixEnd,
    Ampersand,
    RowEnd,
    Underscore,
    Caret,
    Semicolon,
    Comma,
    In,
    Assign,
    Approx,
    Relation(Op),
    Bang,
    Degree,
    Domain(Domain),
    Union,
    SetMinus,
    PlusMinus,
    /// A token that no expression can use.
    Arrow,
}

/// The brackets that the grammar tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bracket {
    Paren,
    ParenVisual,
    Brace,
    BraceVisual,
    BraceCommand,
    Square,
    VertBar,
    Floor,
    Ceil,
}

impl Bracket {
    /// True for those that pair with each other, as in half-open intervals.
    pub(crate) fn is_round(self) -> bool {
        use Bracket as B;
        matches!(self, B::Paren | B::ParenVisual | B::Square)
    }
}

/// A function of one argument.
#[derive(Clone, Debug, PartialEq, Eq, Copy)]
pub(crate) enum Fn1<'a> {
    Log,
    Ln,
    Exp,
    Known(&'a str),
}

impl Token<'_> {
    /// True for what may be the name of a symbol or a function.
    pub(crate) fn is_name(self) -> bool {
        matches!(self, Token::Letter(_) | Token::Greek(_) | Token::Symbol(_) | Token::Accent(..))
    }

    /// True for a name, a number, or another value of one token.
    pub(crate) fn is_atom(self) -> bool {
        use Token as T;
        self.is_name()
            || matches!(self, T::Number(_) | T::Percent(_) | T::ENotation(_) | T::Differential(_))
            || matches!(self, T::BigE | T::Infinity)
    }

    /// True for the start of a value, functions and bars aside.
    pub(crate) fn is_operand(self) -> bool {
        use Token as T;
        self.is_atom()
            || matches!(self, T::Gamma(_) | T::Frac | T::Binom | T::Open(_) | T::MatrixStart)
    }

    /// True for the last token of a value in arithmetic.
    pub(crate) fn ends_value(self) -> bool {
        self.is_atom() || matches!(self, Token::Close(_) | Token::Bang | Token::ExpE)
    }

    /// True for the first one.
    pub(crate) fn begins_value(self) -> bool {
        self.is_atom() || self.is_function() || self == Token::Open(Bracket::Paren)
    }

    /// True for the start of a function with its arguments.
    pub(crate) fn is_function(self) -> bool {
        use Token as T;
        matches!(self, T::ExpE | T::Function(_) | T::Sqrt | T::Int)
    }
}

#[rustfmt::skip]
static FUNCTION_NAMES: [(&str, Func); 14] = [
    ("sin", Func::Sin), ("cos", Func::Cos), ("tan", Func::Tan), ("csc", Func::Csc), ("sec", Func::Sec),
    ("cot", Func::Cot), ("arcsin", Func::Asin), ("asin", Func::Asin), ("arccos", Func::Acos), ("acos", Func::Acos),
    ("arctan", Func::Atan), ("atan", Func::Atan), ("floor", Func::Floor), ("ceil", Func::Ceil),
];

/// The function of that name; one that is not known is equal to itself alone.
pub(crate) fn function_by_name(name: &str) -> Func {
    let found = FUNCTION_NAMES.iter().find(|it| it.0 == name);
    found.map_or_else(|| Func::Named(name.into()), |it| it.1.clone())
}

/// Most tokens that an answer may have.
pub(crate) const MAX_TOKENS: usize = 32_768;

/// Splits `text` into tokens, or gives the byte at which none starts; the length beyond [`MAX_TOKENS`].
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

/// Signs of ASCII, a longer one before a shorter one.
#[rustfmt::skip]
const SIGNS: [(&str, Token<'_>); 35] = [
    ("{", T::Open(B::Brace)), ("}", T::Close(B::Brace)), ("(", T::Open(B::Paren)), (")", T::Close(B::Paren)),
    ("^{\\circle}", T::Degree), ("^{\\degree}", T::Degree), ("^{\\circ}", T::Degree), ("^\\circle", T::Degree),
    ("^\\degree", T::Degree), ("^\\circ", T::Degree), ("^{°}", T::Degree), ("^°", T::Degree), ("^", T::Caret),
    ("+", T::Add), ("-", T::Sub), ("*", T::Mul), ("/", T::Div), (":", T::Div), ("==", T::Relation(Op::Eq)),
    ("=", T::Assign), (",", T::Comma), (";", T::Semicolon), ("_", T::Underscore), ("|", T::Bar),
    ("[", T::Open(B::Square)), ("]", T::Close(B::Square)), ("&", T::Ampersand), ("!==", T::Relation(Op::Ne)),
    ("!=", T::Relation(Op::Ne)), ("!", T::Bang), ("~=", T::Approx), ("<=", T::Relation(Op::Le)),
    ("<", T::Relation(Op::Lt)), (">=", T::Relation(Op::Ge)), (">", T::Relation(Op::Gt)),
];

/// The next token and its length; a skipped one has no token.
fn next_token(rest: &str, first: u8) -> Option<(Option<Token<'_>>, usize)> {
    match first {
        b' ' | b'\t' | b'\r' | b'\n' => Some((None, 1)),
        b'0'..=b'9' => Some(number(rest)),
        b'.' if rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit) => Some(number(rest)),
        b'\\' => command(rest),
        b'a'..=b'z' | b'A'..=b'Z' => Some(letters(rest, first)),
        0x80.. => unicode(rest),
        _ => {
            let (sign, token) = SIGNS.iter().find(|it| rest.starts_with(it.0))?;
            Some((Some(*token), sign.len()))
        }
    }
}

fn number(rest: &str) -> (Option<Token<'_>>, usize) {
    let mut cursor = Cursor::new(rest);
    cursor.digits();
    let mut end = cursor;
    if end.eat(".").and_then(|()| end.digits()).is_some() {
        cursor = end;
    }
    end = cursor;
    if end.eat("E").is_some() {
        end.one_of(&["+", "-"]);
        if end.digits().is_some() {
            return (Some(Token::ENotation(end.before())), end.before().len());
        }
    }
    let number = cursor.before();
    cursor.one(|c| matches!(c, ' ' | '\t' | '\r' | '\n'));
    match cursor.one_of(&["\\%", "%"]) {
        Some(_) => (Some(Token::Percent(number)), cursor.before().len()),
        None => (Some(Token::Number(number)), number.len()),
    }
}
