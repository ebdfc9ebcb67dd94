//! Answers that mean the gold answer and are not what Math-Verify reads, and answers that deny it.

use hapo_verify::{Extracting, Extraction, Gold, MATH, grade};
use proptest::prelude::*;

/// The pairs that are not judged so.
fn judged_otherwise(pairs: &[(&str, &str)], correct: bool) -> Vec<String> {
    let judge = |(gold, answer): &(&str, &str)| {
        let judgement = grade(&MATH, gold, &format!("\\boxed{{{answer}}}"));
        (judgement.verdict.is_correct() != correct)
            .then(|| format!("{answer} against {gold}: {}\n", judgement.reason))
    };
    pairs.iter().filter_map(judge).collect()
}

#[test]
fn spellings_that_mean_the_gold_answer() {
    let pairs = [
        ("5", "5."),
        ("5.", "5"),
        ("2.5", "2.5."),
        ("i", r"\sqrt{-1}"),
        ("3i", r"\sqrt{-9}"),
        ("1", r"100\%"),
        (r"100\%", "1"),
        ("1", r"(-1)^{10^{100}}"),
        ("-1", r"(-1)^{10^{100}+1}"),
        ("9007199254740993", "9007199254740993.0"),
        ("120", r"\binom{10}{3}"),
        ("2x+2y=2", "x+y=1"),
        ("1;2", "1,2"),
        (r"\frac{1}{2}", r"\sqrt{0.25}"),
        (r"|z|=1", "1=|z|"),
        (r"\frac{\sqrt{6}+\sqrt{2}}{2}", r"\sqrt{2+\sqrt{3}}"),
        // Factorials side by side are no mixed number.
        (r"\binom{10}{3}", r"\frac{10!}{3!7!}"),
        (r"\frac{10!}{3!7!}", "120"),
        ("30240", "3!7!"),
        ("151200", r"\frac{10!}{3!2!2!}"),
        ("12", r"2\,3!"),
        // The root of a decimal is what it is.
        (r"\sqrt{2}", r"\sqrt{2.0}"),
        (r"\sqrt{2.0}", r"\sqrt{2}"),
        (r"2\sqrt{2}", r"\sqrt{8.0}"),
        (r"\frac{\sqrt{10}}{2}", r"\sqrt{2.5}"),
        (r"\frac{3\pi}{2}", r"1.5\pi"),
        // An equation and its multiple.
        ("x^2+y^2=4", "2x^2+2y^2=8"),
        (r"\frac{x^2}{4}+\frac{y^2}{9}=1", "9x^2+4y^2=36"),
        ("3x+4y-5=0", "-3x-4y+5=0"),
        // A relation as gold answer, and the reals that meet it.
        // Lists of solutions.
        ("1,2", "2; 1"),
        ("1,2", "x=1; x=2"),
        ("x=1,y=2", "x=1; y=2"),
        ("(1,2),(3,4)", "(3;4); (1;2)"),
        (r"\{1,2\}", r"\{1;2\}"),
    ];
    let missed = judged_otherwise(&pairs, true);
    assert!(missed.is_empty(), "{}", missed.concat());
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
    let pairs = [
        ("5", r"\neq 5"),
        ("5", r"\ne 5"),
        ("5", r"\neg 5"),
        ("9007199254740992", "9007199254740993.0"),
        ("9007199254740993", "9007199254740992"),
        ("1", "100"),
        ("i", "-1"),
        ("i", r"\sqrt{-4}"),
        ("1", r"(-1)^{10^{100}+1}"),
        ("50005000", r"\sum_{k=1}^{9999} k"),
        ("10001", r"\prod_{k=1}^{9999} (1+\frac{1}{k})"),
        ("2^{10001}-1", r"\sum_{k=1}^{10000} 2^k"),
        ("10000", r"\sum_{k=1}^{10000} (1+10^{-30})"),
        ("120", r"\frac{10!}{3!6!}"),
        ("120", r"\frac{10!}{3!+7!}"),
        ("5", "3!2"),
        ("6", "3!!"),
        (r"\sqrt{2}", r"\sqrt{2.0000000001}"),
        (r"\frac{\sqrt{2}}{3}", r"0.333333\sqrt{2}"),
        ("x+y=1", "2x+2y=1"),
        ("x^2+y^2=4", "x^2+y^2=-4"),
        ("x+y=0", "0=0"),
        ("x+y=1", "(x+y-1)(x-y)=0"),
        ("|x|>1", r"(1,\infty)"),
        ("|x|<1", "[-1,1]"),
        ("|x-2|<3", "(-1,6)"),
        ("x^2<4", "(-4,4)"),
        ("1,2", "1;3"),
        ("1,2", "1;2;3"),
        ("(1,2),(3,4)", "(1;3); (2;4)"),
    ];
    let accepted = judged_otherwise(&pairs, false);
    assert!(accepted.is_empty(), "{}", accepted.concat());
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

/// True if `answer` is correct where a boxed answer is looked for, and with Math-Verify's own extraction.
fn correct_boxed_and_any(gold: &str, answer: &str) -> (bool, bool) {
    let correct = |extraction| {
        let gold = Gold::new(&Extracting::new(&MATH, extraction), gold).unwrap();
        gold.judge(&format!("\\boxed{{{answer}}}")).verdict.is_correct()
    };
    assert_eq!(correct(Extraction::Boxed), correct(Extraction::Announced), "{answer}");
    (correct(Extraction::Boxed), correct(Extraction::Any))
}

#[test]
fn conditions_are_the_reals_that_meet_them_where_an_answer_was_looked_for() {
    let outside = r"(-\infty,-1)\cup(1,\infty)";
    let pairs = [
        ("(1,3)", "1<x<3"),
        ("(1,3)", "3>x>1"),
        ("1<x<3", "3>x>1"),
        (r"x\in(1,3)", "1<x<3"),
        ("[1,3]", r"1\le x\le 3"),
        (r"(1,\infty)", "x>1"),
        (r"[1,\infty)", r"x\geq 1"),
        ("(1,3)", r"x>1 \text{ and } x<3"),
        ("(1,3)", r"x>1 \land x<3"),
        ("(1,3)", "$x>1$ and $x<3$"),
        (r"x>1 \text{ or } x<-1", outside),
        (outside, r"x>1 \text{ or } x<-1"),
        (outside, "x<-1 or x>1"),
        (outside, "x<-1, x>1"),
        (outside, r"x<-1 \lor x>1"),
        (outside, r"x<-1 \cup x>1"),
        (r"(-\infty,1)\cup(1,\infty)", r"x \neq 1"),
        (r"\mathbb{R}\setminus\{1\}", r"x\neq 1"),
        ("[1,2]", "[1;2]"),
        ("2x+3y<6", "4x+6y<12"),
        ("2x+3y<6", "-2x-3y>-6"),
        ("x^2=4", "2x^2=8"),
    ];
    let missed: Vec<_> = pairs.iter().filter(|it| !correct_boxed_and_any(it.0, it.1).0).collect();
    assert!(missed.is_empty(), "{missed:#?}");
    // Math-Verify takes no relation for an interval, and numbers for an inequality.
    assert_eq!(correct_boxed_and_any("(1,3)", "1<x<3"), (true, false));
    assert_eq!(correct_boxed_and_any(outside, r"x>1 \text{ or } x<-1"), (true, false));
    assert_eq!(correct_boxed_and_any("1<x<3", "1,3"), (false, true));
    assert_eq!(correct_boxed_and_any("1<x<3", "x=1,3"), (false, true));
}

#[test]
fn conditions_that_other_reals_meet() {
    let outside = r"(-\infty,-1)\cup(1,\infty)";
    let pairs = [
        ("(1,3)", r"1\le x<3"),
        ("1<x<3", "(1,4)"),
        ("1<x<3", "x>1"),
        ("(1,3)", "x>1"),
        ("(1,3)", r"x>1 \text{ or } x<3"),
        (outside, "-1<x<1"),
        (outside, r"x>1 \text{ and } x<-1"),
        (outside, r"x\ge 1 \text{ or } x\le -1"),
        ("x<-1", "x>1, x<-1"),
        (r"(1,\infty)", r"x\ge 1"),
        ("x>1", "x<1"),
        ("x>1", "y>1"),
        ("1<x<3", "1<y<3"),
        ("x>1, y>2", "x>1, x>2"),
        ("(1,3)", "$x>1$, $y<3$"),
        ("|x|>1", "x>1"),
        ("|x|>-1", "x>-1"),
        ("|z|=1", "|z|=2"),
        ("|z|<2", "-2<z<2"),
        ("|z|<2", r"|z|\le 2"),
        ("1<|z|<2", "|z|<2"),
        ("z>1", "|z|>1"),
        (r"x\neq 1", "x=1"),
        (r"x\neq 1", "x>1"),
        ("2x+3y<6", "4x+6y>12"),
        ("2x+3y<6", "-2x-3y<-6"),
        // What is still to be solved is no solution.
        ("(-2,2)", "x^2<4"),
        ("x>1", "2x>2"),
        ("x=2", "|x-2|=0"),
        ("-2, 2", "x^2=4"),
    ];
    let accepted: Vec<_> =
        pairs.iter().filter(|it| correct_boxed_and_any(it.0, it.1) != (false, false)).collect();
    assert!(accepted.is_empty(), "{accepted:#?}");
    // The last of two boxes is a part alone.
    let gold = Gold::new(&Extracting::new(&MATH, Extraction::Boxed), "x<-1").unwrap();
    assert!(!gold.judge(r"$\boxed{x>1}$ or $\boxed{x<-1}$").verdict.is_correct());
}

#[test]
fn roots_of_roots_are_read_to_a_depth() {
    // The root of 2 + the root of 2 + … is twice a cosine.
    for depth in [1, 5, 20, 40] {
        let radical = format!(r"{}\sqrt{{2{}", r"\sqrt{2+".repeat(depth - 1), "}".repeat(depth));
        let gold = |power: usize| format!(r"2\cos\frac{{\pi}}{{2^{{{power}}}}}");
        let verdict =
            |gold: &str| grade(&MATH, gold, &format!("\\boxed{{{radical}}}")).verdict.is_correct();
        assert!(verdict(&gold(depth + 1)), "depth {depth}");
        assert!(!verdict(&gold(depth + 2)), "depth {depth}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// An interval, its chain, its chain flipped, and two relations.
    #[test]
    fn an_interval_has_many_spellings(a in -50_i64..50, width in 1_i64..30, open in any::<bool>(), other in 0_i64..3) {
        let b = a + 2 * width;
        let (less, more, left, right) =
            if open { ("<", ">", "(", ")") } else { (r"\le", r"\ge", "[", "]") };
        let gold = format!("{left}{a},{b}{right}");
        let spellings = [
            format!("{a} {less} x {less} {b}"),
            format!("{b} {more} x {more} {a}"),
            format!(r"x {more} {a} \text{{ and }} x {less} {b}"),
            format!("x {less} {b}, x {more} {a}"),
        ];
        for it in &spellings {
            prop_assert!(correct_boxed_and_any(&gold, it).0, "{} against {}", it, gold);
            prop_assert!(correct_boxed_and_any(it, &gold).0, "{} against {}", gold, it);
        }
        let (a, b) = (a + i64::from(other == 1), b + i64::from(other == 2));
        let moved = format!("{a} {less} x {less} {b}");
        prop_assert_eq!(correct_boxed_and_any(&gold, &moved).0, other == 0);
    }
}
