//! Tokens that start with a backslash.

use super::Bracket as B;
use super::Token as T;
use super::letters::GREEK;
use super::{Fn1, Token};
use crate::cursor::Cursor;
use crate::expr::{Domain, Op};

/// Commands that are one token, whatever follows; `None` is skipped.
#[rustfmt::skip]
const TOKENS: &[(&[&str], Option<Token<'static>>)] = &[
    (&["frac", "dfrac", "tfrac", "cfrac"], Some(T::Frac)),
    (&["sqrt"], Some(T::Sqrt)),
    (&["times", "cdot"], Some(T::Mul)),
    (&["div", "over"], Some(T::Div)),
    (&["infty"], Some(T::Infinity)),
    (&["pm", "mp"], Some(T::PlusMinus)),
    (&["lvert"], Some(T::Open(B::VertBar))), (&["rvert"], Some(T::Close(B::VertBar))), (&["vert"], Some(T::Bar)),
    (&["lbrace"], Some(T::Open(B::BraceCommand))), (&["rbrace"], Some(T::Close(B::BraceCommand))),
    (&["lbrack"], Some(T::Open(B::Square))), (&["rbrack"], Some(T::Close(B::Square))),
    (&["lfloor", "llcorner"], Some(T::Open(B::Floor))), (&["rfloor", "lrcorner"], Some(T::Close(B::Floor))),
    (&["lceil", "ulcorner"], Some(T::Open(B::Ceil))), (&["rceil", "urcorner"], Some(T::Close(B::Ceil))),
    (&["binom", "tbinom", "dbinom"], Some(T::Binom)), (&["choose"], Some(T::Choose)), (&["mod"], Some(T::Mod)),
    (&["log"], Some(T::Function(Fn1::Log))), (&["ln"], Some(T::Function(Fn1::Ln))),
    (&["exp"], Some(T::Function(Fn1::Exp))), (&["exponentialE"], Some(T::ExpE)),
    (&["gamma"], Some(T::Gamma("gamma"))), (&["Gamma"], Some(T::Gamma("Gamma"))),
    (&["int"], Some(T::Int)), (&["to", "rightarrow", "leftrightarrow"], Some(T::Arrow)),
    (&["lt"], Some(T::Relation(Op::Lt))), (&["leq", "le", "leqslant"], Some(T::Relation(Op::Le))),
    (&["gt"], Some(T::Relation(Op::Gt))), (&["geq", "ge", "geqslant"], Some(T::Relation(Op::Ge))),
    (&["ne", "neq"], Some(T::Relation(Op::Ne))), (&["equiv"], Some(T::Relation(Op::Eq))),
    (&["approx"], Some(T::Approx)), (&["in"], Some(T::In)),
    (&["cup"], Some(T::Union)), (&["setminus"], Some(T::SetMinus)),
    (&["emptyset"], Some(T::Domain(Domain::Empty))),
    (&["quad", "qquad", "thinspace", "medspace", "thickspace", "negthinspace", "negmedspace", "negthickspace"], None),
    (&["vrule", "vcenter", "vbox", "vskip", "vspace", "hfil", "phantom"], None),
];

/// Continuations of a text.
type Continuations = &'static [(&'static str, Token<'static>)];

/// Commands that are another token together with what follows them.
#[rustfmt::skip]
const CONTINUED: &[(&str, Continuations)] = &[
    ("lbrace", &[("\\rbrace", T::Domain(Domain::Empty))]),
    ("not", &[("\\equiv", T::Relation(Op::Ne))]),
    ("begin", &[
        ("{matrix}", T::MatrixStart), ("{pmatrix}", T::MatrixStart), ("{bmatrix}", T::MatrixStart),
    ]),
    ("end", &[
        ("{matrix}", T::MatrixEnd), ("{pmatrix}", T::MatrixEnd), ("{bmatrix}", T::MatrixEnd),
        ("{array}", T::MatrixEnd),
    ]),
    ("mathbb", &[
        ("{N}", T::Domain(Domain::Naturals)), ("{Z}", T::Domain(Domain::Integers)),
        ("{Q}", T::Domain(Domain::Rationals)), ("{R}", T::Domain(Domain::Reals)),
        ("{C}", T::Domain(Domain::Complexes)),
    ]),
];

/// Commands with an argument that only dress it, or make it text.
#[rustfmt::skip]
const ACCENTS: [&str; 44] = [
    "acute", "bar", "overline", "breve", "check", "widecheck", "dot", "ddot", "grave", "hat", "tilde", "widetilde",
    "vec", "overrightarrow", "bm", "boldsymbol", "text", "textit", "textbf", "textnormal", "mathbb", "mathbin",
    "mathbf", "mathcal", "mathclap", "mathclose", "mathellipsis", "mathfrak", "mathinner", "mathit", "mathnormal",
    "mathop", "mathopen", "mathord", "mathpunct", "mathrel", "mathring", "mathrlap", "mathrm", "mathscr", "mathsf",
    "mathsterling", "mathtt", "mbox",
];

/// Other commands that stand for a symbol, and operators that are not evaluated: equal to themselves alone.
#[rustfmt::skip]
const SYMBOLS: [&str; 52] = [
    "Bbbk", "wp", "nabla", "bigstar", "angle", "nexists", "diagdown", "measuredangle", "eth", "diagup",
    "sphericalangle", "clubsuit", "varnothing", "Diamond", "complement", "diamondsuit", "imath", "Finv", "triangledown",
    "heartsuit", "jmath", "Game", "triangle", "spadesuit", "ell", "hbar", "vartriangle", "hslash", "blacklozenge",
    "lozenge", "blacksquare", "mho", "blacktriangle", "sharp", "prime", "Im", "flat", "square", "backprime", "Re",
    "natural", "surd", "circledS", "sum", "prod", "lim", "max", "min", "gcd", "lcm", "det", "partial",
];

/// Names that `\operatorname` is read with, as in the reference.
const OPERATORS: [&str; 6] = ["floor", "ceil", "gcd", "lcm", "rank", "tr"];

#[rustfmt::skip]
const FUNCTIONS: [&str; 23] = [
    "sin", "cos", "tan", "csc", "sec", "cot", "arcsin", "arccos", "arctan", "arccsc", "arcsec", "arccot", "sinh",
    "cosh", "tanh", "arsinh", "arcosh", "artanh", "arcsinh", "arccosh", "arctanh", "floor", "ceil",
];

pub(super) fn command(rest: &str) -> Option<(Option<Token<'_>>, usize)> {
    let some = |token, len| Some((Some(token), len));
    let bytes = rest.as_bytes();
    match bytes.get(1)? {
        b',' | b':' | b';' | b'!' | b'$' => return Some((None, 2)),
        b'(' => return some(T::Open(B::ParenVisual), 2),
        b')' => return some(T::Close(B::ParenVisual), 2),
        b'{' if rest.starts_with("\\{\\}") => return some(T::Domain(Domain::Empty), 4),
        b'{' => return some(T::Open(B::BraceVisual), 2),
        b'}' => return some(T::Close(B::BraceVisual), 2),
        b'\\' => return some(T::RowEnd, 2),
        _ => {}
    }
    let n_letters = bytes[1..].iter().take(24).take_while(|b| b.is_ascii_alphabetic()).count();
    // The longest known command wins, wherever a word boundary would be.
    (1..=n_letters).rev().find_map(|len| named_command(rest, len))
}

/// The command of exactly `len` letters, with whatever must follow it.
fn named_command(rest: &str, len: usize) -> Option<(Option<Token<'_>>, usize)> {
    let (name, after) = (&rest[1..=len], &rest[1 + len..]);
    let end = 1 + len;
    let continuations = CONTINUED.iter().find(|it| it.0 == name);
    let continued = continuations.and_then(|it| it.1.iter().find(|it| after.starts_with(it.0)));
    if let Some((text, token)) = continued {
        return Some((Some(*token), end + text.len()));
    }
    if let Some((_, token)) = TOKENS.iter().find(|it| it.0.contains(&name)) {
        return Some((*token, end));
    }
    let (token, used) = match name {
        "begin" => (T::MatrixStart, array_columns(after)?),
        "operatorname" => match accent(rest, len)? {
            (Some(T::Accent(_, name)), end) if OPERATORS.contains(&name) => {
                return Some((Some(T::Function(Fn1::Known(name))), end));
            }
            _ => return None,
        },
        _ if ACCENTS.contains(&name) => return accent(rest, len),
        _ => (named_symbol(name)?, 0),
    };
    Some((Some(token), end + used))
}

fn named_symbol(name: &str) -> Option<Token<'_>> {
    if let Some((_, greek)) = GREEK.iter().find(|it| it.1 == name) {
        return Some(T::Greek(greek));
    }
    if SYMBOLS.contains(&name) {
        return Some(T::Symbol(name));
    }
    let function = FUNCTIONS.iter().find(|it| **it == name)?;
    Some(T::Function(Fn1::Known(function)))
}

/// Length of `{array}{ccc}`.
fn array_columns(after: &str) -> Option<usize> {
    let mut cursor = Cursor::new(after);
    cursor.eat("{array}{")?;
    cursor.take_while(|c| matches!(c, 'c' | 'l' | 'r' | ' ' | '|'));
    cursor.eat("}").map(|()| cursor.before().len())
}

/// An accent or text command with its braces.
fn accent(rest: &str, len: usize) -> Option<(Option<Token<'_>>, usize)> {
    let mut cursor = Cursor::new(rest);
    cursor.take(1);
    let name = cursor.take(len);
    cursor.one(|c| matches!(c, ' ' | '\t' | '\r' | '\n'));
    cursor.eat("{")?;
    let body = cursor.take_while(|c| c != '}');
    cursor.eat("}").map(|()| (Some(Token::Accent(name, body)), cursor.before().len()))
}
