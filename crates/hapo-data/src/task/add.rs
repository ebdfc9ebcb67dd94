//! `add`: three numbers of `level` digits.
//!
//! `473+829+164=?` → concise `6641;\boxed{1466}` (the sum's digits from the units up, every carry
//! implicit), teacher `3+9+4+0:16,7+2+6+1:16,4+8+1+1:14,\boxed{1466}` (one column per digit: the three
//! digits, the carry in, and the two-digit result whose tens are the next carry).

use super::{Family, Problem, Solution, number_of_digits};
use hapo_core::CounterRng;

pub(super) const FAMILY: Family = Family {
    name: "add",
    summary: "the sum of three numbers of `level` digits",
    levels: (1, 7),
    hard_levels: [5, 6],
    problem,
    solve,
};

fn problem(level: u32, rng: &mut CounterRng) -> Problem {
    let terms: Vec<u64> = (0..3).map(|_| number_of_digits(level, rng)).collect();
    Problem {
        family: FAMILY.name,
        level,
        prompt: format!("{}+{}+{}=?", terms[0], terms[1], terms[2]),
        answer: terms.iter().sum::<u64>().to_string(),
        operands: terms,
    }
}

fn solve(problem: &Problem) -> Solution {
    Solution::by_columns((0..problem.level).map(|place| {
        let digit = |term: usize| problem.operands[term] / 10_u64.pow(place) % 10;
        let [a, b, c] = [digit(0), digit(1), digit(2)];
        (format!("{a}+{b}+{c}"), a + b + c)
    }))
}
