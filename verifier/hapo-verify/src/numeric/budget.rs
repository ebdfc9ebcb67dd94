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

/// Steps of one judgement, all comparisons in it together.
const FUEL_PER_JUDGEMENT: u32 = 100_000;

thread_local! {
    static FUEL: Cell<u32> = const { Cell::new(FUEL_PER_JUDGEMENT) };
}

/// Grants a new judgement its steps.
pub(crate) fn refuel() {
    FUEL.with(|fuel| fuel.set(FUEL_PER_JUDGEMENT));
}
