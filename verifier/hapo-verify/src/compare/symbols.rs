//! The symbols of an expression, and substitution.

use crate::expr::{Expr, Func};
use std::collections::BTreeMap;

/// The symbols of `e`, in the order of their first use.
pub(super) fn plain_symbols(e: &Expr) -> Vec<Expr> {
    let mut found: Vec<Expr> = Vec::new();
    e.any(&mut |it| {
        if it.symbol().is_some() && !found.contains(it) {
            found.push(it.clone());
        }
        false
    });
    found
}

/// `answer` with its symbols renamed to those of `gold` in order, where there are as many.
pub(crate) fn renamed(gold: &Expr, answer: &Expr) -> Expr {
    let (ours, theirs) = (plain_symbols(gold), plain_symbols(answer));
    if ours.len() != theirs.len() || ours.is_empty() {
        return answer.clone();
    }
    let placeholder = |idx: usize| Expr::Sym { name: format!("\u{0}{idx}").into(), complex: false };
    let mut out = answer.clone();
    // In two steps, so that a swap of names does not collide.
    for (idx, from) in theirs.iter().enumerate() {
        out = out.substituted(from, &placeholder(idx));
    }
    for (idx, to) in ours.iter().enumerate() {
        out = out.substituted(&placeholder(idx), to);
    }
    out
}

/// `e` with the symbol `i` read as the imaginary unit; not where it may count something, or has a value.
pub(crate) fn complex(e: Expr) -> Expr {
    fn imaginary(e: &Expr, i: &Expr) -> Expr {
        if e == i { Expr::I } else { e.with_parts(&mut |it| imaginary(it, i)) }
    }
    let i = Expr::Sym { name: "i".into(), complex: false };
    let counts = e.any(&mut |it| match it {
        Expr::Call(Func::Integral, _) => true,
        Expr::Rel(_, sides) => sides.0 == i,
        _ => false,
    });
    if counts || !e.any(&mut |it| *it == i) { e } else { imaginary(&e, &i) }
}

/// Capitals that are letters of their own.
#[rustfmt::skip]
const GREEK: [&str; 11] = [
    "Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Upsilon", "Phi", "Psi", "Omega",
];

/// The answers in lower case, unless one of them has a letter in both cases: `R` and `r` may be two radii or one.
pub(crate) fn without_case<const N: usize>(answers: [&Expr; N]) -> [Expr; N] {
    let tells_apart = |e: &&Expr| {
        let mut spelled: BTreeMap<String, String> = BTreeMap::new();
        let mut is_other = |name: &str| {
            let first = spelled.entry(name.to_lowercase()).or_insert_with(|| name.to_owned());
            first != name
        };
        e.any(&mut |it| it.symbol().is_some_and(&mut is_other))
    };
    let is_cased = |e: &&Expr| e.any(&mut |it| it.symbol().is_some_and(has_case));
    if !answers.iter().any(is_cased) || answers.iter().any(tells_apart) {
        return answers.map(Expr::clone);
    }
    answers.map(lowered)
}

fn has_case(name: &str) -> bool {
    name.contains(|c: char| c.is_uppercase()) && !GREEK.iter().any(|it| name.starts_with(it))
}

fn lowered(e: &Expr) -> Expr {
    match e {
        Expr::Sym { name, complex } if has_case(name) => {
            Expr::Sym { name: name.to_lowercase().into(), complex: *complex }
        }
        it => it.with_parts(&mut lowered),
    }
}

/// `e` with the symbol `i` read as the imaginary unit, where that is its only symbol.
pub(crate) fn with_imaginary_unit(e: &Expr) -> Option<Expr> {
    let symbols = plain_symbols(e);
    let [only] = symbols.as_slice() else { return None };
    (only.symbol() == Some("i")).then(|| e.substituted(only, &Expr::I))
}
