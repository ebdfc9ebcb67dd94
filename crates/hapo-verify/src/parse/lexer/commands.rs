//! Tokens that start with a backslash.

use super::{Bracket, Fn1, Token};
use crate::expr::{Domain, Op};

const GREEK: [&str; 39] = [
    "alpha",
    "beta",
    "delta",
    "Delta",
    "epsilon",
    "varepsilon",
    "zeta",
    "eta",
    "theta",
    "Theta",
    "vartheta",
    "iota",
    "kappa",
    "lambda",
    "Lambda",
    "mu",
    "nu",
    "xi",
    "Xi",
    "omicron",
    "pi",
    "Pi",
    "varpi",
    "rho",
    "varrho",
    "sigma",
    "Sigma",
    "varsigma",
    "tau",
    "upsilon",
    "Upsilon",
    "phi",
    "Phi",
    "varphi",
    "chi",
    "psi",
    "Psi",
    "omega",
    "Omega",
];

const ACCENTS: [&str; 44] = [
    "acute",
    "bar",
    "overline",
    "breve",
    "check",
    "widecheck",
    "dot",
    "ddot",
    "grave",
    "hat",
    "tilde",
    "widetilde",
    "vec",
    "overrightarrow",
    "bm",
    "boldsymbol",
    "text",
    "textit",
    "textbf",
    "textnormal",
    "mathbb",
    "mathbin",
    "mathbf",
    "mathcal",
    "mathclap",
    "mathclose",
    "mathellipsis",
    "mathfrak",
    "mathinner",
    "mathit",
    "mathnormal",
    "mathop",
    "mathopen",
    "mathord",
    "mathpunct",
    "mathrel",
    "mathring",
    "mathrlap",
    "mathrm",
    "mathscr",
    "mathsf",
    "mathsterling",
    "mathtt",
    "mbox",
];

const SYMBOLS: [&str; 39] = [
    "Bbbk",
    "wp",
    "nabla",
    "bigstar",
    "angle",
    "nexists",
    "diagdown",
    "measuredangle",
    "eth",
    "diagup",
    "sphericalangle",
    "clubsuit",
    "varnothing",
    "Diamond",
    "complement",
    "diamondsuit",
    "imath",
    "Finv",
    "triangledown",
    "heartsuit",
    "jmath",
    "Game",
    "triangle",
    "spadesuit",
    "ell",
    "hbar",
    "vartriangle",
    "hslash",
    "blacklozenge",
    "lozenge",
    "blacksquare",
    "mho",
    "blacktriangle",
    "sharp",
    "prime",
    "Im",
    "flat",
    "square",
    "backprime",
];

const MORE_SYMBOLS: [&str; 4] = ["Re", "natural", "surd", "circledS"];

/// A token that starts with a backslash.
pub(super) fn command(rest: &str) -> Option<(Option<Token<'_>>, usize)> {
    use Token as T;
    let some = |token, len| Some((Some(token), len));
    let bytes = rest.as_bytes();
    match bytes.get(1)? {
        b',' | b':' | b';' | b'!' | b'$' => {
            if rest.starts_with("\\$\\infty") {
                return some(T::Infinity, 8);
            }
            return Some((None, 2));
        }
        b'(' => return some(T::Open(Bracket::ParenVisual), 2),
        b')' => return some(T::Close(Bracket::ParenVisual), 2),
        b'{' if rest.starts_with("\\{\\}") => return some(T::Domain(Domain::Empty), 4),
        b'{' => return some(T::Open(Bracket::BraceVisual), 2),
        b'}' => return some(T::Close(Bracket::BraceVisual), 2),
        b'|' => return some(T::Norm, 2),
        b'\\' => return some(T::RowEnd, 2),
        _ => {}
    }
    let n_letters = bytes[1..]
        .iter()
        .take(24)
        .take_while(|b| b.is_ascii_alphabetic())
        .count();
    // The longest known command wins, wherever a word boundary would be.
    (1..=n_letters)
        .rev()
        .find_map(|len| named_command(rest, len))
}

/// The command of exactly `len` letters, with whatever must follow it.
fn named_command(rest: &str, len: usize) -> Option<(Option<Token<'_>>, usize)> {
    use Token as T;
    let name = &rest[1..=len];
    let after = &rest[1 + len..];
    let end = 1 + len;
    let some = |token| Some((Some(token), end));
    match name {
        "thinspace" | "medspace" | "thickspace" | "quad" | "qquad" | "negthinspace"
        | "negmedspace" | "negthickspace" | "vrule" | "vcenter" | "vbox" | "vskip" | "vspace"
        | "hfil" => Some((None, end)),
        "lgroup" => some(T::Open(Bracket::Group)),
        "rgroup" => some(T::Close(Bracket::Group)),
        "lbrace" if after.starts_with("\\rbrace") => {
            Some((Some(T::Domain(Domain::Empty)), end + 7))
        }
        "lbrace" => some(T::Open(Bracket::BraceCommand)),
        "rbrace" => some(T::Close(Bracket::BraceCommand)),
        "lbrack" => some(T::Open(Bracket::SquareCommand)),
        "rbrack" => some(T::Close(Bracket::SquareCommand)),
        "lvert" => some(T::Open(Bracket::VertBar)),
        "rvert" => some(T::Close(Bracket::VertBar)),
        "vert" => some(T::Vert),
        "langle" => some(T::Open(Bracket::Angle)),
        "rangle" => some(T::Close(Bracket::Angle)),
        "lfloor" | "llcorner" => some(T::Open(Bracket::Floor)),
        "rfloor" | "lrcorner" => some(T::Close(Bracket::Floor)),
        "lceil" | "ulcorner" => some(T::Open(Bracket::Ceil)),
        "rceil" | "urcorner" => some(T::Close(Bracket::Ceil)),
        "phantom" => some(T::Phantom),
        "boxed" => some(T::Boxed),
        "lim" => some(T::Lim),
        "to" | "rightarrow" | "Rightarrow" | "longrightarrow" | "Longrightarrow" => {
            some(T::Approach)
        }
        "leftrightarrow" | "Leftrightarrow" | "xrightarrow" | "xRightarrow" | "mathit" => {
            if name == "mathit" {
                return accent(rest, len);
            }
            some(T::Other)
        }
        "int" => some(T::Int),
        "sum" => some(T::Sum),
        "prod" => some(T::Prod),
        "log" => some(T::Function(Fn1::Log)),
        "ln" => some(T::Function(Fn1::Ln)),
        "exp" => some(T::Function(Fn1::Exp)),
        "exponentialE" => some(T::ExpE),
        "gamma" | "Gamma" => some(T::Gamma),
        "sqrt" => some(T::Sqrt),
        "gcd" => some(T::MultiFunction("gcd")),
        "lcm" => some(T::MultiFunction("lcm")),
        "max" => some(T::MultiFunction("max")),
        "min" => some(T::MultiFunction("min")),
        "times" | "cdot" => some(T::Mul),
        "div" | "over" => some(T::Div),
        "frac" | "dfrac" | "tfrac" | "cfrac" => some(T::Frac),
        "binom" | "tbinom" | "dbinom" => some(T::Binom),
        "choose" => some(T::Choose),
        "mod" => some(T::Mod),
        "operatorname" => some(T::OperatorName),
        "begin" => {
            for (env, token) in [
                ("{matrix}", T::MatrixStart),
                ("{pmatrix}", T::MatrixStart),
                ("{bmatrix}", T::MatrixStart),
                ("{vmatrix}", T::DetStart),
            ] {
                if after.starts_with(env) {
                    return Some((Some(token), end + env.len()));
                }
            }
            let columns = after.strip_prefix("{array}{")?;
            let n_columns = columns
                .bytes()
                .take_while(|b| matches!(b, b'c' | b'l' | b'r'))
                .count();
            columns[n_columns..]
                .starts_with('}')
                .then_some((Some(T::MatrixStart), end + 8 + n_columns + 1))
        }
        "end" => {
            for (env, token) in [
                ("{matrix}", T::MatrixEnd),
                ("{pmatrix}", T::MatrixEnd),
                ("{bmatrix}", T::MatrixEnd),
                ("{array}", T::MatrixEnd),
                ("{vmatrix}", T::DetEnd),
            ] {
                if after.starts_with(env) {
                    return Some((Some(token), end + env.len()));
                }
            }
            None
        }
        "in" => some(T::In),
        "notin" => some(T::NotIn),
        "equiv" => some(T::Relation(Op::Eq)),
        "approx" => some(T::Approx),
        "lt" => some(T::Relation(Op::Lt)),
        "leq" | "le" | "leqslant" => some(T::Relation(Op::Le)),
        "gt" => some(T::Relation(Op::Gt)),
        "geq" | "ge" | "geqslant" => some(T::Relation(Op::Ge)),
        "ne" | "neq" => some(T::Relation(Op::Ne)),
        "not" if after.starts_with("\\equiv") => Some((Some(T::Relation(Op::Ne)), end + 6)),
        "infty" => {
            let sign = if after.starts_with("\\%") {
                2
            } else {
                usize::from(after.starts_with('%'))
            };
            if sign > 0 {
                return Some((Some(T::InfinityPercent), end + sign));
            }
            some(T::Infinity)
        }
        "partial" => some(T::Partial),
        "variable" => {
            let close = after.find('}')?;
            let inner = after.strip_prefix('{')?.get(..close.checked_sub(1)?)?;
            let valid = !inner.is_empty()
                && inner
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'\\');
            valid.then_some((Some(T::Variable(inner)), end + close + 1))
        }
        "mathbb" => {
            for (set, token) in [
                ("{N}", T::Domain(Domain::Naturals)),
                ("{Z}", T::Domain(Domain::Integers)),
                ("{Q}", T::Domain(Domain::Rationals)),
                ("{R}", T::Domain(Domain::Reals)),
                ("{C}", T::Domain(Domain::Complexes)),
                ("{P}", T::Primes),
            ] {
                if after.starts_with(set) {
                    return Some((Some(token), end + set.len()));
                }
            }
            accent(rest, len)
        }
        "cup" => some(T::Union),
        "cap" => some(T::Intersection),
        "setminus" => some(T::SetMinus),
        "pm" | "mp" => some(T::PlusMinus),
        "emptyset" => some(T::Domain(Domain::Empty)),
        "supseteq" => some(T::Superset),
        "subseteq" => some(T::Subset),
        "char" => {
            let digits = after.strip_prefix('"').unwrap_or(after);
            let greek = match digits.get(..6)? {
                "000391" => "alpha",
                "000392" => "beta",
                "000190" => "epsilon",
                "000396" => "zeta",
                "000397" => "eta",
                "000399" => "iota",
                "00039A" => "kappa",
                "00039C" => "mu",
                "00039D" => "nu",
                "00039F" => "omicron",
                "0003A1" => "rho",
                "0003A4" => "tau",
                "0003A7" => "chi",
                _ => return None,
            };
            Some((Some(T::Greek(greek)), end + after.len() - digits.len() + 6))
        }
        _ => other_command(rest, len),
    }
}

/// Functions of one argument.
const FUNCTIONS: [&str; 24] = [
    "sin", "cos", "tan", "csc", "sec", "cot", "arcsin", "arccos", "arctan", "arccsc", "arcsec",
    "arccot", "sinh", "cosh", "tanh", "arsinh", "arcosh", "artanh", "arcsinh", "arccosh",
    "arctanh", "floor", "ceil", "det",
];

fn other_command(rest: &str, len: usize) -> Option<(Option<Token<'_>>, usize)> {
    let name = &rest[1..=len];
    let some = |token| Some((Some(token), 1 + len));
    if let Some(greek) = GREEK.iter().find(|it| **it == name) {
        return some(Token::Greek(greek));
    }
    if SYMBOLS.contains(&name) || MORE_SYMBOLS.contains(&name) {
        return some(Token::Symbol(name));
    }
    if ACCENTS.contains(&name) {
        return accent(rest, len);
    }
    let function = FUNCTIONS.iter().find(|it| **it == name)?;
    some(Token::Function(Fn1::Known(function)))
}

/// An accent or text command with its braces.
fn accent(rest: &str, len: usize) -> Option<(Option<Token<'_>>, usize)> {
    let name = &rest[1..=len];
    let after = &rest[1 + len..];
    let space = usize::from(after.starts_with([' ', '\t', '\r', '\n']));
    let body = after[space..].strip_prefix('{')?;
    let close = body.find('}')?;
    let total = 1 + len + space + 1 + close + 1;
    Some((Some(Token::Accent(name, &body[..close])), total))
}
