//! What a judgement may cost.

use crate::number::Rat;
use std::cell::Cell;

/// Steps (nodes evaluated, with large ones counted more than once) that one side may take at one point.
pub(super) const BUDGET: u32 = 20_000;

pub(super) fn spend(budget: &mut u32, steps: u32) -> Option<()> {
    count_operation();
    *budget = budget.checked_sub(steps)?;
    FUEL.with(|fuel| {
        let left = fuel.get().checked_sub(steps);
        fuel.set(left.unwrap_or(0));
        left.map(|_| ())
    })
}

/// What adding or multiplying two numbers costs, in steps. It is spent before the operation.
pub(super) fn cost(a: &Rat, b: &Rat) -> u32 {
    let words = ((a.bits() + b.bits()) / 64) as u32;
    // Fractions are reduced, which is quadratic.
    if a.is_integer() && b.is_integer() { words } else { words * words / 2 }
}

/// Steps that a sum or product of many terms may take on top of the rest.
const LONG_SERIES: u32 = 150_000;

/// How many such sums and products one judgement adds up: both sides, in doubles and to 50 digits.
const LONG_SERIES_PER_JUDGEMENT: u32 = 4;

/// Runs `add_up` with the steps of a long series, if the judgement has any left.
pub(super) fn long_series<T>(add_up: impl FnOnce(&mut u32) -> Option<T>) -> Option<T> {
    let left = LONG_SERIES_LEFT.with(|it| it.replace(it.get().saturating_sub(1)));
    if left == 0 {
        return None;
    }
    let fuel = FUEL.with(|it| it.replace(LONG_SERIES));
    let mut budget = LONG_SERIES;
    let total = add_up(&mut budget);
    let unspent = FUEL.with(|it| it.replace(fuel));
    // What does not end in doubles does not end to 50 digits either.
    if total.is_none() && unspent < LONG_SERIES / 8 {
        LONG_SERIES_LEFT.with(|it| it.set(0));
    }
    total
}

/// Steps of one judgement, all comparisons in it together.
const FUEL_PER_JUDGEMENT: u32 = 100_000;

/// Counts what is evaluated, for the test of the bound.
#[inline]
pub(super) fn count_operation() {
    #[cfg(test)]
    OPERATIONS.with(|it| it.set(it.get() + 1));
}

#[cfg(test)]
thread_local! {
    static OPERATIONS: Cell<u64> = const { Cell::new(0) };
}

thread_local! {
    static FUEL: Cell<u32> = const { Cell::new(FUEL_PER_JUDGEMENT) };
    static LONG_SERIES_LEFT: Cell<u32> = const { Cell::new(LONG_SERIES_PER_JUDGEMENT) };
}

/// Grants a new judgement its steps.
pub(crate) fn refuel() {
    FUEL.with(|fuel| fuel.set(FUEL_PER_JUDGEMENT));
    LONG_SERIES_LEFT.with(|it| it.set(LONG_SERIES_PER_JUDGEMENT));
}

#[cfg(test)]
mod tests {
    use super::OPERATIONS;
    use crate::{OAT, grade};

    /// Far below a tenth of a second of any core.
    const MOST: u64 = 700_000;

    fn operations(gold: &str, answer: &str) -> u64 {
        OPERATIONS.with(|it| it.set(0));
        let _ = grade(&crate::MATH, gold, &format!("\\boxed{{{answer}}}"));
        let _ = grade(&OAT, gold, &format!("\\boxed{{{answer}}}"));
        OPERATIONS.with(std::cell::Cell::get)
    }

    #[test]
    fn nested_sums_and_products_end_within_a_budget_of_operations() {
        let nested = |head: &str, n: usize, body: &str| format!("{}{body}", head.repeat(n));
        let answers = [
            nested("\\sum_{k=1}^{1000}", 2, "7"),
            nested("\\sum_{k=1}^{99}", 40, "7"),
            nested("\\prod_{i=1}^{99}", 40, "i"),
            nested("\\sum_{k=1}^{9999}", 3, "\\sqrt{k}"),
            nested("\\prod_{k=2}^{99}\\sum_{i=1}^{99}", 9, "\\frac{i}{k}"),
            nested("\\sum_{k=1}^{9000}", 1, "\\prod_{i=1}^{9000} (i+\\sin k)"),
        ];
        for answer in &answers {
            for gold in ["7", "\\sum_{j=1}^{900}\\sum_{i=1}^{900} \\frac{1}{i+j}"] {
                let n = operations(gold, answer);
                assert!((1..MOST).contains(&n), "{n} operations: {answer:.60} against {gold}");
            }
        }
    }
}
