//! `multiply`: a number of `level` digits times one digit from 2 to 9.
//!
//! `473829*6=?` → concise `4792482;\boxed{2842974}` (the product's digits from the units up, every
//! carry implicit), teacher `9*6+0:54,2*6+5:17,…\boxed{2842974}` (one column per digit: digit, factor,
//! carry in, and the two-digit result whose tens are the next carry).

use super::{Family, Problem, boxed, digits_of_columns, number_of_digits};
use hapo_core::CounterRng;

pub(super) const FAMILY: Family = Family {
    name: "multiply",
    summary: "a number of `level` digits times one digit",
    levels: (1, 9),
    hard_levels: [6, 7],
    problem,
    concise,
    teacher,
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

fn concise(problem: &Problem) -> String {
    let digits = product(&columns(problem));
    let upwards: String = digits.iter().map(u64::to_string).collect();
    format!("{upwards};{}", boxed(&digits))
}

fn teacher(problem: &Problem) -> String {
    let columns = columns(problem);
    let factor = problem.operands[1];
    let step =
        |Column { digit, carry, total }: &Column| format!("{digit}*{factor}+{carry}:{total:02}");
    let mut steps: Vec<String> = columns.iter().map(step).collect();
    steps.push(boxed(&product(&columns)));
    steps.join(",")
}

struct Column {
    digit: u64,
    carry: u64,
    total: u64,
}

/// Long multiplication, units first.
fn columns(problem: &Problem) -> Vec<Column> {
    let (mut rest, factor) = (problem.operands[0], problem.operands[1]);
    let mut columns = Vec::new();
    let mut carry = 0;
    while rest > 0 {
        let digit = rest % 10;
        let total = digit * factor + carry;
        columns.push(Column { digit, carry, total });
        carry = total / 10;
        rest /= 10;
    }
    columns
}

/// The product's digits, units first.
fn product(columns: &[Column]) -> Vec<u64> {
    digits_of_columns(columns.iter().map(|column| column.total))
}
