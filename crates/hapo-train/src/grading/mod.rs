//! From completions to rewards and verdicts, by a grader that a study may make unreliable.

use std::{collections::BTreeMap, sync::Arc};

use hapo_core::{Refusal, RngCounter, RngStream, Rollout, Truncated, Verdict, uniform};
use hapo_eval::CUT_OFF;
pub use hapo_eval::gold_of;
use hapo_net::reward::RewardLog;
use hapo_sampler::ChatFormat;
use hapo_verify::{
    AnswerForm, Completion, Extraction, Gold, Grader, Judgement, Reason, find_answer,
};

use crate::Result;

#[derive(Clone, Debug)]
pub struct RunGrader {
    pub(crate) grader: Arc<dyn Grader>,
    /// The log of a custom program's output; `None` for a built-in grader.
    pub(crate) log: Option<RewardLog>,
}

pub fn graded(judgement: &Judgement) -> Result<(f64, Verdict)> {
    if let Some(problem) = judgement.failure() {
        return Err(no_reward(problem));
    }
    let verdict = match judgement.verdict.compared() {
        // A custom reward has its own reason.
        Err(_) if judgement.reward.is_some() => Verdict::Unparsable(judgement.reason.to_string()),
        compared => Verdict::of(compared),
    };
    Ok((judgement.reward(), verdict))
}

pub(crate) fn no_reward(problem: &str) -> Refusal {
    Refusal::input(format!("the reward failed: {problem}")).hint(
        "reward.log in the run folder keeps what it printed; with reward.on_failure = \"wrong\" single failures are worth reward.wrong",
    )
}

pub fn verdict_of(gold: &Gold, completion: &str) -> Verdict {
    Verdict::of(gold.judge(completion).verdict.compared())
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct GradingPolicy {
    /// The rule for a response without its end token (D27).
    pub(crate) truncated: Truncated,
    /// The smallest reward that counts as success (D28).
    pub(crate) success_at: f64,
    /// The reward of an answer without a verdict (D31).
    pub(crate) wrong: f64,
    /// Share of the verdicts that are flipped: an unreliable grader, where a study asks for one.
    pub(crate) noise: f64,
    pub(crate) seed: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Verifier {
    pub(crate) chat_format: Arc<ChatFormat>,
    pub(crate) policy: GradingPolicy,
    /// How many rollouts are graded at once, where the grader names a number.
    pub(crate) workers: Option<usize>,
}

impl Verifier {
    /// The same without a study's unreliable grader, which would hide what the model can do.
    pub(crate) fn reliable(&self) -> Self {
        Self { policy: GradingPolicy { noise: 0.0, ..self.policy }, ..self.clone() }
    }

    pub(crate) fn grade(
        &self,
        gold: Option<&Gold>,
        rollout: &Rollout,
        counter: RngCounter,
    ) -> Result<Graded> {
        let Some(gold) = gold else {
            let verdict = Verdict::Unparsable("nothing is graded".to_owned());
            return Ok(Graded { verdict, ..Graded::default() });
        };
        let text = self.chat_format.text(&rollout.tokens)?;
        let form = find_answer(&text, Extraction::Announced).ok().map(|it| it.form);
        if !self.policy.truncated.is_judged(rollout.ended) {
            let verdict = Verdict::Unparsable(CUT_OFF.to_owned());
            return Ok(Graded { reward: self.policy.wrong, verdict, form, ..Graded::default() });
        }
        let completion = Completion { text: &text, truncated: !rollout.ended };
        let judgement = gold.judge_completion(completion);
        let (mut reward, mut verdict) = graded(&judgement)?;
        if self.policy.noise > 0.0 {
            if uniform(self.policy.seed, RngStream::Flip, counter) < self.policy.noise {
                verdict = match verdict {
                    Verdict::Correct => Verdict::Wrong,
                    Verdict::Wrong | Verdict::Unparsable(_) => Verdict::Correct,
                };
            }
            reward = verdict.reward();
        }
        // The reward that a program names stands, whatever its verdict.
        if judgement.reward.is_none() && matches!(verdict, Verdict::Unparsable(_)) {
            reward = self.policy.wrong;
        }
        let failed = judgement.verdict.reason() == Some(Reason::Grader);
        let below_wrong = reward < self.policy.wrong;
        Ok(Graded { reward, verdict, form, parts: judgement.parts, failed, below_wrong })
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Graded {
    pub(crate) reward: f64,
    pub(crate) verdict: Verdict,
    /// Where an answer stands in it, whichever rule the run's grader follows.
    form: Option<AnswerForm>,
    parts: Vec<(String, f64)>,
    /// True if a reward program gave none.
    failed: bool,
    /// True if its reward is below that of an answer without a verdict (D31).
    below_wrong: bool,
}

/// How many responses give an answer, and how, and what their rewards are made of.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AnswerCounts {
    pub(crate) boxed: usize,
    pub(crate) announced: usize,
    /// Responses that a reward program gave no reward.
    pub(crate) failed: usize,
    /// Responses that are worth less than an answer without a verdict (D31).
    pub(crate) below_wrong: usize,
    /// Sum and number of each part of the rewards.
    pub(crate) parts: BTreeMap<String, (f64, usize)>,
}

const MOST_PARTS: usize = 64;

impl AnswerCounts {
    pub(crate) fn add(&mut self, graded: &[Graded]) {
        let of = |form| graded.iter().filter(|it| it.form == Some(form)).count();
        self.boxed += of(AnswerForm::Boxed);
        self.announced += of(AnswerForm::Announced);
        self.failed += graded.iter().filter(|it| it.failed).count();
        self.below_wrong += graded.iter().filter(|it| it.below_wrong).count();
        for (name, part) in graded.iter().flat_map(|it| &it.parts) {
            if let Some((sum, n)) = self.parts.get_mut(name) {
                (*sum, *n) = (*sum + part, *n + 1);
            } else if self.parts.len() < MOST_PARTS {
                self.parts.insert(name.clone(), (*part, 1));
            }
        }
    }
}
