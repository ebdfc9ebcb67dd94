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
    let listed = Expr::Tuple(items.to_vec());
    // A list without names goes by the alphabet, unless the gold answer says its order.
    if !is_gold_named {
        pairs.sort_by_key(|it| it.0.to_string());
    }
    let named = Expr::Tuple(pairs.into_iter().map(|it| it.1.clone()).collect());
    Some(Ok(if is_gold_named { (named, listed) } else { (listed, named) }))
}

/// The equations of a list that gives at least two unknowns their values.
fn assigned(e: &Expr) -> Option<Vec<&(Expr, Expr)>> {
    let Expr::Set(items) = e else {
        return None;
    };
    let pair = |it| match it {
        &Expr::Rel(Op::Eq, ref sides) if matches!(sides.0, Expr::Sym { .. }) => Some(&**sides),
        _ => None,
    };
    let pairs: Vec<&(Expr, Expr)> = items.iter().map(pair).collect::<Option<_>>()?;
    pairs.iter().any(|it| it.0 != pairs[0].0).then_some(pairs)
}

/// The elements of a list without relations.
fn values(e: &Expr) -> Option<&[Expr]> {
    match e {
        Expr::Set(items) if !items.iter().any(Expr::is_relation) => Some(items),
        _ => None,
    }
}
