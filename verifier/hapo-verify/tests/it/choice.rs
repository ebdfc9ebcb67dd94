//! The grader `choice`.

use hapo_verify::{CHOICE, Extracting, Extraction, Gold, check_gold, grade};

#[test]
fn the_chosen_letter_is_read_however_it_is_given() {
    for (gold, text, expected) in [
        ("C", "The answer is (C).", "correct"),
        ("(C)", "the answer is C", "correct"),
        ("C", "C Cecile", "correct"),
        ("C", "C", "correct"),
        ("c", "(c) Cecile", "correct"),
        ("B", "not A, therefore B", "correct"),
        ("B", "It cannot be A. Hence it is B.", "correct"),
        ("A", "not A, therefore B", "wrong"),
        ("D", r"\boxed{\text{D}}", "correct"),
        ("D", r"\boxed{(D)\ 5}", "correct"),
        ("D", r"A, but on a second look \boxed{D}", "correct"),
        ("D", "**Answer:** D) blue", "correct"),
        ("A", "A man walks", "unparsable"),
        ("A", "Answers are hard", "unparsable"),
        ("A", "I do not know", "unparsable"),
        ("B", "<think>therefore B</think> the answer is A", "wrong"),
    ] {
        let judgement = grade(&CHOICE, gold, text);
        assert_eq!(judgement.verdict.name(), expected, "{text:?} against {gold}");
    }
}

#[test]
fn with_a_rule_of_answers_a_letter_must_be_announced() {
    let announced = Extracting::new(&CHOICE, Extraction::Announced);
    let verdict = |text: &str| Gold::new(&announced, "B").unwrap().judge(text).verdict.name();
    assert_eq!(verdict("not A, therefore B"), "unparsable");
    assert_eq!(verdict("The answer is B"), "correct");
    assert_eq!(verdict("The answer is not A, therefore the answer is B"), "correct");
}

#[test]
fn a_gold_answer_is_a_letter() {
    assert!(check_gold(&CHOICE, "B").is_ok());
    assert!(check_gold(&CHOICE, "").is_err());
    assert!(check_gold(&CHOICE, "42").is_err());
}
