//! From completions to rewards and verdicts.

pub(crate) mod verifier;

use std::sync::Arc;

use hapo_core::{Refusal, Verdict};
pub use hapo_eval::gold_of;
use hapo_net::reward::RewardLog;
use hapo_verify::{Gold, Grader, Judgement};

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

/// The verdict on one completion against a gold that was read before.
pub fn verdict_of(gold: &Gold, completion: &str) -> Verdict {
    Verdict::of(gold.judge(completion).verdict.compared())
}
