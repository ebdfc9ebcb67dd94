//! Verdicts on the rollouts of a run, by a grader that a study may make unreliable.

use std::sync::Arc;

use hapo_core::{
    RngCounter, RngStream, Rollout, SampledGroup, ScoredGroup, Step, Verdict, uniform,
};
use hapo_sampler::ChatFormat;
use hapo_verify::{AnswerForm, Extraction, find_answer};

use crate::error::Result;
use crate::grading::verdict_of;
use crate::prompts::Prompt;
use crate::recipe::Truncated;

/// Gives every rollout its verdict.
#[derive(Clone, Debug)]
pub(crate) struct Verifier {
    pub(crate) chat_format: Arc<ChatFormat>,
    /// An unreliable grader, where a study asks for one.
    pub(crate) noise: Option<VerdictNoise>,
    /// What becomes of a rollout without its end token (D27).
    pub(crate) truncated: Truncated,
    /// The smallest reward that counts as success (D28).
    pub(crate) success_at: f64,
}

impl Verifier {
    /// A group with its verdicts, the reward of each, and which of them are successes.
    pub(crate) fn score(&self, group: SampledGroup, graded: Vec<Graded>) -> ScoredGroup {
        let graded = graded.into_iter().map(|it| (it.reward, it.verdict)).collect();
        group.score_with_rewards(graded, self.success_at)
    }

    /// What the grader says of rollouts of a prompt, of which the first is number `first` of its group.
    pub(crate) fn grade(
        &self,
        prompt: &Prompt,
        rollouts: &[Rollout],
        (step, first): (Step, usize),
    ) -> Result<Vec<Graded>> {
        let graded = |(rollout, number): (&Rollout, u64)| {
            let text = self.chat_format.text(&rollout.tokens)?;
            let form = find_answer(&text, Extraction::Announced).ok().map(|it| it.form);
            if !rollout.ended && self.truncated != Truncated::Grade {
                let verdict = Verdict::Unparsable(CUT_OFF.to_owned());
                return Ok(Graded { reward: 0.0, verdict, form });
            }
            let verdict = verdict_of(&prompt.gold, &text);
            let counter =
                RngCounter { step: step.0, prompt: prompt.id.0, rollout: number, position: 0 };
            let verdict = match self.noise {
                Some(noise) => noise.applied_to(verdict, counter),
                None => verdict,
            };
            Ok(Graded { reward: verdict.reward(), verdict, form })
        };
        rollouts.iter().zip(first as u64..).map(graded).collect()
    }
}

/// Why a rollout without its end token has no reward.
const CUT_OFF: &str = "cut off before its end token";

/// What the grader says of one rollout.
#[derive(Clone, Debug)]
pub(crate) struct Graded {
    pub(crate) reward: f64,
    pub(crate) verdict: Verdict,
    /// Where an answer stands in it, whichever rule the run's grader follows.
    pub(crate) form: Option<AnswerForm>,
}

/// How many responses give an answer, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AnswerCounts {
    pub(crate) boxed: usize,
    pub(crate) announced: usize,
}

impl AnswerCounts {
    pub(crate) fn add(&mut self, graded: &[Graded]) {
        let of = |form| graded.iter().filter(|it| it.form == Some(form)).count();
        self.boxed += of(AnswerForm::Boxed);
        self.announced += of(AnswerForm::Announced);
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
