//! Comparison by values at fixed points.

use super::Decision;
use super::big::Big;
use super::complex::Complex;
use super::eval::value;
use crate::expr::Expr;
use crate::number::Rat;

/// Fixed, well-spread value of the `idx`-th atom at the `probe`-th point.
fn spread(idx: usize, probe: u64) -> u64 {
    let mut z = (idx as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
        ^ (probe + 1).wrapping_mul(0xD1B5_4A32_D192_ED03);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The value of the `idx`-th atom at the `probe`-th point: between 0.3 and 3 at the first two points and between 2 and
/// 18 at the others (where floors and steps have more than one value); of mixed sign at odd ones.
fn point(idx: usize, probe: u64) -> Rat {
    let z = spread(idx, probe);
    let scale = if probe < 2 { 1 } else { 6 };
    let size = (300 + (z % 2_689) as i64) * scale;
    let negative = probe % 2 == 1 && !(z >> 40).is_multiple_of(3);
    Rat::ratio(if negative { -size } else { size }, 997)
}

pub(super) fn same_at_points(a: &Expr, b: &Expr, atoms: &[&Expr]) -> Decision {
    let n_points = if atoms.is_empty() { 1 } else { 4 };
    let mut n_good = 0;
    for (x, y) in pairs(a, b, atoms, n_points) {
        let zero = || Big::from_rat(&Rat::int(0));
        let real = x.re.same(&y.re);
        let imaginary = match (&x.im, &y.im) {
            (None, None) => Some(true),
            _ => x.im.unwrap_or_else(zero).same(&y.im.unwrap_or_else(zero)),
        };
        match (real, imaginary) {
            (Some(false), _) | (_, Some(false)) => return Decision::Different("different values"),
            (Some(true), Some(true)) => n_good += 1,
            _ => {}
        }
    }
    match atoms {
        _ if n_good < n_points.min(3) => Decision::Unknown,
        [] => Decision::Same("equal to 50 digits"),
        _ => Decision::Same("equal to 50 digits at four points"),
    }
}

/// True if `a` and `b` have the same value wherever both are real, at three points or more.
pub(super) fn same_at_real_points(a: &Expr, b: &Expr, atoms: &[&Expr]) -> bool {
    let mut n_good = 0;
    for (x, y) in pairs(a, b, atoms, 6) {
        let zero = || Big::from_rat(&Rat::int(0));
        let is_real = |it: &Complex| it.im.as_ref().is_none_or(|it| it.same(&zero()) == Some(true));
        if is_real(&x) && is_real(&y) {
            match x.re.same(&y.re) {
                Some(true) => n_good += 1,
                _ => return false,
            }
        }
    }
    n_good > 2
}

/// The values of both at the first points where both have one.
fn pairs<'e>(
    a: &'e Expr,
    b: &'e Expr,
    atoms: &'e [&'e Expr],
    n_points: u64,
) -> impl Iterator<Item = (Complex, Complex)> {
    (0..n_points).filter_map(move |probe| {
        let at = |idx| Complex::rat(&point(idx, probe));
        let values: Vec<_> = atoms.iter().enumerate().map(|(idx, atom)| (*atom, at(idx))).collect();
        Some((value(a, &values)?, value(b, &values)?))
    })
}
