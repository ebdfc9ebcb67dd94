//! Values of several unknowns against a list of values: names give an order, which a list has to keep.

use crate::expr::{Expr, Op};
use crate::meaning::Refusal;

/// Both sides as tuples, where one names the values of several unknowns and the other lists values.
///
/// # Errors
/// Why there is no order: a set has none.
pub(super) fn in_order(
    gold: (&Expr, &str),
    answer: (&Expr, &str),
) -> Option<Result<(Expr, Expr), Refusal>> {
    let (mut pairs, items, plain_text, is_gold_named) = match (assigned(gold.0), assigned(answer.0))
    {
        (Some(pairs), None) => (pairs, values(answer.0)?, answer.1, true),
        (None, Some(pairs)) => (pairs, values(gold.0)?, gold.1, false),
        // Two lists of equations are compared as they are.
        (Some(a), Some(b)) if gold.0.is_relation() || answer.0.is_relation() => {
            return by_name(a, b);
        }
        _ => return None,
    };
    if plain_text.trim().trim_start_matches("\\left").starts_with("\\{") {
        return Some(Err("values of several unknowns against a set"));
    }
    let listed = Expr::Tuple(items);
    // A list without names goes by the alphabet, unless the gold answer says its order.
    if !is_gold_named {
        pairs.sort_by_key(|it| it.0.to_string());
    }
    let named = Expr::Tuple(pairs.into_iter().map(|it| it.1).collect());
    Some(Ok(if is_gold_named { (named, listed) } else { (listed, named) }))
}

/// Both sides as tuples in the order of their names, where each name has one value: `x=2, y=3` and `(x,y)=(2,3)`.
fn by_name(
    mut a: Vec<(Expr, Expr)>,
    mut b: Vec<(Expr, Expr)>,
) -> Option<Result<(Expr, Expr), Refusal>> {
    for pairs in [&mut a, &mut b] {
        pairs.sort_by_key(|it| it.0.to_string());
    }
    let has_one_value = |pairs: &[(Expr, Expr)]| pairs.windows(2).all(|it| it[0].0 != it[1].0);
    if !has_one_value(&a) || !has_one_value(&b) {
        return None;
    }
    if a.len() != b.len() || a.iter().zip(&b).any(|(a, b)| a.0 != b.0) {
        return Some(Err("values of other unknowns"));
    }
    let values = |pairs: Vec<(Expr, Expr)>| Expr::Tuple(pairs.into_iter().map(|it| it.1).collect());
    Some(Ok((values(a), values(b))))
}

/// The equations of a list that gives at least two unknowns their values.
fn assigned(e: &Expr) -> Option<Vec<(Expr, Expr)>> {
    if let Expr::Rel(Op::Eq, sides) = e {
        let (names, values) = (values(&sides.0)?, values(&sides.1)?);
        let are_names = names.iter().all(|it| matches!(it, Expr::Sym { .. }));
        let fits = are_names && names.len() == values.len() && !matches!(sides.1, Expr::Set(_));
        return fits.then(|| names.into_iter().zip(values).collect());
    }
    let Expr::Set(items) = e else {
        return None;
    };
    let pair = |it| match it {
        &Expr::Rel(Op::Eq, ref sides) if matches!(sides.0, Expr::Sym { .. }) => {
            Some((**sides).clone())
        }
        _ => None,
    };
    let pairs: Vec<(Expr, Expr)> = items.iter().map(pair).collect::<Option<_>>()?;
    pairs.iter().any(|it| it.0 != pairs[0].0).then_some(pairs)
}

/// The elements of a list or a tuple without relations.
fn values(e: &Expr) -> Option<Vec<Expr>> {
    match e {
        Expr::Set(items) | Expr::Tuple(items) if !items.iter().any(Expr::is_relation) => {
            Some(items.clone())
        }
        Expr::Interval(i) if i.left_open && i.right_open => {
            Some(vec![i.start.clone(), i.end.clone()])
        }
        _ => None,
    }
}
