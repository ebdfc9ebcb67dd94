//! The two places where a step meets a machine: a [`Sampler`] makes rollouts, a [`Learner`] holds the weights and
//! moves them.
//!
//! Here are the local ones: [`LocalSampler`] samples the weights where they lie, [`Trainer`](crate::Trainer) moves them. A sampler on
//! another machine is another [`Sampler`], several GPUs are another [`Learner`]; no stage of a step changes. The
//! price of weights that lie with the learner is a type parameter on the sampler.

use std::path::Path;
use std::sync::Arc;

use hapo_core::{Fault, Loss, Refusal, SampledGroup, TokenScores};
use hapo_kernels::{AdamW, Device, is_out_of_memory};
use hapo_model::folder::AdapterNote;
use hapo_model::{Dtype, Model};
use hapo_sampler::{
    ChatFormat, GroupRequest, SampleSettings, Sampled, TooLittleKvMemory, Watch, sample_watched,
};

use crate::Result;
use crate::engine::scorer::{ScoreRequest, Scorer};
use crate::observe::meter::Meter;
use crate::observe::stats::Stats;
use crate::pack::TokenGroup;

/// The weights of a learner, as a sampler meets them.
#[derive(Debug)]
pub struct Weights<'a, W> {
    pub model: &'a W,
    /// Updates that made them. A sampler elsewhere fetches them where this is new to it.
    pub version: u64,
}

pub trait Sampler<W> {
    /// Samples every request's completions with these weights: one group for each request, in order. A group may
    /// have lost rollouts (D6).
    fn sample(
        &mut self,
        weights: Weights<'_, W>,
        requests: &[GroupRequest<'_>],
        settings: &SampleSettings<'_>,
    ) -> Result<Vec<Sampled>>;

    /// Where it tells how far it is, if it does.
    fn set_meter(&mut self, _meter: Meter) {}
}

/// Where the weights lie and updates are made.
pub trait Learner {
    type Model;

    fn weights(&self) -> Weights<'_, Self::Model>;

    /// Computes the loss of a mini-batch and its gradient, and returns its numbers.
    fn gradient(&mut self, loss: &Loss, groups: &[TokenGroup], batching: Batching)
    -> Result<Stats>;

    /// Puts the log-probabilities of the weights of this moment in the place of the recorded ones, where a ratio is
    /// taken to them ([`hapo_core::Ratio::Rescored`]).
    fn rescore(&mut self, groups: &mut [TokenGroup], batching: Batching) -> Result<()>;

    /// Scores every request with the weights of this moment: one answer for each, in order.
    ///
    /// # Errors
    /// A request that does not fit the model, no memory.
    fn score(
        &mut self,
        requests: &[ScoreRequest<'_>],
        batching: Batching,
    ) -> Result<Vec<TokenScores>>;

    fn gradient_norm(&self) -> Result<f64>;

    /// Clips the gradient, whose global norm is `norm`, and makes one update.
    ///
    /// # Errors
    /// A device that failed: nothing may be made of the weights then.
    fn apply(&mut self, settings: AdamW, norm: f64, max_norm: f64) -> Result<()>;

    /// True if the norm of the weights is a finite number.
    fn weights_are_finite(&self) -> Result<bool>;

    /// Gives back the memory that only training uses, where that is cheap: something is sampled next.
    fn release_training_memory(&mut self) {}

    /// Mean KL of the rollouts' tokens to the initial weights (D18). Is `None` where these are not kept, or nothing
    /// was sampled.
    fn kl_to_initial(&mut self, groups: &[TokenGroup], batching: Batching) -> Result<Option<f64>>;

    /// The largest difference between a log-probability that was recorded while sampling and that of the weights of
    /// this moment, over the groups that have a signal. Is `None` where it cannot be measured.
    fn sampler_gap(&mut self, groups: &[TokenGroup], batching: Batching) -> Result<Option<f64>>;

    /// Bytes of weights, gradients, moments and the copy for the KL, and of weights that are not trained.
    fn state_bytes(&self) -> u64;

    /// The most bytes of the device in use at once since the last call; `None` where nothing says so.
    fn peak_bytes(&self) -> Option<u64> {
        None
    }

    /// Forward products so far whose rows may depend on the rows beside them; `None` where nothing counts them.
    fn refused_products(&self) -> Option<u64> {
        None
    }

    /// Writes the weights as a model folder, or their adapter as one of PEFT's, and beside it what [`Learner::restore`] reads.
    fn save(&self, folder: &Path, files: ModelFiles<'_>) -> Result<()>;

    /// Puts the state in `folder` back, bit for bit, as that after `updates` updates.
    fn restore(&mut self, folder: &Path, updates: u64) -> Result<()>;

    /// Where it tells how far it is, if it does.
    fn set_meter(&mut self, _meter: Meter) {}

    fn meter(&self) -> Meter {
        Meter::default()
    }
}

/// How a mini-batch is run. None of it changes the loss.
#[derive(Clone, Copy, Debug)]
pub struct Batching {
    pub micro_batch_tokens: usize,
    /// 1 ÷ sampling temperature: that of the ratio's log-probabilities (D25).
    pub inverse_temperature: f32,
}

/// The contents of a folder besides the weights or the adapter.
#[derive(Clone, Copy, Debug)]
pub struct ModelFiles<'a> {
    pub base: AdapterNote<'a>,
    pub dtype: Dtype,
    /// Files of the tokenizer: name and bytes.
    pub tokenizer_files: &'a [(&'static str, Vec<u8>)],
}

pub(crate) struct Engines<'a, L: Learner> {
    pub(crate) learner: &'a mut L,
    pub(crate) sampler: &'a mut dyn Sampler<L::Model>,
    /// The second model, where something reads its log-probabilities (D38).
    pub(crate) reference: Option<&'a mut dyn Scorer>,
    /// How rollouts are scored, where `π_old` is the learner's own forward pass (D41).
    pub(crate) rescoring: Option<Batching>,
}

impl<L: Learner> Engines<'_, L> {
    pub(crate) fn sample(
        &mut self,
        requests: &[GroupRequest<'_>],
        settings: &SampleSettings<'_>,
    ) -> Result<Vec<Sampled>> {
        self.learner.release_training_memory();
        let sampled = self.sampler.sample(self.learner.weights(), requests, settings)?;
        match self.rescoring {
            Some(batching) => rescored(self.learner, requests, sampled, batching),
            None => Ok(sampled),
        }
    }
}

/// The rollouts with the learner's own numbers as `π_old`, and the sampler's beside them (D41).
fn rescored<L: Learner>(
    learner: &mut L,
    requests: &[GroupRequest<'_>],
    sampled: Vec<Sampled>,
    batching: Batching,
) -> Result<Vec<Sampled>> {
    let inverse_temperature = batching.inverse_temperature;
    let pairs = requests.iter().zip(&sampled);
    let scored: Vec<_> = pairs
        .flat_map(|(request, it)| it.group.rollouts().iter().map(move |rollout| (request, rollout)))
        .map(|(request, rollout)| {
            ScoreRequest::new(request.tokens, &rollout.tokens, inverse_temperature)
        })
        .collect();
    let mut scores = learner.score(&scored, batching)?.into_iter();
    let of_group = |it: Sampled| {
        let (mut rollouts, mut details) = (it.group.rollouts().to_vec(), it.details);
        for (rollout, details) in rollouts.iter_mut().zip(&mut details) {
            let own = scores.next().expect("every rollout is scored");
            rollout.sampler_log_probs = std::mem::replace(&mut rollout.log_probs, own.log_probs);
            details.entropies = own.entropies;
        }
        let (prompt, requested) = (it.group.prompt(), it.group.requested());
        Sampled { group: SampledGroup::new(prompt, requested, rollouts), details }
    };
    Ok(sampled.into_iter().map(of_group).collect())
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
        requests: &[GroupRequest<'_>],
        settings: &SampleSettings<'_>,
    ) -> Result<Vec<Sampled>> {
        let watch = Watch {
            tokenizer: &self.chat_format.tokenizer,
            stop_strings: &self.stop_strings,
            progress: &|share| self.meter.tell("sampling", share),
        };
        sample_watched(weights.model, requests, settings, watch)
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
