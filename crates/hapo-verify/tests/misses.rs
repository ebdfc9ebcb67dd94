//! Answers that mean the gold answer and are not what Math-Verify reads, and answers that deny it.

use hapo_verify::{Extracting, Extraction, Gold, MATH, grade};

#[test]
fn spellings_that_mean_the_gold_answer() {
    for (gold, answer) in [
        ("5", "5."),
        ("5.", "5"),
        ("2.5", "2.5."),
        ("i", r"\sqrt{-1}"),
        ("3i", r"\sqrt{-9}"),
        ("1", r"100\%"),
        (r"100\%", "1"),
        ("1", r"(-1)^{10^{100}}"),
        ("-1", r"(-1)^{10^{100}+1}"),
        ("50005000", r"\sum_{k=1}^{10000} k"),
        ("9007199254740993", "9007199254740993.0"),
        ("120", r"\binom{10}{3}"),
        ("2x+2y=2", "x+y=1"),
        ("1;2", "1,2"),
        (r"\frac{1}{2}", r"\sqrt{0.25}"),
        (r"|z|=1", "1=|z|"),
        (r"\frac{\sqrt{6}+\sqrt{2}}{2}", r"\sqrt{2+\sqrt{3}}"),
    ] {
        let judgement = grade(&MATH, gold, &format!("\\boxed{{{answer}}}"));
        assert!(judgement.verdict.is_correct(), "{answer} against {gold}: {judgement:?}");
    }
}

#[test]
fn groups_of_three_digits_are_one_number_where_an_answer_was_looked_for() {
    let correct = |extraction, gold: &str, answer: &str| {
        let gold = Gold::new(&Extracting::new(&MATH, extraction), gold).unwrap();
        gold.judge(&format!("\\boxed{{{answer}}}")).verdict.is_correct()
    };
    for rule in [Extraction::Boxed, Extraction::Announced] {
        for (gold, answer) in
            [("1000000", r"1\,000\,000"), ("1000000", "1 000 000"), ("1234.5", r"1\,234.5")]
        {
            assert!(correct(rule, gold, answer), "{answer}");
            assert!(!correct(Extraction::Any, gold, answer), "{answer}: Math-Verify's reading");
        }
        assert!(!correct(rule, "1000000", "1 000 00"));
    }
}

#[test]
fn what_is_not_the_gold_answer() {
    for (gold, answer) in [
        ("5", r"\neq 5"),
        ("5", r"\ne 5"),
        ("5", r"\neg 5"),
        ("9007199254740992", "9007199254740993.0"),
        ("9007199254740993", "9007199254740992"),
        ("1", "100"),
        ("i", "-1"),
        ("i", r"\sqrt{-4}"),
        ("1", r"(-1)^{10^{100}+1}"),
    ] {
        let judgement = grade(&MATH, gold, &format!("\\boxed{{{answer}}}"));
        assert!(!judgement.verdict.is_correct(), "{answer} against {gold}: {judgement:?}");
    }
}

#[test]
fn a_capital_letter_is_compared_with_case_where_an_answer_was_looked_for() {
    let correct = |extraction, gold: &str, answer: &str| {
        let gold = Gold::new(&Extracting::new(&MATH, extraction), gold).unwrap();
        gold.judge(&format!("\\boxed{{{answer}}}")).verdict.is_correct()
    };
    for rule in [Extraction::Boxed, Extraction::Announced] {
        assert!(correct(rule, "C", "C"));
        assert!(correct(rule, "C", r"\text{C}"));
        assert!(!correct(rule, "C", "c"));
        assert!(correct(rule, "x", "X"));
    }
    assert!(correct(Extraction::Any, "C", "c"));
}
