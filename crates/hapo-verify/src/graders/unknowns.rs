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
