//! What the stages of a step are told.

use hapo_core::{Gated, RngStream, Slot, Step};
use hapo_sampler::{Decoding, KvMemory, SampleSettings};

use crate::prompts::{Order, PromptTable};
use crate::update::UpdateSettings;
use crate::verifier::Verifier;

/// What a step reads and never changes.
#[derive(Clone, Copy)]
pub(crate) struct Task<'a> {
    pub(crate) table: &'a PromptTable,
    pub(crate) order: Order,
    pub(crate) method: &'a Gated,
    pub(crate) verifier: &'a Verifier,
    pub(crate) settings: &'a StepSettings,
}

/// What a recipe says to the stages.
#[derive(Clone, Debug)]
pub(crate) struct StepSettings {
    /// N.
    pub(crate) group_size: usize,
    pub(crate) seed: u64,
    pub(crate) decoding: Decoding,
    pub(crate) max_new_tokens: usize,
    pub(crate) max_sequences: usize,
    pub(crate) kv_memory: KvMemory,
    /// Whether the tokens of rollouts without an end token are left out of the loss (D27).
    pub(crate) masks_truncated: bool,
    /// Rounds in which groups without signal are replaced.
    pub(crate) dynamic_sampling: u64,
    /// Steps from one measurement of the KL to the next; 0 for none.
    pub(crate) kl_every: u64,
    /// Steps from one measurement of the sampler's gap in all mini-batches to the next; 0 for none.
    pub(crate) gap_every: u64,
    pub(crate) update: UpdateSettings,
}

impl StepSettings {
    /// How the rollouts of a step are sampled.
    pub(crate) fn sampling<'a>(
        &self,
        verifier: &'a Verifier,
        rng_stream: RngStream,
        step: Step,
    ) -> SampleSettings<'a> {
        SampleSettings {
            decoding: self.decoding,
            stop: &verifier.chat_format.stop,
            max_new_tokens: self.max_new_tokens,
            max_sequences: self.max_sequences,
            kv_memory: self.kv_memory,
            usable_vocab: verifier.chat_format.tokenizer.vocab_size(),
            seed: self.seed,
            rng_stream,
            step: step.0,
        }
    }

    /// Which slot the teacher takes.
    pub(crate) fn slot(&self, method: &Gated, step: Step) -> Slot {
        Slot { rule: method.slot(), seed: self.seed, step }
    }

    /// Whether the sampler's gap is measured in all mini-batches of this step.
    pub(crate) fn measures_gap(&self, step: Step) -> bool {
        self.gap_every > 0 && (step.0 - 1).is_multiple_of(self.gap_every)
    }

    /// Whether the KL is measured in this step.
    pub(crate) fn measures_kl(&self, step: Step) -> bool {
        self.kl_every > 0 && step.0.is_multiple_of(self.kl_every)
    }
}
