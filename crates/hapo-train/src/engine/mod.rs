//! The machines of a run: a [`Sampler`] makes rollouts, a [`Trainer`] holds the weights and moves them, a [`Scorer`] scores
//! given tokens.
//!
//! Here is the local sampler: [`LocalSampler`] samples the weights where they lie. A sampler on another machine is another
//! [`Sampler`]; no stage of a step changes.

mod protocol;
pub(crate) mod scorer;
pub(crate) mod server;
pub(crate) mod trainer;
pub(crate) mod trainer_files;

use std::sync::Arc;

use hapo_core::{Fault, Refusal};
use hapo_kernels::{Device, is_out_of_memory};
use hapo_model::Model;
use hapo_sampler::{
    ChatFormat, GroupRequest, SampleSettings, Sampled, TooLittleKvMemory, Watch, sample,
};

use crate::{Result, observe::Meter, pack::Batching};
use scorer::{ScoreRequest, Scorer};
use trainer::{Trainer, Weights};

pub trait Sampler<W> {
    /// Samples every request's completions with these weights: one group for each request, in order. A group may
    /// have lost rollouts (D6).
    fn sample(
        &mut self,
        weights: Weights<'_, W>,
        requests: &[GroupRequest],
        settings: &SampleSettings,
    ) -> Result<Vec<Sampled>>;

    fn set_meter(&mut self, _meter: Meter) {}
}

pub(crate) struct Engines<'a, D: Device> {
    pub(crate) learner: &'a mut Trainer<D>,
    pub(crate) sampler: &'a mut dyn Sampler<Model<D>>,
    /// The second model, where something reads its log-probabilities (D38).
    pub(crate) reference: Option<&'a mut Scorer<D>>,
    /// How rollouts are scored, where `π_old` is the learner's own forward pass (D41).
    pub(crate) rescoring: Option<Batching>,
}

impl<D: Device> Engines<'_, D> {
    pub(crate) fn sample(
        &mut self,
        requests: &[GroupRequest],
        settings: &SampleSettings,
    ) -> Result<Vec<Sampled>> {
        self.learner.release_training_memory();
        let sampled = self.sampler.sample(self.learner.weights(), requests, settings)?;
        let Some(batching) = self.rescoring else { return Ok(sampled) };
        // The learner's own numbers are `π_old`, with the sampler's beside them (D41).
        let mut scored = Vec::new();
        for (request, it) in requests.iter().zip(&sampled) {
            let read = |it| ScoreRequest::new(request.tokens, it, batching.inverse_temperature);
            scored.extend(it.group.rollouts.iter().map(|rollout| read(&rollout.tokens)));
        }
        let mut scores = self.learner.score(&scored, batching)?.into_iter();
        let of_group = |mut it: Sampled| {
            for (rollout, details) in it.group.rollouts.iter_mut().zip(&mut it.details) {
                let own = scores.next().expect("every rollout is scored");
                rollout.sampler_log_probs =
                    std::mem::replace(&mut rollout.log_probs, own.log_probs);
                details.entropies = own.entropies;
            }
            it
        };
        Ok(sampled.into_iter().map(of_group).collect())
    }
}

/// What the recipe can ask less of where memory runs out.
pub(crate) const TRAINING: &str = "lower optim.micro_batch_tokens, set optim.activation_checkpointing = \"layers\", or take a smaller model; `hapo plan` says what each saves";
const SAMPLING: &str = "lower sampling.kv_memory, sampling.max_sequences or sampling.max_new_tokens; `hapo plan` says what each saves";
const LITTLE_KV_MEMORY: &str =
    "raise sampling.kv_memory, or lower sampling.max_new_tokens; `hapo plan` says what each takes";

/// A refusal with the recipe's keys for its hint where memory ran out: it is the recipe that asks for more than there is.
pub(crate) fn naming_memory_keys(refusal: Refusal, hint: &'static str) -> Refusal {
    if refusal.cause::<TooLittleKvMemory>().is_some() {
        return refusal.hint(LITTLE_KV_MEMORY);
    }
    let is_new = !refusal.is_bad_input();
    let ran_out = is_out_of_memory(&refusal);
    if ran_out && is_new { refusal.hint(hint).with_fault(Fault::Input) } else { refusal }
}

#[derive(Clone, Debug)]
pub struct LocalSampler {
    pub chat_format: Arc<ChatFormat>,
    pub stop_strings: Vec<String>,
    pub meter: Meter,
}

impl<D: Device> Sampler<Model<D>> for LocalSampler {
    fn sample(
        &mut self,
        weights: Weights<'_, Model<D>>,
        requests: &[GroupRequest],
        settings: &SampleSettings,
    ) -> Result<Vec<Sampled>> {
        let watch = Watch {
            tokenizer: &self.chat_format.tokenizer,
            stop_strings: &self.stop_strings,
            progress: &|share| self.meter.tell("sampling", share),
        };
        sample(weights.model, requests, settings, Some(watch))
            .map_err(|error| naming_memory_keys(error, SAMPLING))
    }

    fn set_meter(&mut self, meter: Meter) {
        self.meter = meter;
    }
}

#[cfg(test)]
mod tests {
    use hapo_kernels::DeviceError;
    use hapo_sampler::Longest;

    use super::*;

    #[test]
    fn what_is_too_much_for_the_memory_names_its_keys() {
        let none = || DeviceError::Allocation { bytes: 1 << 40 };
        let longest = Longest { prompt: 1, completion: 2 };
        let no_room = TooLittleKvMemory { needed: 9, longest, bytes: 3 };
        let refused = |hint| naming_memory_keys(Refusal::machine("").source(none()), hint);
        let no_room = naming_memory_keys(Refusal::because(no_room), SAMPLING);
        for (refusal, key) in [
            (&refused(TRAINING), "optim.micro_batch_tokens"),
            (&refused(TRAINING), "optim.activation_checkpointing"),
            (&refused(SAMPLING), "sampling.max_sequences"),
            (&no_room, "sampling.kv_memory"),
        ] {
            let hint = refusal.how_to_mend().unwrap().to_string();
            assert!(refusal.is_bad_input() && hint.contains(key), "{refusal}");
        }
        let other = Refusal::bug("the tape holds no forward pass");
        assert!(!naming_memory_keys(other, TRAINING).is_bad_input());
    }
}
