//! A grader of another crate works wherever a built-in one does.

use hapo_verify::{
    Gold, GoldError, Grader, Judgement, PreparedGold, Reason, Verdict, check_gold, grade,
    grade_batch, grader,
};

/// The completion's last word is a number within a tolerance of the gold answer.
#[derive(Debug)]
struct Within {
    tolerance: f64,
}

impl Grader for Within {
    fn name(&self) -> &'static str {
        "within"
    }

    fn summary(&self) -> &'static str {
        "the last word is a number near the gold answer"
    }

    fn prepare(&self, gold: &str) -> Result<Box<dyn PreparedGold>, GoldError> {
        let centre =
            gold.parse().map_err(|_| GoldError::unreadable(gold, self.name(), "a number"))?;
        Ok(Box::new(Interval { centre, tolerance: self.tolerance }))
    }
}

#[derive(Debug)]
struct Interval {
    centre: f64,
    tolerance: f64,
}

impl PreparedGold for Interval {
    fn judge(&self, completion: &str) -> Judgement {
        let gold_read = format!("{} ± {}", self.centre, self.tolerance);
        let Some(answer) = completion.split_whitespace().next_back() else {
            return Judgement::unparsable(Reason::NoAnswer, gold_read);
        };
        match answer.parse::<f64>() {
            Ok(it) if (it - self.centre).abs() <= self.tolerance => {
                Judgement::new(Verdict::Correct, answer, gold_read, "near enough")
            }
            Ok(_) => Judgement::new(Verdict::Wrong, answer, gold_read, "too far"),
            Err(_) => Judgement::unparsable(Reason::Unreadable, gold_read),
        }
    }
}

const WITHIN: Within = Within { tolerance: 0.5 };

#[test]
fn its_verdicts_are_those_of_grade_and_of_a_batch() {
    let pairs =
        [("10", "about 10.4"), ("10", "about 11"), ("10", ""), ("ten", "10"), ("10", "ten")];
    let batch = grade_batch(&WITHIN, &pairs);
    let verdicts: Vec<Verdict> = batch.iter().map(|it| it.verdict).collect();
    assert_eq!(
        verdicts,
        [
            Verdict::Correct,
            Verdict::Wrong,
            Verdict::Unparsable(Reason::NoAnswer),
            Verdict::Unparsable(Reason::Gold),
            Verdict::Unparsable(Reason::Unreadable),
        ]
    );
    for ((gold, completion), judgement) in pairs.iter().zip(&batch) {
        assert_eq!(&grade(&WITHIN, gold, completion), judgement);
    }
    assert_eq!(batch[0].gold_read, "10 ± 0.5");
    assert_eq!(batch[3].reason, "unreadable gold answer `ten`, grader within expected a number");
    assert!(check_gold(&WITHIN, "ten").is_err());
}

#[test]
fn several_gold_answers_count_as_for_a_built_in_grader() {
    let gold = Gold::any(&WITHIN, ["ten", "10", "20"]).unwrap();
    assert_eq!(gold.judge("19.8").verdict, Verdict::Correct);
    // Where none matches, the first readable one is reported.
    let wrong = gold.judge("15");
    assert_eq!((wrong.verdict, wrong.gold_read.as_str()), (Verdict::Wrong, "10 ± 0.5"));
    let error = Gold::any(&WITHIN, ["ten", "twenty"]).unwrap_err();
    assert_eq!(error.to_string(), "unreadable gold answer `ten`, grader within expected a number");
}

#[test]
fn it_stands_beside_the_built_in_ones() {
    let all: [&dyn Grader; 2] = [&WITHIN, grader("math").unwrap()];
    let verdicts = all.map(|it| grade(it, "10", "It is 10.2").verdict);
    assert_eq!(verdicts, [Verdict::Correct, Verdict::Wrong]);
    assert_eq!(all.map(Grader::counterpart), [None, Some("oat")]);
}

#[test]
fn an_unknown_name_lists_the_graders() {
    let error = grader("Math-Verify").unwrap_err();
    assert_eq!(
        error.to_string(),
        "unknown grader `Math-Verify`, expected one of math, benchmark, training, oat, exact, choice, format"
    );
}
