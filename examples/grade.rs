//! Grades answers as Math-Verify would, and says why.
//!
//! `cargo run --release --example grade`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use hapo::verify::{Grader, MATH, OAT, check_gold, grade, grade_batch};

fn main() {
    let completion =
        "The two roots add up to $-b/a$, so the answer is $\\boxed{\\dfrac{\\sqrt{8}}{2}}$.";
    for grader in [&MATH as &dyn Grader, &OAT] {
        let it = grade(grader, "\\sqrt{2}", completion);
        println!(
            "{}: {}; read `{}` against `{}`: {}",
            grader.name(),
            it.verdict.name(),
            it.answer_read,
            it.gold_read,
            it.reason
        );
    }

    // Any number of pairs, on all cores, in order. No timeout is needed: every stage is bounded.
    let pairs = [
        ("(1, 2)", "\\boxed{(1,2)}"),
        ("x \\le 3", "so $x\\in(-\\infty,3]$"),
        ("12", "I do not know."),
    ];
    for (pair, it) in pairs.iter().zip(grade_batch(&MATH, &pairs)) {
        println!("{} ~ {}: {}", pair.0, pair.1, it.verdict.name());
    }

    // A gold answer that nothing could ever equal is found before the run, not after.
    println!("a gold answer that says nothing: {}", check_gold(&MATH, " ").unwrap_err());
}
