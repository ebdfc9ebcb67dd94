//! Sets of real numbers as sorted pieces.

use crate::expr::{Domain, Expr, Interval};
use crate::numeric;
use std::cmp::Ordering;

impl Interval {
    /// All reals below `end`, and `end` itself unless it is `open`.
    pub(super) fn below(end: &Expr, open: bool) -> Interval {
        Interval { start: Expr::NegInfinity, end: end.clone(), left_open: true, right_open: open }
    }

    /// All reals above `start`, and `start` itself unless it is `open`.
    pub(super) fn above(start: &Expr, open: bool) -> Interval {
        Interval { start: start.clone(), end: Expr::Infinity, left_open: open, right_open: true }
    }

    pub(super) fn point(at: &Expr) -> Interval {
        Interval { start: at.clone(), end: at.clone(), left_open: false, right_open: false }
    }
}

/// The set as disjoint intervals in order, where every end is a known real.
pub(super) fn pieces(e: &Expr) -> Option<Vec<Interval>> {
    let all = match e {
        Expr::Interval(i) => vec![(**i).clone()],
        Expr::Set(v) if v.len() <= 64 => v.iter().map(Interval::point).collect(),
        Expr::Domain(Domain::Reals) => vec![Interval::above(&Expr::NegInfinity, true)],
        Expr::Union(v) => {
            let all: Vec<_> = v.iter().map(pieces).collect::<Option<_>>()?;
            all.concat()
        }
        Expr::Complement(p) => intersection(&pieces(&p.0)?, &complement(&pieces(&p.1)?)?)?,
        _ => return None,
    };
    merged(all)
}

pub(super) fn merged(mut all: Vec<Interval>) -> Option<Vec<Interval>> {
    if all.len() > 24 {
        return None;
    }
    for it in &all {
        numeric::compare_real(&it.start, &it.end)?;
    }
    let mut undecided = false;
    all.sort_by(|a, b| {
        let order = numeric::compare_real(&a.start, &b.start);
        undecided |= order.is_none();
        order.unwrap_or(Ordering::Equal).then(a.left_open.cmp(&b.left_open))
    });
    if undecided {
        return None;
    }
    let mut out: Vec<Interval> = Vec::with_capacity(all.len());
    for it in all {
        let Some(last) = out.last_mut() else {
            out.push(it);
            continue;
        };
        let touch = numeric::compare_real(&it.start, &last.end)?;
        let joined = touch.is_lt() || touch.is_eq() && !(it.left_open && last.right_open);
        if !joined {
            out.push(it);
            continue;
        }
        match numeric::compare_real(&it.end, &last.end)? {
            Ordering::Greater => {
                last.end = it.end;
                last.right_open = it.right_open;
            }
            Ordering::Equal => last.right_open &= it.right_open,
            Ordering::Less => {}
        }
    }
    Some(out)
}

pub(super) fn complement(set: &[Interval]) -> Option<Vec<Interval>> {
    let mut out = Vec::with_capacity(set.len() + 1);
    let (mut start, mut left_open) = (Expr::NegInfinity, true);
    for it in set {
        let before =
            Interval { start, end: it.start.clone(), left_open, right_open: !it.left_open };
        if is_inhabited(&before)? {
            out.push(before);
        }
        (start, left_open) = (it.end.clone(), !it.right_open);
    }
    let last = Interval { start, end: Expr::Infinity, left_open, right_open: true };
    if is_inhabited(&last)? {
        out.push(last);
    }
    Some(out)
}

fn is_inhabited(it: &Interval) -> Option<bool> {
    Some(match numeric::compare_real(&it.start, &it.end)? {
        Ordering::Less => true,
        Ordering::Equal => !it.left_open && !it.right_open,
        Ordering::Greater => false,
    })
}

pub(super) fn intersection(a: &[Interval], b: &[Interval]) -> Option<Vec<Interval>> {
    let mut out = Vec::new();
    for x in a {
        for y in b {
            let (start, left_open) = match numeric::compare_real(&x.start, &y.start)? {
                Ordering::Greater => (&x.start, x.left_open),
                Ordering::Less => (&y.start, y.left_open),
                Ordering::Equal => (&x.start, x.left_open || y.left_open),
            };
            let (end, right_open) = match numeric::compare_real(&x.end, &y.end)? {
                Ordering::Less => (&x.end, x.right_open),
                Ordering::Greater => (&y.end, y.right_open),
                Ordering::Equal => (&x.end, x.right_open || y.right_open),
            };
            let piece = Interval { start: start.clone(), end: end.clone(), left_open, right_open };
            if is_inhabited(&piece)? {
                out.push(piece);
            }
        }
    }
    Some(out)
}

pub(super) fn same_pieces(a: &[Interval], b: &[Interval]) -> bool {
    let same = |x: &Expr, y: &Expr| numeric::compare_real(x, y) == Some(Ordering::Equal);
    a.len() == b.len()
        && a.iter().zip(b).all(|(x, y)| {
            x.left_open == y.left_open
                && x.right_open == y.right_open
                && same(&x.start, &y.start)
                && same(&x.end, &y.end)
        })
}

/// Pieces as a set expression again.
pub(super) fn simple(all: Vec<Interval>) -> Option<Expr> {
    let set = |it: Interval| {
        let is_point = numeric::compare_real(&it.start, &it.end)?.is_eq();
        Some(if is_point { Expr::Set(vec![it.start]) } else { Expr::Interval(Box::new(it)) })
    };
    let mut sets: Vec<Expr> = all.into_iter().map(set).collect::<Option<_>>()?;
    Some(if sets.len() == 1 { sets.swap_remove(0) } else { Expr::Union(sets) })
}
