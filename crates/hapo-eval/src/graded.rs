//! Completions before and after they are graded.

use hapo_core::{Refusal, Verdict};
use hapo_data::Dataset;
use hapo_teacher::gold_of;
use hapo_verify::{Completion, Gold, Grader, Judgement, in_order};
use serde::{Deserialize, Serialize};

/// Grading of completions that were cut off at the limit (D27).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Truncated {
    /// It gives no answer, as in training.
    #[default]
    Wrong,
    /// It is graded like any other.
    Grade,
}

impl Truncated {
    /// Every rule, by its name.
    pub const ALL: &[(&str, Truncated)] =
        &[("wrong", Truncated::Wrong), ("grade", Truncated::Grade)];
}

/// Why a completion that was cut off gives no answer.
const CUT_OFF: &str = "cut off before its end token";

/// A completion before it is graded.
#[derive(Clone, Debug, PartialEq)]
pub struct RawCompletion {
    /// Its text.
    pub text: String,
    /// Its length in tokens, if it was counted.
    pub tokens: Option<usize>,
    /// The completion ended with a stop token.
    pub ended: bool,
}

/// A problem with its graded completions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProblemResult {
    /// Id of the problem.
    pub id: String,
    /// The gold answer.
    pub gold: String,
    /// The completions.
    pub completions: Vec<GradedCompletion>,
}

/// One completion, graded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GradedCompletion {
    /// Its text.
    pub text: String,
    /// The grader's verdict.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// The reward, if it differs from the verdict's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward: Option<f64>,
    /// The other grader's verdict, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<Verdict>,
    /// The answer that was extracted.
    pub answer: Option<String>,
    /// The first completion that gives the same answer, by the grader's equivalence; `None` without an answer.
    pub vote: Option<usize>,
    /// Its length in tokens, if it was counted.
    pub tokens: Option<usize>,
    /// The completion ended with a stop token.
    pub ended: bool,
}

impl ProblemResult {
    /// Completions that are correct.
    pub fn correct(&self) -> usize {
        let correct = |it: &&GradedCompletion| it.verdict.is_correct();
        self.completions.iter().filter(correct).count()
    }

    /// Share of the completions that are correct: the problem's part of avg@k.
    pub fn success(&self) -> f64 {
        self.correct() as f64 / self.completions.len().max(1) as f64
    }
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
    ) -> Result<Self, Refusal> {
        let golds = dataset
            .examples
            .iter()
            .map(|it| gold_of(grader, it).map_err(|reason| {
                let (answer, id) = (&it.answer, &it.id);
                Refusal::input(format!("the grader cannot read the gold answer `{answer}` of problem {id}: {reason}"))
                    .hint("correct or remove the row")
            }))
            .collect::<Result<Vec<_>, _>>()?;
        let others = other.map(|grader| {
            let golds = dataset.examples.iter();
            golds.map(|it| gold_of(grader, it).ok()).collect()
        });
        Ok(Self { dataset, grader, golds, others, truncated: Truncated::default() })
    }

    /// With a rule for completions that were cut off; without one they give no answer.
    pub fn with_truncated(self, truncated: Truncated) -> Self {
        Self { truncated, ..self }
    }

    /// The problems that it judges.
    pub fn dataset(&self) -> &'a Dataset {
        self.dataset
    }

    /// Grades the completions of one problem and groups equal answers.
    pub fn grade(
        &self,
        problem: usize,
        completions: Vec<RawCompletion>,
    ) -> Result<ProblemResult, Refusal> {
        let example = &self.dataset.examples[problem];
        let judged = in_order(self.grader.workers(), &completions, |it| {
            if !it.ended && self.truncated == Truncated::Wrong {
                return Ok(None);
            }
            let completion = Completion { text: &it.text, truncated: !it.ended };
            let judged = self.golds[problem].judge_completion(completion);
            match judged.failure() {
                Some(problem) => Err(Refusal::input(format!("the reward failed: {problem}")).hint(
                    "what it printed is above; with a record the same command resumes where it stopped",
                )),
                None => Ok(Some(judged)),
            }
        })?;
        let votes = votes(self.grader, &judged, &completions);
        let cut_off = || Verdict::Unparsable(CUT_OFF.to_owned());
        let graded = completions.into_iter().zip(judged).zip(votes);
        let graded = graded.map(|((raw, judged), vote)| GradedCompletion {
            verdict: judged.as_ref().map_or_else(cut_off, |it| Verdict::of(it.verdict.compared())),
            reward: judged.as_ref().and_then(|it| it.reward),
            other: match &judged {
                Some(_) => self.other_verdict(problem, &raw.text),
                None => self.others.as_ref().map(|_| cut_off()),
            },
            answer: judged.and_then(|it| it.extracted),
            vote,
            text: raw.text,
            tokens: raw.tokens,
            ended: raw.ended,
        });
        Ok(ProblemResult {
            id: example.id.clone(),
            gold: example.answer.clone(),
            completions: graded.collect(),
        })
    }

    /// The other grader's verdict; `None` without another grader.
    fn other_verdict(&self, problem: usize, text: &str) -> Option<Verdict> {
        let unread = || Verdict::Unparsable("the gold answer cannot be read".to_owned());
        self.others.as_ref().map(|golds| match &golds[problem] {
            Some(gold) => Verdict::of(gold.judge(text).verdict.compared()),
            None => unread(),
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
                            gold.judge(&completions[n].text).verdict.is_correct()
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
    use hapo_data::Example;

    #[test]
    fn equal_answers_share_a_vote_however_they_are_written() {
        let example = Example {
            id: "a".into(),
            problem: "p".into(),
            answer: "1/2".into(),
            ..Example::default()
        };
        let dataset = Dataset { examples: vec![example] };
        let judge = Judge::new(&dataset, &hapo_verify::MATH, Some(&hapo_verify::EXACT)).unwrap();
        let texts = [
            "\\boxed{0.25}",
            "\\boxed{0.5}",
            "\\boxed{\\frac14}",
            "\\boxed{1/2}",
            "no idea",
            "\\boxed{x+1}",
            "\\boxed{1+x}",
        ];
        let completions =
            texts.map(|it| RawCompletion { text: it.into(), tokens: None, ended: true });
        let it = judge.grade(0, completions.to_vec()).unwrap();
        let votes: Vec<Option<usize>> = it.completions.iter().map(|it| it.vote).collect();
        assert_eq!(votes, [Some(0), Some(1), Some(0), Some(1), None, Some(5), Some(5)]);
        let others: Vec<&Option<Verdict>> = it.completions.iter().map(|it| &it.other).collect();
        assert_eq!(others[1], &Some(Verdict::Wrong));
        assert_eq!(others[3], &Some(Verdict::Correct));
        assert_eq!(it.correct(), 2);
        // The fourth was cut off: no answer, and no vote.
        let mut completions = completions.to_vec();
        completions[3].ended = false;
        let judge = judge.with_truncated(Truncated::Wrong);
        let it = judge.grade(0, completions.clone()).unwrap();
        let votes: Vec<Option<usize>> = it.completions.iter().map(|it| it.vote).collect();
        assert_eq!(votes, [Some(0), Some(1), Some(0), None, None, Some(5), Some(5)]);
        let cut_off = Verdict::Unparsable("cut off before its end token".to_owned());
        assert_eq!(it.completions[3].verdict, cut_off);
        assert_eq!(it.completions[3].other, Some(cut_off));
        assert_eq!(it.correct(), 1);
        let graded = judge.with_truncated(Truncated::Grade).grade(0, completions).unwrap();
        assert_eq!(graded.correct(), 2);
    }
}
