//! LaTeX and plain text into tokens, longest match first, in one pass.
//!
//! The token table follows the published grammar of latex2sympy2-extended 1.11 (what Math-Verify 0.9.0 reads), since a
//! text that it cannot read is compared as a string and the verdict depends on it. An unknown command or character
//! ends the reading with an error; nothing is skipped silently but white space and spacing commands.

use crate::expr::{Domain, Func, Op};

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
    /// `\gamma` or `\Gamma`: a function when an argument follows, a constant otherwise.
    Gamma,
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

/// The meaning of a function's name.
pub(crate) fn function_by_name(name: &str) -> Option<Func> {
    Some(match name {
        "sin" => Func::Sin,
        "cos" => Func::Cos,
        "tan" => Func::Tan,
        "csc" => Func::Csc,
        "sec" => Func::Sec,
        "cot" => Func::Cot,
        "arcsin" | "asin" => Func::Asin,
        "arccos" | "acos" => Func::Acos,
        "arctan" | "atan" => Func::Atan,
        "arccsc" | "acsc" => Func::Acsc,
        "arcsec" | "asec" => Func::Asec,
        "arccot" | "acot" => Func::Acot,
        "sinh" => Func::Sinh,
        "cosh" => Func::Cosh,
        "tanh" => Func::Tanh,
        "arsinh" | "arcsinh" | "asinh" => Func::Asinh,
        "arcosh" | "arccosh" | "acosh" => Func::Acosh,
        "artanh" | "arctanh" | "atanh" => Func::Atanh,
        "floor" => Func::Floor,
        "ceil" => Func::Ceil,
        "det" => Func::Det,
        "tr" | "trace" => Func::Trace,
        "norm" => Func::Norm,
        "gcd" => Func::Gcd,
        "lcm" => Func::Lcm,
        "max" => Func::Max,
        "min" => Func::Min,
        _ => return None,
    })
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
    let digits = |from: usize| {
        bytes[from..]
            .iter()
            .take_while(|b| b.is_ascii_digit())
            .count()
    };
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
    let sign = if after.starts_with("\\%") {
        2
    } else {
        usize::from(after.starts_with('%'))
    };
    if sign > 0 {
        return (Some(Token::Percent(&rest[..len])), len + space + sign);
    }
    (Some(Token::Number(&rest[..len])), len)
}

/// Words that the grammar reserves; a longer one wins over a shorter one and over single letters.
const WORDS: [&str; 41] = [
    "orthogonalize",
    "eigenvectors",
    "diagonalize",
    "eigenvalues",
    "eigenvects",
    "orthogonal",
    "eigenvals",
    "nullspace",
    "pmatrix",
    "bmatrix",
    "vmatrix",
    "arcsinh",
    "arccosh",
    "arctanh",
    "hstack",
    "vstack",
    "matrix",
    "arsinh",
    "arcosh",
    "artanh",
    "zeros",
    "trace",
    "ortho",
    "floor",
    "eigen",
    "ones",
    "cols",
    "rows",
    "diag",
    "norm",
    "rank",
    "rref",
    "orth",
    "ceil",
    "gcd",
    "lcm",
    "eye",
    "eig",
    "svd",
    "SVD",
    "tr",
];

fn letters(rest: &str, first: u8) -> (Option<Token<'_>>, usize) {
    if matches!(
        first,
        b'o' | b'e'
            | b'd'
            | b'n'
            | b'p'
            | b'b'
            | b'v'
            | b'a'
            | b'h'
            | b'm'
            | b'z'
            | b't'
            | b'f'
            | b'c'
            | b'r'
            | b'g'
            | b'l'
            | b's'
            | b'S'
    ) && let Some(word) = WORDS.iter().find(|w| rest.starts_with(**w))
        && differential_len(rest).is_none_or(|(len, _)| len < word.len())
    {
        return (Some(Token::Word(&rest[..word.len()])), word.len());
    }
    if first == b'd'
        && let Some((len, start)) = differential_len(rest)
    {
        return (Some(Token::Differential(&rest[start..len])), len);
    }
    match first {
        b'e' => (Some(Token::ExpE), 1),
        b'E' => (Some(Token::BigE), 1),
        letter => (Some(Token::Letter(letter as char)), 1),
    }
}

/// Length of `d`, white space, and a letter or command; and where the variable starts.
fn differential_len(rest: &str) -> Option<(usize, usize)> {
    let bytes = rest.as_bytes();
    if bytes[0] != b'd' {
        return None;
    }
    let space = bytes[1..]
        .iter()
        .take_while(|b| matches!(b, b' ' | b'\t' | b'\r' | b'\n'))
        .count();
    let start = 1 + space;
    match bytes.get(start)? {
        b'a'..=b'z' | b'A'..=b'Z' => Some((start + 1, start)),
        b'\\' => {
            let letters = bytes[start + 1..]
                .iter()
                .take_while(|b| b.is_ascii_alphabetic())
                .count();
            (letters > 0).then_some((start + 1 + letters, start + 1))
        }
        _ => None,
    }
}

fn unicode(rest: &str) -> Option<(Option<Token<'_>>, usize)> {
    use Token as T;
    let c = rest.chars().next()?;
    let token = match c {
        '∔' | '⊕' | '⊞' => T::Add,
        '−' | '∸' => T::Sub,
        '×' | '⋅' | '⋄' | '⊡' | '∗' | '⋆' | '∘' | '∙' | '⊗' | '⊠' | '⋈' | '⋉' | '⋊' => {
            T::Mul
        }
        '÷' | '∕' => T::Div,
        '≡' | '≣' | '≟' | '≎' | '≏' | '≐' | '≑' | '≒' | '≓' | '≔' | '≕' | '≖' | '≗' => {
            T::Assign
        }
        '≈' | '≊' | '≋' | '≃' | '≅' => T::Approx,
        '≪' | '≺' | '⋖' => T::Relation(Op::Lt),
        '≤' | '≦' | '≲' | '≾' => T::Relation(Op::Le),
        '≫' | '≻' | '⋗' => T::Relation(Op::Gt),
        '≥' | '≧' | '≳' | '≿' => T::Relation(Op::Ge),
        '≠' | '≁' | '≄' | '≇' | '≉' | '≢' => T::Relation(Op::Ne),
        'ℕ' => T::Domain(Domain::Naturals),
        'ℤ' => T::Domain(Domain::Integers),
        'ℚ' => T::Domain(Domain::Rationals),
        'ℝ' => T::Domain(Domain::Reals),
        'ℂ' => T::Domain(Domain::Complexes),
        'ℙ' => T::Primes,
        '∅' => T::Domain(Domain::Empty),
        '∪' => T::Union,
        '∩' => T::Intersection,
        '∖' => T::SetMinus,
        '±' | '∓' => T::PlusMinus,
        '⊇' => T::Superset,
        '⊆' => T::Subset,
        '∉' => T::NotIn,
        'γ' | 'Γ' => T::Gamma,
        'ℵ' | 'ℶ' | 'ℷ' | 'ℸ' => T::Symbol(&rest[..c.len_utf8()]),
        _ => T::Greek(greek_letter(c)?),
    };
    Some((Some(token), c.len_utf8()))
}

fn greek_letter(c: char) -> Option<&'static str> {
    Some(match c {
        'α' => "alpha",
        'β' => "beta",
        'δ' => "delta",
        'Δ' => "Delta",
        'ε' => "epsilon",
        'ϵ' => "varepsilon",
        'ζ' => "zeta",
        'η' => "eta",
        'θ' => "theta",
        'Θ' => "Theta",
        'ϑ' => "vartheta",
        'ι' => "iota",
        'κ' => "kappa",
        'λ' => "lambda",
        'Λ' => "Lambda",
        'μ' => "mu",
        'ν' => "nu",
        'ξ' => "xi",
        'Ξ' => "Xi",
        'ο' => "omicron",
        'π' => "pi",
        'Π' => "Pi",
        'ϖ' => "varpi",
        'ρ' => "rho",
        'ϱ' => "varrho",
        'σ' => "sigma",
        'Σ' => "Sigma",
        'ς' => "varsigma",
        'τ' => "tau",
        'υ' => "upsilon",
        'Υ' => "Upsilon",
        'φ' => "phi",
        'Φ' => "Phi",
        'ϕ' => "varphi",
        'χ' => "chi",
        'ψ' => "psi",
        'Ψ' => "Psi",
        'ω' => "omega",
        'Ω' => "Omega",
        _ => return None,
    })
}

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
fn command(rest: &str) -> Option<(Option<Token<'_>>, usize)> {
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
