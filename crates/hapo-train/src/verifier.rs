//! Verdicts on the rollouts of a run, by a grader that a study may make unreliable.

use std::sync::Arc;

use hapo_core::{
    RngCounter, RngStream, Rollout, SampledGroup, ScoredGroup, Step, Verdict, uniform,
};
use hapo_sampler::ChatFormat;

use crate::error::Result;
use crate::grading::verdict_of;
use crate::prompts::Prompt;

/// Gives every rollout its verdict.
#[derive(Clone, Debug)]
pub(crate) struct Verifier {
    pub(crate) chat_format: Arc<ChatFormat>,
    /// An unreliable grader, where a study asks for one.
    pub(crate) noise: Option<VerdictNoise>,
    /// The smallest reward that counts as success (D28).
    pub(crate) success_at: f64,
}

impl Verifier {
    /// A group with its verdicts, the reward of each, and which of them are successes.
    pub(crate) fn score(&self, group: SampledGroup, verdicts: Vec<Verdict>) -> ScoredGroup {
        let graded = verdicts.into_iter().map(|it| (it.reward(), it)).collect();
        group.score_with_rewards(graded, self.success_at)
    }

    /// The verdicts on rollouts of a prompt, of which the first is number `first` of its group.
    pub(crate) fn verdicts(
        &self,
        prompt: &Prompt,
        rollouts: &[Rollout],
        (step, first): (Step, usize),
    ) -> Result<Vec<Verdict>> {
        let verdict = |(rollout, number): (&Rollout, u64)| {
            let text = self.chat_format.text(&rollout.tokens)?;
            let verdict = verdict_of(&prompt.gold, &text);
            let counter =
                RngCounter { step: step.0, prompt: prompt.id.0, rollout: number, position: 0 };
            Ok(match self.noise {
                Some(noise) => noise.applied_to(verdict, counter),
                None => verdict,
            })
        };
        rollouts.iter().zip(first as u64..).map(verdict).collect()
    }
}

/// A grader that is wrong at random.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VerdictNoise {
    /// Share of the verdicts that are flipped.
    pub(crate) share: f64,
    pub(crate) seed: u64,
}

impl VerdictNoise {
    fn applied_to(self, verdict: Verdict, counter: RngCounter) -> Verdict {
        if uniform(self.seed, RngStream::Flip, counter) >= self.share {
            return verdict;
        }
        match verdict {
            Verdict::Correct => Verdict::Wrong,
            Verdict::Wrong | Verdict::Unparsable(_) => Verdict::Correct,
        }
    }
}
