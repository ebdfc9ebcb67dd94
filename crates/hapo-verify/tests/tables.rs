//! Runs the tables in `tests/tables`: one line per case, gold, answer, verdict and why.

use hapo_verify::{Gold, Grader, Judgement, MATH, Math, MathOptions, OAT, Strictness, grade};

fn check(table: &str, grader: &dyn Grader, completion: impl Fn(&str) -> String) {
    check_with(table, completion, |gold, completion| grade(grader, gold, completion));
}

fn check_with(
    table: &str,
    completion: impl Fn(&str) -> String,
    judge: impl Fn(&str, &str) -> Judgement,
) {
    let mut failures = Vec::new();
    let mut n_cases = 0;
    for (idx, line) in table.lines().enumerate() {
        let Some(cells) = line.strip_prefix("| `") else {
            continue;
        };
        let mut cells = cells.split(" | ");
        let mut cell =
            || cells.next().unwrap_or_default().trim_matches('`').trim_start_matches('`');
        let (gold, answer, verdict) = (cell(), cell(), cell());
        let judgement = judge(gold, &completion(answer));
        n_cases += 1;
        if judgement.verdict.name() != verdict {
            failures.push(format!(
                "line {}: expected {verdict} for {line}\n    got {judgement:?}",
                idx + 1
            ));
        }
    }
    assert!(n_cases > 10, "the table has only {n_cases} cases");
    assert!(
        failures.is_empty(),
        "{} of {n_cases} cases differ:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

fn boxed(answer: &str) -> String {
    format!("\\boxed{{{answer}}}")
}

#[test]
fn numbers_mean_their_value() {
    check(include_str!("tables/numbers.md"), &MATH, boxed);
}

#[test]
fn formulas_relations_and_sets_mean_what_they_say() {
    check(include_str!("tables/formulas.md"), &MATH, boxed);
}

#[test]
fn text_is_compared_as_letters() {
    check(include_str!("tables/text.md"), &MATH, boxed);
}

#[test]
fn the_best_candidate_is_the_answer() {
    check(include_str!("tables/extraction.md"), &MATH, |it| it.replace('⏎', "\n"));
}

#[test]
fn oat_is_followed_where_a_rule_can_say_it() {
    check(include_str!("tables/oat.md"), &OAT, boxed);
}

#[test]
fn truth_reads_what_is_meant() {
    let truth = Math::new(MathOptions { strict: Strictness::Truth, ..MathOptions::default() });
    check_with(include_str!("tables/truth.md"), boxed, |gold, completion| {
        Gold::new(&truth, gold).unwrap().judge(completion)
    });
}
