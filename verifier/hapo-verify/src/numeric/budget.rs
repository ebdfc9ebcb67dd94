//! The budget of a judgement.

use crate::number::Rat;
use crate::work;
use std::cell::Cell;

/// Steps (nodes evaluated, with large ones counted more than once) that one side may take at one point.
pub(super) const BUDGET: u32 = 20_000;

pub(super) fn spend(budget: &mut u32, steps: u32) -> Option<()> {
    work::count(1);
    *budget = budget.checked_sub(steps)?;
    FUEL.with(|fuel| {
        let left = fuel.get().checked_sub(steps);
        fuel.set(left.unwrap_or(0));
        left.map(|_| ())
    })
}

/// The cost of adding or multiplying two numbers, in steps, which is spent before the operation.
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

thread_local! {
    static FUEL: Cell<u32> = const { Cell::new(FUEL_PER_JUDGEMENT) };
    static LONG_SERIES_LEFT: Cell<u32> = const { Cell::new(LONG_SERIES_PER_JUDGEMENT) };
}

/// Grants a new judgement its steps.
pub(crate) fn refuel() {
    FUEL.with(|fuel| fuel.set(FUEL_PER_JUDGEMENT));
    LONG_SERIES_LEFT.with(|it| it.set(LONG_SERIES_PER_JUDGEMENT));
}
