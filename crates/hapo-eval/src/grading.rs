//! From completions to verdicts and votes.

use hapo_core::{Refusal, Truncated, Verdict};
use hapo_data::{Dataset, Example};
use hapo_verify::{Completion, Gold, GoldError, Grader, Judgement, Problem, in_order};
use serde::{Deserialize, Serialize};

use crate::raw_completion::RawCompletion;
use crate::statistics::{Estimate, estimate};

/// Why a completion that was cut off gives no answer.
pub const CUT_OFF: &str = "cut off before its end token";

/// Reads an example for a grader.
pub fn gold_of(grader: &dyn Grader, example: &Example) -> Result<Gold, GoldError> {
    let golds: Vec<&str> = example.golds().collect();
    let row = example.fields.as_deref();
    Gold::of(grader, &Problem { text: &example.problem, golds: &golds, row })
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProblemResult {
    pub id: String,
    pub gold: String,
    pub completions: Vec<GradedCompletion>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GradedCompletion {
    pub text: String,
    #[serde(flatten)]
    pub verdict: Verdict,
    /// The reward, if it differs from the verdict's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward: Option<f64>,
    /// The other grader's verdict, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<Verdict>,
    pub answer: Option<String>,
    /// The first completion that gives the same answer, by the grader's equivalence; `None` without an answer.
    pub vote: Option<usize>,
    pub tokens: Option<usize>,
    pub ended: bool,
}

impl ProblemResult {
    pub fn correct(&self) -> usize {
        let correct = |it: &&GradedCompletion| it.verdict.is_correct();
        self.completions.iter().filter(correct).count()
    }

    /// Share of the completions that are correct: the problem's part of avg@k.
    pub fn success(&self) -> f64 {
        self.correct() as f64 / self.completions.len().max(1) as f64
    }
}

/// avg@k with its interval over problems; `None` for no problems.
pub fn average(results: &[ProblemResult], seed: u64) -> Option<Estimate> {
    let values: Vec<f64> = results.iter().map(ProblemResult::success).collect();
    estimate(&values, seed)
}

/// The gold answers of a set of problems, as one or two graders read them.
pub struct Judge<'a> {
    dataset: &'a Dataset,
    grader: &'a dyn Grader,
    golds: Vec<Gold>,
    others: Option<Vec<Option<Gold>>>,
    truncated: Truncated,
}

impl<'a> Judge<'a> {
    /// Reads every gold for `grader`, and for `other` where it can: the one that is only compared with.
    pub fn new(
        dataset: &'a Dataset,
        grader: &'a dyn Grader,
        other: Option<&dyn Grader>,
        truncated: Truncated,
    ) -> Result<Self, Refusal> {
        let gold = |(index, example): (usize, &Example)| {
            gold_of(grader, example).map_err(|reason| {
                let (answer, row, id) = (&example.answer, index + 1, &example.id);
                let unread = format!("the grader cannot read the gold answer `{answer}`");
                Refusal::input(format!("{unread} (row {row}, id {id}): {reason}"))
                    .hint("correct or remove the row")
            })
        };
        let golds = dataset.examples.iter().enumerate().map(gold).collect::<Result<_, _>>()?;
        let others = other.map(|grader| {
            dataset.examples.iter().map(|example| gold_of(grader, example).ok()).collect()
        });
        Ok(Self { dataset, grader, golds, others, truncated })
    }

    /// Of problems whose completions are not graded.
    pub(crate) fn without_golds(
        dataset: &'a Dataset,
        grader: &'a dyn Grader,
        truncated: Truncated,
    ) -> Self {
        Self { dataset, grader, golds: Vec::new(), others: None, truncated }
    }

    pub fn dataset(&self) -> &'a Dataset {
        self.dataset
    }

    /// The judgement on a completion of a problem; `None` where it was cut off and is not judged (D27).
    pub(crate) fn judge(
        &self,
        problem: usize,
        text: &str,
        ended: bool,
    ) -> Result<Option<Judgement>, Refusal> {
        if !self.truncated.is_judged(ended) {
            return Ok(None);
        }
        let completion = Completion { text, truncated: !ended };
        let judged = self.golds[problem].judge_completion(completion);
        match judged.failure() {
            Some(problem) => Err(Refusal::input(format!("the reward failed: {problem}")).hint(
                "what it printed is above; with a journal the same command resumes where it stopped",
            )),
            None => Ok(Some(judged)),
        }
    }

    /// Grades the completions of one problem and groups equal answers.
    pub fn grade(
        &self,
        problem: usize,
        completions: Vec<RawCompletion>,
    ) -> Result<ProblemResult, Refusal> {
        let example = &self.dataset.examples[problem];
        let judged = in_order(self.grader.workers(), &completions, |completion| {
            self.judge(problem, completion.text(), completion.ended())
        })?;
        let votes = votes(self.grader, &judged, &completions);
        let cut_off = || Verdict::Unparsable(CUT_OFF.to_owned());
        let of = |judgement: &Judgement| Verdict::of(judgement.verdict.compared());
        let other = |text: &str, judged: bool| {
            let others = self.others.as_ref()?;
            Some(match &others[problem] {
                _ if !judged => cut_off(),
                Some(gold) => of(&gold.judge(text)),
                None => Verdict::Unparsable("the gold answer cannot be read".to_owned()),
            })
        };
        let graded = completions.into_iter().zip(judged).zip(votes);
        let graded = graded.map(|((raw, judged), vote)| GradedCompletion {
            verdict: judged.as_ref().map_or_else(cut_off, of),
            reward: judged.as_ref().and_then(|judgement| judgement.reward),
            other: other(raw.text(), judged.is_some()),
            answer: judged.and_then(|judgement| judgement.extracted),
            vote,
            ended: raw.ended(),
            tokens: raw.completion_tokens.map(|tokens| tokens as usize),
            text: raw.text.unwrap_or_default(),
        });
        Ok(ProblemResult {
            id: example.id.clone(),
            gold: example.answer.clone(),
            completions: graded.collect(),
        })
    }
}

/// For each completion that counts the first one with the same answer. Correct answers are equal to each other; of the wrong ones,
/// one that the grader can read as a gold answer is compared with the later completion by the grader, others are compared
/// as text.
fn votes(
    grader: &dyn Grader,
    judged: &[Option<Judgement>],
    completions: &[RawCompletion],
) -> Vec<Option<usize>> {
    let answer_of = |it: &Judgement| match it.verdict {
        hapo_verify::Verdict::Unparsable(_) => None,
        _ => it.extracted.clone(),
    };
    // The first of each group, and its answer as a gold answer.
    let mut groups: Vec<(usize, &Judgement, Option<Gold>)> = Vec::new();
    let mut votes = Vec::with_capacity(judged.len());
    for (n, it) in judged.iter().enumerate() {
        let Some((it, answer)) = it.as_ref().and_then(|it| Some((it, answer_of(it)?))) else {
            votes.push(None);
            continue;
        };
        let same = groups.iter().find(|(_, first, gold)| {
            match (first.verdict.is_correct(), it.verdict.is_correct()) {
                (true, true) => true,
                (false, false) => {
                    first.extracted.as_ref() == Some(&answer)
                        || gold.as_ref().is_some_and(|gold| {
                            gold.judge(completions[n].text()).verdict.is_correct()
                        })
                }
                _ => false,
            }
        });
        let vote = same.map_or(n, |it| it.0);
        if vote == n {
            // A judge of whole completions has no gold answers to check.
            let is_gold = !it.verdict.is_correct() && grader.reads_answers();
            let gold = is_gold.then(|| Gold::new(grader, &answer).ok());
            groups.push((n, it, gold.flatten()));
        }
        votes.push(Some(vote));
    }
    votes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_answers_share_a_vote_however_they_are_written() {
        let example = Example {
            id: "a".into(),
            problem: "p".into(),
            answer: "1/2".into(),
            ..Example::default()
        };
        let dataset = Dataset { examples: vec![example] };
        let judge = |truncated| {
            Judge::new(&dataset, &hapo_verify::MATH, Some(&hapo_verify::EXACT), truncated).unwrap()
        };
        let texts = [
            "\\boxed{0.25}",
            "\\boxed{0.5}",
            "\\boxed{\\frac14}",
            "\\boxed{1/2}",
            "no idea",
            "\\boxed{x+1}",
            "\\boxed{1+x}",
        ];
        let completions = texts.map(|text| RawCompletion::local(text.into(), 1, true));
        let it = judge(Truncated::Wrong).grade(0, completions.to_vec()).unwrap();
        let votes: Vec<Option<usize>> = it.completions.iter().map(|it| it.vote).collect();
        assert_eq!(votes, [Some(0), Some(1), Some(0), Some(1), None, Some(5), Some(5)]);
        let others: Vec<&Option<Verdict>> = it.completions.iter().map(|it| &it.other).collect();
        assert_eq!(others[1], &Some(Verdict::Wrong));
        assert_eq!(others[3], &Some(Verdict::Correct));
        assert_eq!(it.correct(), 2);
        // The fourth was cut off: no answer, and no vote.
        let mut completions = completions.to_vec();
        completions[3].finish_reason = Some("length".into());
        let it = judge(Truncated::Wrong).grade(0, completions.clone()).unwrap();
        let votes: Vec<Option<usize>> = it.completions.iter().map(|it| it.vote).collect();
        assert_eq!(votes, [Some(0), Some(1), Some(0), None, None, Some(5), Some(5)]);
        let cut_off = Verdict::Unparsable("cut off before its end token".to_owned());
        assert_eq!(it.completions[3].verdict, cut_off);
        assert_eq!(it.completions[3].other, Some(cut_off));
        assert_eq!(it.correct(), 1);
        let graded = judge(Truncated::Grade).grade(0, completions).unwrap();
        assert_eq!(graded.correct(), 2);
    }
}
