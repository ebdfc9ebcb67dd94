//! Laws of the comparison, on generated answers: reflexive, symmetric and transitive where the rules promise it.

use hapo_verify::{
    BENCHMARK, EXACT, Extracting, Extraction, GRADERS, Gold, GoldError, MATH, TRAINING, Verdict,
    grade, grade_batch,
};
use proptest::prelude::*;

fn is_correct(gold: &str, answer: &str) -> bool {
    grade(&MATH, gold, &format!("\\boxed{{{answer}}}")).verdict.is_correct()
}

/// A rational number and one of its spellings.
fn spelled_rational() -> impl Strategy<Value = (i64, i64, String)> {
    (-400_i64..400, 1_i64..40, 0_u8..5, 1_i64..6).prop_map(|(n, d, form, k)| {
        let text = match form {
            0 => format!("\\frac{{{n}}}{{{d}}}"),
            1 => format!("\\dfrac{{{}}}{{{}}}", n * k, d * k),
            2 => format!("{n}/{d}"),
            3 if n < 0 => format!("-\\frac{{{}}}{{{d}}}", -n),
            3 => format!("{{{n} \\over {d}}}"),
            _ => format!("\\left(\\frac{{{n}}}{{{d}}}\\right)"),
        };
        (n, d, text)
    })
}

/// A formula in x and y, depth at most four.
fn formula() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        (1_i64..30).prop_map(|n| n.to_string()),
        Just("x".to_owned()),
        Just("y".to_owned()),
        Just("\\pi".to_owned()),
        Just("\\sqrt{2}".to_owned()),
    ];
    leaf.prop_recursive(4, 24, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a}+{b}")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a}-\\left({b}\\right)")),
            (inner.clone(), inner.clone())
                .prop_map(|(a, b)| format!("\\left({a}\\right) \\cdot \\left({b}\\right)")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("\\frac{{{a}}}{{{b}+1}}")),
            (inner.clone(), 2_u32..5).prop_map(|(a, n)| format!("\\left({a}\\right)^{{{n}}}")),
            inner.clone().prop_map(|a| format!("\\sin\\left({a}\\right)")),
            inner.prop_map(|a| format!("e^{{{a}}}")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rationals_are_equal_when_their_values_are((a, b, s) in spelled_rational(), (c, d, t) in spelled_rational()) {
        prop_assert_eq!(is_correct(&s, &t), a * d == c * b, "{} against {}", s, t);
        prop_assert_eq!(is_correct(&t, &s), a * d == c * b, "{} against {}", t, s);
    }

    #[test]
    fn every_formula_equals_itself(f in formula()) {
        prop_assert!(is_correct(&f, &f), "{}", f);
    }

    #[test]
    fn formulas_are_compared_symmetrically(f in formula(), g in formula()) {
        prop_assert_eq!(is_correct(&f, &g), is_correct(&g, &f), "{} and {}", f, g);
    }

    #[test]
    fn rewriting_a_formula_keeps_its_meaning(f in formula(), g in formula(), h in formula()) {
        let (a, b) = (format!("\\left({f}\\right) \\cdot \\left({g}+{h}\\right)"),
            format!("\\left({h}\\right) \\cdot \\left({f}\\right)+\\left({g}\\right) \\cdot \\left({f}\\right)"));
        let c = format!("{b}+0");
        if is_correct(&a, &b) && is_correct(&b, &c) {
            prop_assert!(is_correct(&a, &c), "{}", a);
        }
        // Twice as much and a little more is another value.
        prop_assert!(!is_correct(&a, &format!("2 \\cdot \\left({b}\\right)+\\frac{{1}}{{7919}}")), "{}", a);
    }

    #[test]
    fn lists_are_unordered_and_complete(mut items in proptest::collection::btree_set(-99_i64..99, 2..7)) {
        let list: Vec<i64> = items.iter().copied().collect();
        let text = |v: &[i64]| v.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let mut reversed = list.clone();
        reversed.reverse();
        prop_assert!(is_correct(&text(&list), &text(&reversed)));
        prop_assert!(!is_correct(&text(&list), &text(&list[1..])));
        prop_assert!(!is_correct(&text(&list[1..]), &text(&list)));
        items.insert(100);
        let more: Vec<i64> = items.iter().copied().collect();
        prop_assert!(!is_correct(&text(&list), &text(&more)));
    }

    #[test]
    fn any_text_has_a_verdict(text in any::<String>(), gold in any::<String>()) {
        let _ = grade(&MATH, &gold, &text);
        let boxed = format!("\\boxed{{{text}}}");
        let _ = grade(&MATH, &gold, &boxed);
        let judgement = grade(&EXACT, &gold, &text);
        prop_assert_eq!(judgement.verdict == Verdict::Correct, !gold.trim().is_empty() && {
            judgement.extracted.as_deref() == Some(gold.trim())
        });
    }

    #[test]
    fn latex_like_texts_have_verdicts(parts in proptest::collection::vec(prop_oneof![
        Just("\\frac"), Just("{"), Just("}"), Just("\\sqrt"), Just("["), Just("]"), Just("("), Just(")"), Just("1"),
        Just("2"), Just("x"), Just("^"), Just("_"), Just("+"), Just("-"), Just(","), Just(";"), Just("="), Just("<"),
        Just("|"), Just("!"), Just("\\pm"), Just("\\cup"), Just("\\in"), Just("\\infty"), Just("\\text{a}"),
        Just("\\left("), Just("\\right)"), Just("\\begin{pmatrix}"), Just("\\end{pmatrix}"), Just("&"), Just("\\\\"),
        Just(" "), Just("e"), Just("d"), Just("\\sin"), Just("\\log"), Just("\\int"), Just("\\sum"), Just("0.5"),
        Just("%"), Just("$"), Just("and"), Just("\\boxed{"), Just("i"), Just("\\%"), Just(":"), Just("/"), Just("\\{"),
        Just("\\}"),
    ], 0..24)) {
        let text = parts.concat();
        let judgement = grade(&MATH, &text, &format!("\\boxed{{{text}}}"));
        let batch = grade_batch(&MATH, &[(&text, &format!("\\boxed{{{text}}}"))]);
        prop_assert_eq!(&batch[0], &judgement);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn how_an_answer_is_dressed_changes_no_verdict(f in formula()) {
        let dressed = [
            format!("\\boxed{{{f}}}."),
            format!("$\\boxed{{ {f} }}$"),
            format!("\\boxed{{\\displaystyle {f}}}"),
            format!("\\boxed{{\\left({f}\\right)}}"),
            format!("\\boxed{{{}}}", f.replace("\\frac", "\\dfrac")),
            format!("\\boxed{{{}}}", f.replace("\\left(", "(").replace("\\right)", ")")),
            format!("\\boxed{{\\boxed{{{f}}}}}"),
        ];
        for grader in [&TRAINING, &BENCHMARK, &MATH] {
            for text in &dressed {
                let judgement = grade(grader, &f, text);
                prop_assert!(judgement.verdict.is_correct(), "{} against {}: {:?}", text, f, judgement);
            }
        }
    }

    #[test]
    fn another_order_and_a_product_multiplied_out_are_the_same_formula(f in formula(), g in formula(), n in 2_i64..9) {
        let sum = format!("\\left({f}\\right)+\\left({g}\\right)");
        let turned = format!("\\left({g}\\right)+\\left({f}\\right)");
        let product = format!("{n} \\cdot \\left({f}+{g}\\right)");
        let multiplied = format!("{n} \\cdot \\left({g}\\right)+{n} \\cdot \\left({f}\\right)");
        let one_way = |grader: &dyn hapo_verify::Grader, a: &str, b: &str| {
            grade(grader, a, &format!("\\boxed{{{b}}}")).verdict.is_correct()
        };
        for grader in [&TRAINING, &BENCHMARK, &MATH] {
            // What is beyond the bounds is not decided, in either direction.
            if one_way(grader, &product, &multiplied) {
                prop_assert!(one_way(grader, &multiplied, &product));
                prop_assert!(one_way(grader, &sum, &turned), "{} and {}", sum, turned);
            }
        }
    }

    #[test]
    fn one_more_is_always_wrong((n, d, text) in spelled_rational()) {
        let more = format!("\\boxed{{\\frac{{{}}}{{{d}}}}}", n + d);
        let sum = format!("\\boxed{{{text}+1}}");
        for grader in [&TRAINING, &BENCHMARK, &MATH] {
            prop_assert!(!grade(grader, &text, &more).verdict.is_correct(), "{} against {}", more, text);
            prop_assert!(!grade(grader, &text, &sum).verdict.is_correct(), "{} against {}", sum, text);
        }
    }

    #[test]
    fn any_text_has_a_verdict_under_every_policy(text in any::<String>(), gold in any::<String>()) {
        for grader in [&TRAINING, &BENCHMARK] {
            let _ = grade(grader, &gold, &text);
            let _ = grade(grader, &gold, &format!("\\boxed{{{text}}}"));
            let _ = grade(grader, &gold, &format!("the answer is {text}"));
        }
    }

    #[test]
    fn notation_in_pieces_has_a_verdict_under_every_policy(parts in proptest::collection::vec(prop_oneof![
        Just("0."), Just("7"), Just("12"), Just("_"), Just("{"), Just("}"), Just("\\overline"), Just("\\dot"), Just("("),
        Just(")"), Just(" "), Just("\\text{"), Just("cm"), Just("million"), Just("^2"), Just("°"), Just("½"), Just("²"),
        Just("\\textcolor{red}"), Just("\\phantom{8}"), Just("\\pmod"), Just("e5"), Just("/"), Just("–"), Just("'"),
        Just("or"), Just("\\boxed{"), Just("\\"), Just("\\\\["), Just("2pt]"), Just("sin"), Just("x"), Just("="), Just("~"),
        Just("\\mod"), Just("$"), Just("é"), Just("\u{202e}"), Just("Answer:"),
    ], 0..16)) {
        let text = parts.concat();
        for grader in [&TRAINING, &BENCHMARK, &MATH] {
            let _ = grade(grader, &text, &format!("\\boxed{{{text}}}"));
            let _ = grade(grader, "7", &text);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn boxes_in_pieces_have_a_verdict_from_every_grader(parts in proptest::collection::vec(prop_oneof![
        4 => Just("\\boxed"), 1 => Just("\\fbox"), 3 => Just("{"), 3 => Just("}"), 2 => Just("7"), 2 => Just("12"),
        2 => Just("$"), 2 => Just(" "), 2 => Just("\u{a0}"), 1 => Just("é"), 1 => Just("字"), 1 => Just("𝟒"),
        1 => Just("√"), 1 => Just("-"), 1 => Just("."), 1 => Just("!"), 1 => Just("_"), 1 => Just("^"), 1 => Just("B"),
        1 => Just("cm"), 1 => Just("\n"), 1 => Just("\\["), 1 => Just("\\]"), 1 => Just("; "), 1 => Just("\\ldots"),
        1 => Just("\\text{"), 1 => Just("answer: "), 1 => Just("<answer>"), 1 => Just("</answer>"),
        1 => Just("\n#### "), 1 => Just("…"),
    ], 0..14)) {
        let text = parts.concat();
        let most = text.chars().count() / 2;
        let gold: String = text.chars().take(most).collect();
        for grader in GRADERS {
            for (_, extraction) in Extraction::ALL {
                let extracting = Extracting::new(*grader, *extraction);
                for gold in ["12", "B", "-\\pi\\text{ radians}", &gold] {
                    let _ = grade(&extracting, gold, &text);
                }
            }
        }
    }
}

#[test]
fn of_several_gold_answers_any_counts_and_unreadable_ones_are_skipped() {
    let gold_answers = ["", "12 m", "\\frac{25}{2}"];
    let gold = Gold::any(&MATH, gold_answers).unwrap();
    assert_eq!(gold.judge("\\boxed{12.5}").verdict, Verdict::Correct);
    assert_eq!(gold.judge("\\boxed{12}").verdict, Verdict::Correct);
    let wrong = gold.judge("\\boxed{13}");
    assert_eq!(wrong, Gold::new(&MATH, gold_answers[1]).unwrap().judge("\\boxed{13}"));
    assert!(matches!(Gold::any(&MATH, [""]), Err(GoldError::Empty)));
    assert!(matches!(Gold::any(&MATH, []), Err(GoldError::Empty)));
}

#[test]
fn values_that_grow_beyond_bounds_are_compared_symmetrically() {
    let power = "e^{e^{\\left(x\\right)^{2}}}";
    let product = format!("2 \\cdot \\left(y+1+{power}\\right)");
    let multiplied = format!("2 \\cdot \\left({power}\\right)+2 \\cdot \\left(y+1\\right)");
    for grader in [&TRAINING, &BENCHMARK, &MATH] {
        let is_correct =
            |a: &str, b: &str| grade(grader, a, &format!("\\boxed{{{b}}}")).verdict.is_correct();
        assert_eq!(is_correct(&product, &multiplied), is_correct(&multiplied, &product));
    }
}
