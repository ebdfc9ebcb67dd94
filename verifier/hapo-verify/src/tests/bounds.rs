//! Texts that are large, deep or hostile: a verdict comes out, soon, and it is the sane one.

use crate::work::counted;
use crate::{BENCHMARK, GRADERS, MATH, OAT, grade};

/// Most steps of one judgement: far below a tenth of a second of any core. Scans of its texts are beside that.
const MOST: u64 = 700_000;

/// Most steps for each byte of a completion.
const MOST_PER_BYTE: u64 = 40;

/// The verdict's name under Math-Verify's policy; no grader takes more steps than a judgement may.
fn check(gold: &str, completion: &str, verdict: &str) {
    let most = MOST + MOST_PER_BYTE * (gold.len() + completion.len()) as u64;
    for grader in GRADERS {
        let (steps, judgement) = counted(|| grade(*grader, gold, completion));
        let shown: String = completion.chars().take(80).collect();
        assert!(steps < most, "{} took {steps} steps on {shown}", grader.name());
        if grader.name() == "math" {
            assert_eq!(
                judgement.verdict.name(),
                verdict,
                "{gold} against {shown}: {}",
                judgement.reason
            );
        }
    }
}

#[test]
fn huge_values_are_not_computed() {
    for answer in [
        "7^{7^{7^{7}}}",
        "3^{3^{3^{3^{3}}}}",
        "88888888!",
        "((8!)!)!",
        "(((8!)!)!)!",
        "\\Gamma(10^{12})",
        "\\binom{10^{9}}{10^{8}}",
        "\\sum_{k=1}^{10^{12}} k",
        "\\prod_{k=1}^{10^{9}} k",
        "\\lfloor 10^{10^{10}} \\rfloor",
        "\\gcd(10^{10000}, 10^{10000}+1)",
    ] {
        check("4", &format!("\\boxed{{{answer}}}"), "wrong");
    }
    check("4", "\\boxed{7**7**7**7}", "unparsable");
    check("4", "\\boxed{10**12!}", "unparsable");
}

#[test]
fn powers_with_huge_exponents_are_still_compared() {
    check("1", "\\boxed{1^{10^{40}}}", "correct");
    check("e", "\\boxed{(1+10^{-12})^{10^{12}}}", "wrong");
    check("(1+x)^{5000}", "\\boxed{(x+1)^{5000}}", "correct");
    check("(a+b+c+d)^{80}", "\\boxed{(a+b+c-d)^{80}}", "wrong");
    check("1", "\\boxed{i^{10^{12}}}", "correct");
}

#[test]
fn nesting_is_read_or_refused() {
    let nested = |open: &str, inner: &str, close: &str, n: usize| {
        format!("\\boxed{{{}{inner}{}}}", open.repeat(n), close.repeat(n))
    };
    check("3", &nested("(", "3", ")", 60), "correct");
    check("3", &nested("(", "3", ")", 3_000), "correct");
    check("3", &nested("{", "3", "}", 3_000), "correct");
    check("1", &nested("1^{", "1", "}", 4_000), "correct");
    check("1", &format!("\\boxed{{1{}}}", "!".repeat(3_000)), "correct");
    check("3", &nested("\\frac{1}{", "3", "}", 2_000), "unparsable");
    check("3", &nested("\\sqrt{", "3", "}", 2_000), "unparsable");
    check("3", &nested("\\sin ", "3", "", 4_000), "unparsable");
    check("x", &nested("x_{", "x", "}", 2_000), "wrong");
    check("3", &nested("-", "3", "", 3_000), "correct");
    check("3", &nested("|", "3", "|", 1_000), "unparsable");
    check("3", &nested("\\text{", "3", "}", 500), "unparsable");
    check("3", &nested("\\left(", "3", "\\right)", 400), "correct");
}

/// Products of matrices: a factor that is read twice at each level, or a cell that doubles with each factor, has no end.
#[test]
fn products_of_matrices_end() {
    let small = "\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}";
    let gold = "\\begin{pmatrix}5&6\\\\7&8\\end{pmatrix}";
    let nested =
        format!("\\boxed{{{}{small}{}}}", format!("2({small}+").repeat(40), ")".repeat(40));
    check(gold, &nested, "wrong");
    check(gold, &format!("\\boxed{{{}}}", small.repeat(60)), "wrong");
}

#[test]
fn long_texts_are_scanned_once() {
    let box_3 = "\\boxed{3}";
    let cases = [
        (" ".repeat(1_000_000) + box_3, "correct"),
        ("\n".repeat(500_000) + box_3 + &"\n".repeat(500_000), "correct"),
        ("the quick brown fox ".repeat(50_000) + box_3, "correct"),
        ("\\".repeat(500_000) + box_3, "correct"),
        ("\\[".repeat(100_000) + box_3, "correct"),
        ("$".repeat(200_000) + box_3, "correct"),
        ("\\boxed".repeat(100_000), "unparsable"),
        ("\\boxed{".repeat(100_000), "unparsable"),
        ("\\boxed{3}".repeat(50_000), "correct"),
        ("answer ".repeat(100_000), "unparsable"),
        ("answer is: final answer ".repeat(30_000), "unparsable"),
        ("final answer is $".repeat(30_000), "wrong"),
        ("answer: = ".repeat(60_000), "unparsable"),
        ("3 000 ".repeat(100_000), "wrong"),
        ("9".repeat(1_000_000), "unparsable"),
        ("1 + ".repeat(200_000), "unparsable"),
        ("( 1 ".repeat(200_000), "unparsable"),
        ("**1".repeat(200_000), "unparsable"),
        (" [".repeat(300_000), "unparsable"),
        ("$\\boxed{3}".repeat(40_000), "correct"),
        (format!("\\boxed{{{}}}", "a".repeat(1_000_000)), "unparsable"),
        (format!("\\boxed{{{}}}", "\\frac{1}{2}+".repeat(2_000)), "wrong"),
        (format!("\\boxed{{{}}}", "x+".repeat(10_000) + "1"), "wrong"),
        (format!("\\boxed{{{}}}", "1,".repeat(10_000) + "1"), "wrong"),
        (format!("\\boxed{{{}}}", "\\frac".repeat(5_000)), "unparsable"),
        (format!("\\boxed{{{}}}", "\\sqrt".repeat(5_000)), "unparsable"),
        (format!("\\boxed{{{}}}", "} {".repeat(5_000)), "unparsable"),
        (format!("\\boxed{{{}}}", " ".repeat(30_000)), "unparsable"),
        (format!("\\boxed{{{}}}", "and ".repeat(8_000)), "unparsable"),
        (format!("\\boxed{{{}}}", "3\\frac{1}{2}".repeat(2_300)), "wrong"),
        (format!("\\boxed{{{}}}", "3\\frac{1}{2}+".repeat(2_100) + "1"), "wrong"),
        (format!("\\boxed{{3 {}}}", "per ".repeat(3_000)), "wrong"),
        (format!("\\boxed{{3{}}}", "per".repeat(3_000)), "wrong"),
        (format!("\\boxed{{3 {}}}", "\\text{per}".repeat(800)), "correct"),
        (format!("\\boxed{{3 {}}}", "km/h".repeat(2_000)), "unparsable"),
        (format!("<answer>{}3</answer>", "1+1, so ".repeat(100_000)), "wrong"),
        (format!("<answer>{}3</answer>", "1+1, 2, which is ".repeat(50_000)), "wrong"),
    ];
    let mut failures = Vec::new();
    for (completion, verdict) in cases {
        let judgement = grade(&MATH, "3", &completion);
        check("3", &completion, judgement.verdict.name());
        if judgement.verdict.name() != verdict {
            let shown: String = completion.chars().take(60).collect();
            failures.push(format!("{shown}: {verdict} expected, {}", judgement.verdict.name()));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
    // What is reported of an answer is bounded too.
    let judgement = grade(&MATH, "3", &format!("\\boxed{{{}}}", "b".repeat(1_000_000)));
    assert!(judgement.extracted.unwrap().len() < 5_000 && judgement.answer_read.len() < 5_000);
}

#[test]
fn hostile_texts_are_data() {
    for answer in [
        "__import__('os').system('true')",
        "open('/etc/passwd').read()",
        "[x for x in ().__class__.__base__.__subclasses__()]",
        "'a'*10**9",
        "\\input{/etc/passwd}",
        "\\def\\x{\\x\\x}\\x",
        "\u{202e}3\u{202c}",
        "\u{0}",
        "\\",
        "\\frac",
        "\\frac{}{}",
        "\\sqrt[]{}",
        "=",
        "==",
        "<",
        ",",
        ";",
        "^",
        "_",
        "&",
        "\\begin{pmatrix}",
        "\\end{pmatrix}",
        "\\left",
        "|",
        "||",
        "!",
        "'",
        "1e",
        "1e999999999999",
        "1E-999999999999",
        ".",
        "\\int",
        "\\sum_{k}^{3} k",
        "\\lim_{x \\to}",
    ] {
        let judgement = grade(&MATH, "4", &format!("\\boxed{{{answer}}}"));
        assert!(!judgement.verdict.is_correct(), "{answer}: {judgement:?}");
        let _ = grade(&OAT, "4", &format!("\\boxed{{{answer}}}"));
        let _ = grade(&MATH, answer, &format!("\\boxed{{{answer}}}"));
    }
}

#[test]
fn reading_is_linear_in_the_text() {
    let steps = |n: usize| {
        let text =
            "Some words with 12 numbers, $x = 3$ formulas and answers. ".repeat(n) + "\\boxed{3}";
        let (steps, judgement) = counted(|| grade(&MATH, "3", &text));
        assert!(judgement.verdict.is_correct());
        steps
    };
    let (short, long) = (steps(1_000), steps(16_000));
    assert!(short > 0 && long < short * 17, "{short} for 57 KB, {long} for 912 KB");
}

#[test]
fn costly_comparisons_stop_at_their_budget() {
    let list =
        |item: &dyn Fn(usize) -> String, n: usize| (0..n).map(item).collect::<Vec<_>>().join(", ");
    let factorials = list(&|k| format!("\\frac{{1}}{{{}!}}", 2_000 + k), 60);
    let shifted = list(&|k| format!("\\frac{{1}}{{{}!}}", 2_001 + k), 60);
    let sines = list(&|k| format!("\\sin({k}) + \\sqrt{{{}}}", k + 2), 300);
    let cosines = list(&|k| format!("\\cos({k}) + \\sqrt{{{}}}", k + 2), 300);
    let sum = list(&|k| format!("\\frac{{1}}{{{}^{{40}}}}", 1_000 + 7 * k), 500).replace(", ", "+");
    let union = (0..60)
        .map(|k| format!("({k}, {k}+\\frac{{1}}{{3000!}})"))
        .collect::<Vec<_>>()
        .join(" \\cup ");
    for (gold, answer) in [
        (&factorials, &shifted),
        (&sines, &cosines),
        (&sum, &format!("{sum}+1")),
        (&union, &union.replace("3000", "3001")),
        (&"5".to_owned(), &"\\binom{5000}{2500}".repeat(30)),
        (&"5".to_owned(), &"\\sin ".repeat(90).replace(' ', "(").replace('(', " ")),
        (&"5".to_owned(), &format!("x^{{{}}}", "3000!+".repeat(200) + "1")),
    ] {
        let (steps, judgement) = counted(|| grade(&MATH, gold, &format!("\\boxed{{{answer}}}")));
        assert!(!judgement.verdict.is_correct());
        assert!(steps < 2 * MOST, "{steps} steps for {answer:.60}");
    }
}

#[test]
fn integrals_end_within_a_budget_of_operations() {
    let parts = [
        "\\int_0^1 \\sqrt{x}\\,dx",
        "\\int_{-\\infty}^{\\infty} e^{-x^2}\\,dx",
        "\\int_0^1 \\int_0^1 \\sin(xy)\\,dx\\,dy",
    ];
    for part in parts {
        for n in [1, 8, 60] {
            let sum = vec![part; n].join("+");
            let list = vec![part; n].join(",");
            for completion in [format!("\\boxed{{{sum}}}"), format!("\\boxed{{{list}}}")] {
                let (steps, _) = counted(|| grade(&BENCHMARK, "1", &completion));
                assert!(steps < MOST, "{steps} steps on {n} times {part}");
                let (steps, _) = counted(|| grade(&BENCHMARK, &list, &completion));
                assert!(steps < MOST, "{steps} steps on {n} times {part} against itself");
            }
        }
    }
}
