//! `add`: three numbers of `level` digits.
//!
//! `473+829+164=?` → concise `6641;\boxed{1466}` (the sum's digits from the units up, every carry
//! implicit), teacher `3+9+4+0:16,7+2+6+1:16,4+8+1+1:14,\boxed{1466}` (one column per digit: the three
//! digits, the carry in, and the two-digit result whose tens are the next carry).

use super::{Family, Problem, boxed, digits_of_columns, number_of_digits};
use hapo_core::CounterRng;

pub(super) const FAMILY: Family = Family {
    name: "add",
    summary: "the sum of three numbers of `level` digits",
    levels: (1, 7),
    hard_levels: [5, 6],
    problem,
    concise,
    teacher,
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

fn concise(problem: &Problem) -> String {
    let digits = sum(&columns(problem));
    let upwards: String = digits.iter().map(u64::to_string).collect();
    format!("{upwards};{}", boxed(&digits))
}

fn teacher(problem: &Problem) -> String {
    let columns = columns(problem);
    let step = |column: &Column| {
        let Column { digits: [a, b, c], carry, total } = column;
        format!("{a}+{b}+{c}+{carry}:{total:02}")
    };
    let mut steps: Vec<String> = columns.iter().map(step).collect();
    steps.push(boxed(&sum(&columns)));
    steps.join(",")
}

struct Column {
    digits: [u64; 3],
    carry: u64,
    total: u64,
}

/// Column addition, units first.
fn columns(problem: &Problem) -> Vec<Column> {
    let mut columns = Vec::new();
    let (mut carry, mut power) = (0, 1);
    for _ in 0..problem.level {
        let digits: [u64; 3] = std::array::from_fn(|term| problem.operands[term] / power % 10);
        let total = digits.iter().sum::<u64>() + carry;
        columns.push(Column { digits, carry, total });
        carry = total / 10;
        power *= 10;
    }
    columns
}

/// The sum's digits, units first.
fn sum(columns: &[Column]) -> Vec<u64> {
    digits_of_columns(columns.iter().map(|column| column.total))
}
