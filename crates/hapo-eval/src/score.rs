//! What a benchmark's answers amount to.

use serde::Serialize;

use crate::evaluate::{Answer, Answers, Mark, average};
use crate::statistics::{Estimate, estimate, majority, pass_at_k};

/// Scores of one benchmark; shares are from 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Score {
    /// The benchmark.
    pub benchmark: String,
    /// Its problems.
    pub problems: usize,
    /// k: completions of each problem (the fewest, should they differ).
    pub k: usize,
    /// avg@k with its 95 % interval over problems.
    pub average: Estimate,
    /// Unbiased pass@j for j = 1, 2, 4, … up to k, and k.
    pub pass_at: Vec<(usize, f64)>,
    /// maj@k.
    pub majority: Estimate,
    /// Share of completions that did not end by themselves.
    pub truncated: f64,
    /// Share of completions without a readable answer.
    pub no_answer: f64,
    /// Mean length in tokens, where it was counted.
    pub length: Option<f64>,
    /// The other grader's view, where one was asked.
    pub other: Option<Other>,
}

/// The other grader's view.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Other {
    /// avg@k by it.
    pub average: f64,
    /// Completions that only the first grader calls correct.
    pub only_first: usize,
    /// Completions that only the other one calls correct.
    pub only_other: usize,
}

/// Scores of a benchmark; `None` without problems or completions.
pub fn score(benchmark: &str, answers: &[Answers], seed: u64) -> Option<Score> {
    let k = answers.iter().map(|it| it.completions.len()).min()?;
    let all = || answers.iter().flat_map(|it| &it.completions);
    let n = all().count();
    if k == 0 {
        return None;
    }
    let share = |is: fn(&Answer) -> bool| all().filter(|it| is(it)).count() as f64 / n as f64;
    let mut ks: Vec<usize> = (0..usize::BITS)
        .map(|it| 1 << it)
        .take_while(|it| *it < k)
        .collect();
    ks.push(k);
    let pass = |j: usize| {
        let each = answers
            .iter()
            .filter_map(|it| pass_at_k(it.completions.len(), it.correct(), j));
        each.sum::<f64>() / answers.len() as f64
    };
    let won: Vec<f64> = answers
        .iter()
        .map(|it| {
            let votes: Vec<Option<usize>> = it.completions.iter().map(|it| it.vote).collect();
            let correct = it.completions.iter().find(|it| it.verdict == Mark::Correct);
            majority(&votes, correct.and_then(|it| it.vote))
        })
        .collect();
    let (mut counted, mut tokens) = (0, 0);
    for it in all().filter_map(|it| it.tokens) {
        counted += 1;
        tokens += it;
    }
    let other = all().all(|it| it.other.is_some()).then(|| {
        let only = |first: bool| {
            all()
                .filter(|it| {
                    let (a, b) = (it.verdict == Mark::Correct, it.other == Some(Mark::Correct));
                    a != b && a == first
                })
                .count()
        };
        Other {
            average: answers
                .iter()
                .map(|it| {
                    let good = it.completions.iter();
                    let good = good.filter(|it| it.other == Some(Mark::Correct)).count();
                    good as f64 / it.completions.len() as f64
                })
                .sum::<f64>()
                / answers.len() as f64,
            only_first: only(true),
            only_other: only(false),
        }
    });
    Some(Score {
        benchmark: benchmark.to_owned(),
        problems: answers.len(),
        k,
        average: average(answers, seed)?,
        pass_at: ks.into_iter().map(|it| (it, pass(it))).collect(),
        majority: estimate(&won, seed)?,
        truncated: share(|it| !it.ended),
        no_answer: share(|it| it.verdict == Mark::Unparsable),
        length: (counted > 0).then(|| tokens as f64 / f64::from(counted)),
        other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(verdicts: &[(Mark, Option<usize>, Mark)]) -> Answers {
        let completion = |it: &(Mark, Option<usize>, Mark)| Answer {
            text: String::new(),
            verdict: it.0,
            other: Some(it.2),
            answer: None,
            vote: it.1,
            tokens: Some(10),
            ended: it.0 != Mark::Unparsable,
        };
        Answers {
            id: "a".into(),
            gold: "1".into(),
            completions: verdicts.iter().map(completion).collect(),
        }
    }

    #[test]
    fn scores_are_counted_by_hand() {
        use Mark::{Correct as C, Unparsable as U, Wrong as W};
        let first = [
            (C, Some(0), C),
            (C, Some(0), W),
            (W, Some(2), W),
            (W, Some(2), W),
        ];
        let second = [
            (W, Some(0), C),
            (W, Some(0), W),
            (U, None, U),
            (C, Some(3), C),
        ];
        let it = score("b", &[answers(&first), answers(&second)], 0).unwrap();
        assert_eq!((it.problems, it.k), (2, 4));
        assert_eq!(it.average.mean, 0.375);
        // 1 − C(2,2)/C(4,2) = 5/6 and 1 − C(3,2)/C(4,2) = 1/2.
        let near = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(near(it.pass_at[1].1, 2.0 / 3.0), "{:?}", it.pass_at);
        assert_eq!((it.pass_at[0], it.pass_at[2]), ((1, 0.375), (4, 1.0)));
        // A tie of the right with a wrong answer counts half; in the second problem the wrong one wins.
        assert_eq!(it.majority.mean, 0.25);
        assert_eq!(
            (it.truncated, it.no_answer, it.length),
            (0.125, 0.125, Some(10.0))
        );
        let other = it.other.unwrap();
        assert_eq!(
            (other.average, other.only_first, other.only_other),
            (0.375, 1, 1)
        );
        assert_eq!(score("b", &[], 0), None);
    }
}
