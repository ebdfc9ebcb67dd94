//! State that the stages of a step share.

use hapo_core::{
    Gated, Glance, Memory, Offer, PromptId, Refusal, RngStream, ScoredGroup, Slot, Step,
    TokenScores,
};
use hapo_sampler::SampleSettings;

use crate::Result;
use crate::grading::verifier::Verifier;
use crate::plan::run_plan::RunPlan;
use crate::problems::prompts::{Order, PromptTable};
use crate::recipe::Recipe;

/// State that a step reads and never changes.
#[derive(Clone, Copy)]
pub(crate) struct Task<'a> {
    pub(crate) table: &'a PromptTable,
    pub(crate) order: Order,
    pub(crate) method: &'a Gated,
    pub(crate) verifier: &'a Verifier,
    pub(crate) memory: &'a Memory,
    pub(crate) plan: &'a RunPlan,
}

/// How a recipe's rollouts are sampled.
pub(crate) fn sample_settings<'a>(
    recipe: &Recipe,
    verifier: &'a Verifier,
    rng_stream: RngStream,
    step: Step,
) -> SampleSettings<'a> {
    let (sampling, chat_format) = (recipe.sampling(), &verifier.chat_format);
    SampleSettings {
        decoding: recipe.decoding(),
        stop: &chat_format.stop,
        max_new_tokens: sampling.max_new_tokens,
        max_sequences: sampling.max_sequences,
        kv_memory: sampling.kv_memory,
        usable_vocab: chat_format.tokenizer.vocab_size(),
        seed: recipe.seed(),
        rng_stream,
        step: step.0,
    }
}

impl<'a> Task<'a> {
    /// How the rollouts of a step are sampled.
    pub(crate) fn sampling(&self, rng_stream: RngStream, step: Step) -> SampleSettings<'a> {
        sample_settings(self.plan.recipe(), self.verifier, rng_stream, step)
    }

    /// Ends a step whose method could not answer.
    pub(crate) fn require_answer(&self) -> Result<()> {
        let failure = self.method.method().failure();
        failure.map_or(Ok(()), |problem| Err(Refusal::input(problem)))
    }

    /// N.
    pub(crate) fn group_size(&self) -> usize {
        self.plan.recipe().sampling().group_size
    }

    /// The offer for a prompt's group, with its scores by the weights of the step.
    pub(crate) fn offer<'b>(
        &self,
        prompt: PromptId,
        step: Step,
        scores: &'b [TokenScores],
    ) -> Offer<'b>
    where
        'a: 'b,
    {
        let found = self.table.prompt(prompt);
        let offer = Offer {
            teachers: &found.teachers,
            stored: self.memory.traces(prompt),
            scores,
            slot: self.slot(step),
        };
        offer.picking(self.plan.recipe().settings().teacher.pick, prompt)
    }

    /// The gate's decision for each group of a round, in order.
    pub(crate) fn open(&self, groups: &[ScoredGroup], step: Step) -> Vec<bool> {
        let policy = self.verifier.policy;
        let glances = groups.iter().map(|group| {
            let can_help = self.method.can_help(&self.offer(group.prompt(), step, &[]));
            Glance::of(group, policy.truncated, policy.wrong, can_help)
        });
        self.method.open(&glances.collect::<Vec<_>>(), self.slot(step), self.memory)
    }

    /// Which slot the teacher takes.
    pub(crate) fn slot(&self, step: Step) -> Slot {
        Slot { rule: self.method.slot(), seed: self.plan.recipe().seed(), step }
    }
}
