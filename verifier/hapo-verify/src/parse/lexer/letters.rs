//! Letters, reserved words and Unicode signs.

use super::Token;
use super::Token as T;
use crate::cursor::Cursor;
use crate::expr::{Domain, Op};

/// Greek letters but γ and Γ, by sign and by command.
#[rustfmt::skip]
pub(super) const GREEK: [(char, &str); 39] = [
    ('α', "alpha"), ('β', "beta"), ('δ', "delta"), ('Δ', "Delta"), ('ε', "epsilon"), ('ϵ', "varepsilon"), ('ζ', "zeta"),
    ('η', "eta"), ('θ', "theta"), ('Θ', "Theta"), ('ϑ', "vartheta"), ('ι', "iota"), ('κ', "kappa"), ('λ', "lambda"),
    ('Λ', "Lambda"), ('μ', "mu"), ('ν', "nu"), ('ξ', "xi"), ('Ξ', "Xi"), ('ο', "omicron"), ('π', "pi"), ('Π', "Pi"),
    ('ϖ', "varpi"), ('ρ', "rho"), ('ϱ', "varrho"), ('σ', "sigma"), ('Σ', "Sigma"), ('ς', "varsigma"), ('τ', "tau"),
    ('υ', "upsilon"), ('Υ', "Upsilon"), ('φ', "phi"), ('Φ', "Phi"), ('ϕ', "varphi"), ('χ', "chi"), ('ψ', "psi"),
    ('Ψ', "Psi"), ('ω', "omega"), ('Ω', "Omega"),
];

pub(super) fn letters(rest: &str, first: u8) -> (Option<Token<'_>>, usize) {
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
    let mut cursor = Cursor::new(rest);
    cursor.eat("d")?;
    cursor.take_while(|c| matches!(c, ' ' | '\t' | '\r' | '\n'));
    let is_command = cursor.eat("\\").is_some();
    let start = cursor.before().len();
    let is_named = if is_command {
        !cursor.letters().is_empty()
    } else {
        cursor.one(|c| c.is_ascii_alphabetic()).is_some()
    };
    is_named.then_some((cursor.before().len(), start))
}

/// Signs beyond ASCII.
#[rustfmt::skip]
const SIGNS: [(&str, Token<'_>); 22] = [
    ("∔⊕⊞", T::Add), ("−∸", T::Sub), ("×⋅⋄⊡∗⋆∘∙⊗⊠⋈⋉⋊", T::Mul), ("÷∕", T::Div), ("≡≣≟≎≏≐≑≒≓≔≕≖≗", T::Assign),
    ("≈≊≋≃≅", T::Approx), ("≪≺⋖", T::Relation(Op::Lt)), ("≤≦≲≾", T::Relation(Op::Le)), ("≫≻⋗", T::Relation(Op::Gt)),
    ("≥≧≳≿", T::Relation(Op::Ge)), ("≠≁≄≇≉≢", T::Relation(Op::Ne)), ("ℕ", T::Domain(Domain::Naturals)),
    ("ℤ", T::Domain(Domain::Integers)), ("ℚ", T::Domain(Domain::Rationals)), ("ℝ", T::Domain(Domain::Reals)),
    ("ℂ", T::Domain(Domain::Complexes)), ("∅", T::Domain(Domain::Empty)), ("∪", T::Union), ("∖", T::SetMinus),
    ("±∓", T::PlusMinus), ("γ", T::Gamma("gamma")), ("Γ", T::Gamma("Gamma")),
];

pub(super) fn unicode(rest: &str) -> Option<(Option<Token<'_>>, usize)> {
    let c = rest.chars().next()?;
    let token = match SIGNS.iter().find(|it| it.0.contains(c)) {
        Some((_, token)) => *token,
        None if "ℵℶℷℸ".contains(c) => T::Symbol(&rest[..c.len_utf8()]),
        None => T::Greek(GREEK.iter().find(|it| it.0 == c)?.1),
    };
    Some((Some(token), c.len_utf8()))
}
