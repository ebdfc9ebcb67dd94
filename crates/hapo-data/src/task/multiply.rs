//! `multiply`: a number of `level` digits times one digit from 2 to 9.
//!
//! `473829*6=?` → concise `4792482;\boxed{2842974}` (the product's digits from the units up, every
//! carry implicit), teacher `9*6+0:54,2*6+5:17,…\boxed{2842974}` (one column per digit: digit, factor,
//! carry in, and the two-digit result whose tens are the next carry).

use super::{Family, Problem, Solution, number_of_digits};
use hapo_core::CounterRng;

pub(super) const FAMILY: Family = Family {
    name: "multiply",
    summary: "a number of `level` digits times one digit",
    levels: (1, 9),
    hard_levels: [6, 7],
    problem,
    solve,
};

fn problem(level: u32, rng: &mut CounterRng) -> Problem {
    let number = number_of_digits(level, rng);
    let factor = 2 + rng.below(8);
    Problem {
        family: FAMILY.name,
        level,
        prompt: format!("{number}*{factor}=?"),
        answer: (number * factor).to_string(),
        operands: vec![number, factor],
    }
}

fn solve(problem: &Problem) -> Solution {
    let (number, factor) = (problem.operands[0], problem.operands[1]);
    Solution::by_columns((0..problem.level).map(|place| {
        let digit = number / 10_u64.pow(place) % 10;
        (format!("{digit}*{factor}"), digit * factor)
    }))
}
