//! Scores of a benchmark.

use hapo_core::Verdict;
use serde::Serialize;

use crate::grading::{GradedCompletion, ProblemResult, average};
use crate::statistics::{Estimate, estimate, majority, pass_at_k};

/// Scores of one benchmark; shares are from 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Score {
    pub benchmark: String,
    pub problems: usize,
    /// k: completions of each problem (the fewest, should they differ).
    pub k: usize,
    /// avg@k with its 95 % interval over problems.
    pub average: Estimate,
    /// Unbiased pass@j for j = 1, 2, 4, … up to k, and k.
    pub pass_at: Vec<(usize, f64)>,
    pub majority: Estimate,
    pub truncated: f64,
    /// Share of completions without a readable answer.
    pub no_answer: f64,
    /// Mean length in tokens, where it was counted.
    pub length: Option<f64>,
    /// Mean reward with its interval, where one other than 0 and 1 occurred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reward: Option<Estimate>,
    pub other: Option<Other>,
}

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
pub fn score(benchmark: &str, results: &[ProblemResult], seed: u64) -> Option<Score> {
    let k = results.iter().map(|it| it.completions.len()).min()?;
    if k == 0 {
        return None;
    }
    let all = || results.iter().flat_map(|it| &it.completions);
    let n = all().count();
    let share =
        |is: fn(&GradedCompletion) -> bool| all().filter(|it| is(it)).count() as f64 / n as f64;
    let won: Vec<f64> = results.iter().map(won).collect();
    let rewards: Vec<f64> = results.iter().map(ProblemResult::reward).collect();
    let lengths: Vec<usize> = all().filter_map(|it| it.tokens).collect();
    Some(Score {
        benchmark: benchmark.to_owned(),
        problems: results.len(),
        k,
        average: average(results, seed)?,
        pass_at: pass_at(results, k),
        majority: estimate(&won, seed)?,
        truncated: share(|it| !it.ended),
        no_answer: share(|it| matches!(it.verdict, Verdict::Unparsable(_))),
        length: (!lengths.is_empty())
            .then(|| lengths.iter().sum::<usize>() as f64 / lengths.len() as f64),
        reward: results
            .iter()
            .any(ProblemResult::is_graded)
            .then(|| estimate(&rewards, seed))
            .flatten(),
        other: all().all(|it| it.other.is_some()).then(|| other(results)),
    })
}

/// pass@j for j = 1, 2, 4, … up to k, and k, as means over the problems.
fn pass_at(results: &[ProblemResult], k: usize) -> Vec<(usize, f64)> {
    let powers = (0..usize::BITS).map(|it| 1 << it).take_while(|it| *it < k);
    let mean = |j: usize| {
        let each = results.iter().filter_map(|it| pass_at_k(it.completions.len(), it.correct(), j));
        each.sum::<f64>() / results.len() as f64
    };
    powers.chain([k]).map(|j| (j, mean(j))).collect()
}

fn won(result: &ProblemResult) -> f64 {
    let votes: Vec<Option<usize>> = result.completions.iter().map(|it| it.vote).collect();
    let correct = result.completions.iter().find(|it| it.verdict.is_correct());
    majority(&votes, correct.and_then(|it| it.vote))
}

fn other(results: &[ProblemResult]) -> Other {
    let is_correct = |it: &GradedCompletion| it.other == Some(Verdict::Correct);
    let only = |first: bool| {
        let all = results.iter().flat_map(|it| &it.completions);
        all.filter(|it| it.verdict.is_correct() == first && is_correct(it) != first).count()
    };
    let success = |it: &ProblemResult| {
        let correct = it.completions.iter().filter(|it| is_correct(it)).count();
        correct as f64 / it.completions.len() as f64
    };
    Other {
        average: results.iter().map(success).sum::<f64>() / results.len() as f64,
        only_first: only(true),
        only_other: only(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(verdicts: &[(Verdict, Option<usize>, Verdict)]) -> ProblemResult {
        let completion = |it: &(Verdict, Option<usize>, Verdict)| GradedCompletion {
            text: String::new(),
            verdict: it.0.clone(),
            reward: None,
            other: Some(it.2.clone()),
            answer: None,
            vote: it.1,
            tokens: Some(10),
            ended: !matches!(it.0, Verdict::Unparsable(_)),
        };
        ProblemResult {
            id: "a".into(),
            gold: "1".into(),
            completions: verdicts.iter().map(completion).collect(),
        }
    }

    #[test]
    fn scores_are_counted_by_hand() {
        use Verdict::{Correct as C, Unparsable, Wrong as W};
        let first = [(C, Some(0), C), (C, Some(0), W), (W, Some(2), W), (W, Some(2), W)];
        let second = [
            (W, Some(0), C),
            (W, Some(0), W),
            (Unparsable(String::new()), None, Unparsable(String::new())),
            (C, Some(3), C),
        ];
        let it = score("b", &[result(&first), result(&second)], 0).unwrap();
        assert_eq!((it.problems, it.k), (2, 4));
        assert_eq!(it.average.mean, 0.375);
        // 1 − C(2,2)/C(4,2) = 5/6 and 1 − C(3,2)/C(4,2) = 1/2.
        let near = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(near(it.pass_at[1].1, 2.0 / 3.0), "{:?}", it.pass_at);
        assert_eq!((it.pass_at[0], it.pass_at[2]), ((1, 0.375), (4, 1.0)));
        // A tie of the right with a wrong answer counts half; in the second problem the wrong one wins.
        assert_eq!(it.majority.mean, 0.25);
        assert_eq!((it.truncated, it.no_answer, it.length), (0.125, 0.125, Some(10.0)));
        let other = it.other.unwrap();
        assert_eq!((other.average, other.only_first, other.only_other), (0.375, 1, 1));
        assert_eq!((it.reward, score("b", &[], 0)), (None, None));
        let mut graded = result(&first);
        graded.completions[3].reward = Some(0.5);
        // Three verdicts of two successes, and a half.
        assert_eq!(score("b", &[graded], 0).unwrap().reward.unwrap().mean, 0.625);
    }
}
