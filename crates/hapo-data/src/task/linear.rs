//! `linear`: `a*x+b=c` with a solution of `level` digits.
//!
//! `6*x+7=28423;x=?` → concise `28416;\boxed{4736}` (the constant taken away, then the quotient with
//! every remainder implicit), teacher `28423-7:28416,28/6:4r4,44/6:7r2,21/6:3r3,36/6:6r0,\boxed{4736}`
//! (long division, one column per digit of the quotient: the remainder so far followed by the next digit,
//! the divisor, the digit of the quotient, the new remainder).

use super::{Family, Problem, Solution, number_of_digits};
use hapo_core::CounterRng;

pub(super) const FAMILY: Family = Family {
    name: "linear",
    summary: "the solution, of `level` digits, of a*x+b=c with one-digit a and b",
    levels: (1, 7),
    hard_levels: [4, 5],
    problem,
    solve,
};

fn problem(level: u32, rng: &mut CounterRng) -> Problem {
    let solution = number_of_digits(level, rng);
    let factor = 2 + rng.below(8);
    let constant = 1 + rng.below(9);
    let right = factor * solution + constant;
    Problem {
        family: FAMILY.name,
        level,
        prompt: format!("{factor}*x+{constant}={right};x=?"),
        answer: solution.to_string(),
        operands: vec![factor, constant, right],
    }
}

/// Long division, the highest digit first; the columns before the quotient's first digit are not
/// written, so that there are as many columns as digits.
fn solve(problem: &Problem) -> Solution {
    let [factor, constant, right] = problem.operands[..] else {
        unreachable!("a linear equation has three numbers")
    };
    let dividend = (right - constant).to_string();
    let mut steps = vec![format!("{right}-{constant}:{dividend}")];
    let (mut digits, mut rest) = (Vec::new(), 0);
    for digit in dividend.bytes() {
        let value = 10 * rest + u64::from(digit - b'0');
        rest = value % factor;
        if value >= factor || !digits.is_empty() {
            steps.push(format!("{value:02}/{factor}:{}r{rest}", value / factor));
            digits.push(value / factor);
        }
    }
    digits.reverse();
    Solution { begun: dividend, steps, digits }
}
