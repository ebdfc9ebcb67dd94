//! Classes of residues, whatever modulus and form they are written with: `x \equiv 4, 15 \pmod{22}`, `2x \equiv 8
//! \pmod{22}` and `x = 11k + 4` are one.

use crate::compare::only_symbol;
use crate::expr::{Domain, Expr, Func, Op};
use crate::number::Rat;
use crate::numeric;
use num_integer::Integer;
use std::collections::BTreeSet;

/// Largest modulus whose residues are listed.
const MAX_MODULUS: i64 = 2_000;

struct Classes {
    /// The unknown that has them, where it is named.
    unknown: Option<Expr>,
    modulus: i64,
    residues: BTreeSet<i64>,
}

/// True if two answers name the same classes; `None` where one names none, or the gold answer neither names its modulus
/// nor says that its parameter is an integer: `3x+2` may be a function.
pub(super) fn same_classes((gold, gold_text): (&Expr, &str), answer: &Expr) -> Option<bool> {
    let is_class = names_modulus(gold) || names_modulus(answer) && names_integers(gold_text);
    if !is_class {
        return None;
    }
    let (a, b) = (classes(gold)?, classes(answer)?);
    let modulus = a.modulus.lcm(&b.modulus);
    let same_unknown = a.unknown.is_none() || b.unknown.is_none() || a.unknown == b.unknown;
    if modulus > MAX_MODULUS || !same_unknown {
        return None;
    }
    Some(a.lifted(modulus) == b.lifted(modulus))
}

fn names_modulus(e: &Expr) -> bool {
    e.any(&mut |it| matches!(it, Expr::Call(Func::Mod, _)))
}

fn names_integers(text: &str) -> bool {
    ["\\mathbb{Z}", "\\mathbb Z", "\\Z", "ℤ", "integer"].iter().any(|it| text.contains(it))
}

impl Classes {
    /// The residues by a multiple of the modulus.
    fn lifted(&self, modulus: i64) -> BTreeSet<i64> {
        let shifts = (0..modulus / self.modulus).map(|it| it * self.modulus);
        shifts.flat_map(|shift| self.residues.iter().map(move |it| it + shift)).collect()
    }
}

fn classes(e: &Expr) -> Option<Classes> {
    let Expr::Set(items) = e else {
        return single(e);
    };
    let is_parameter = |it: &&Expr| matches!(it, Expr::Rel(Op::Eq, sides) if sides.1 == Expr::Domain(Domain::Integers));
    let mut parts = items.iter().filter(|it| !is_parameter(it)).map(single);
    let mut all = parts.next()??;
    for it in parts {
        let it = it?;
        let modulus = all.modulus.lcm(&it.modulus);
        if modulus > MAX_MODULUS || all.unknown != it.unknown {
            return None;
        }
        let residues = all.lifted(modulus).union(&it.lifted(modulus)).copied().collect();
        all = Classes { modulus, residues, ..all };
    }
    Some(all)
}

/// The classes of one congruence, or of a form such as `7k + 3`.
fn single(e: &Expr) -> Option<Classes> {
    match e {
        Expr::Call(Func::Mod, _) => {
            let (residue, modulus) = residue(e)?;
            let residues = BTreeSet::from([residue.rem_euclid(modulus)]);
            Some(Classes { unknown: None, modulus, residues })
        }
        Expr::Rel(Op::Eq, sides) if matches!(sides.1, Expr::Call(Func::Mod, _)) => {
            let (residue, modulus) = residue(&sides.1)?;
            let unknown = only_symbol(&sides.0)?;
            let (slope, offset) = linear(&sides.0, &unknown)?;
            let solves = |x: &i64| {
                let left = i128::from(slope) * i128::from(*x) + i128::from(offset);
                (left - i128::from(residue)).rem_euclid(i128::from(modulus)) == 0
            };
            let residues = (0..modulus).filter(solves).collect();
            Some(Classes { unknown: Some(unknown), modulus, residues })
        }
        Expr::Rel(Op::Eq, sides) if matches!(sides.0, Expr::Sym { .. }) => {
            let form = form(&sides.1)?;
            let is_itself = only_symbol(&sides.1).as_ref() == Some(&sides.0);
            (!is_itself).then(|| Classes { unknown: Some(sides.0.clone()), ..form })
        }
        it => form(it),
    }
}

/// `7k + 3`.
fn form(e: &Expr) -> Option<Classes> {
    let (slope, offset) = linear(e, &only_symbol(e)?)?;
    let modulus = slope.checked_abs().filter(|it| (2..=MAX_MODULUS).contains(it))?;
    let residues = BTreeSet::from([offset.rem_euclid(modulus)]);
    Some(Classes { unknown: None, modulus, residues })
}

fn residue(e: &Expr) -> Option<(i64, i64)> {
    let Expr::Call(Func::Mod, sides) = e else {
        return None;
    };
    let [value, modulus] = sides.as_slice() else {
        return None;
    };
    let integer = |it: &Expr| numeric::exact(it).as_ref().and_then(Rat::to_i64);
    let modulus = integer(modulus).filter(|it| (1..=MAX_MODULUS).contains(it))?;
    Some((integer(value)?, modulus))
}

/// The integers `a` and `b` of `a x + b`.
fn linear(e: &Expr, symbol: &Expr) -> Option<(i64, i64)> {
    let (slope, offset) = numeric::linear(e, symbol)?;
    Some((slope.to_i64()?, offset.to_i64()?))
}
