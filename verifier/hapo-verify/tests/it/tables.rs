//! Runs the tables in `tests/tables`: one line per case, gold, answer, verdict and why.

use hapo_verify::{BENCHMARK, Grader, MATH, OAT, TRAINING, grade};

fn check(table: &str, grader: &dyn Grader, completion: impl Fn(&str) -> String) {
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
        let judgement = grade(grader, gold, &completion(answer));
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
fn policies_pay_for_what_their_table_says() {
    let letter = |grader: &dyn Grader, gold: &str, completion: &str| {
        let judgement = grade(grader, gold, completion);
        (judgement.verdict.name()[..1].to_owned(), judgement)
    };
    let mut failures = Vec::new();
    let mut n_cases = 0;
    let tables = [
        include_str!("tables/policies.md"),
        include_str!("tables/statements.md"),
        include_str!("tables/weak.md"),
    ];
    for line in tables.iter().flat_map(|it| it.lines()).filter(|it| it.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let (gold, completion) = (cells[0].trim_matches('`'), cells[1].trim_matches('`'));
        let completion = completion.replace('⏎', "\n");
        for (grader, expected) in [&TRAINING, &BENCHMARK, &MATH].into_iter().zip(&cells[2..5]) {
            let (got, judgement) = letter(grader, gold, &completion);
            n_cases += 1;
            if got != **expected {
                failures.push(format!("{}: {got} for {line}\n    {judgement:?}", grader.name()));
            }
        }
    }
    assert!(n_cases > 1_000, "the table has only {n_cases} cases");
    assert!(failures.is_empty(), "{} of {n_cases}:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn meaning_reads_what_is_meant() {
    for grader in [&TRAINING, &BENCHMARK] {
        check(include_str!("tables/meaning.md"), grader, boxed);
    }
}
