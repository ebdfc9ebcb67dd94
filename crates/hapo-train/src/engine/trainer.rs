//! A model under training: weights, gradient, moments, and the two things done with them.

use hapo_core::{Divisors, Loss, SpanTerms, SpanTokens, TokenScores};
use hapo_kernels::{AdamW, Cpu, Device};
use hapo_model::{ActivationCheckpointing, Gradients, Model, Moments, Outputs, Tape, WeightsCopy};

use crate::engine::scorer::{ScoreRequest, score_with};
use crate::observe::stats::{Over, Stats};
use crate::pack::{Batching, MicroBatch, Sequence, TokenGroup, pack};
use crate::{Result, observe::Meter};

#[derive(Debug)]
pub struct Weights<'a, W> {
    pub model: &'a W,
    /// Updates that made them. A sampler elsewhere fetches them where this is new to it.
    pub version: u64,
}

#[derive(Debug)]
pub struct Trainer<D: Device = Cpu> {
    /// The weights; the sampler borrows the same ones.
    pub model: Model<D>,
    pub(crate) tape: Tape<D>,
    pub gradients: Gradients<D>,
    pub(crate) moments: Moments<D>,
    pub(crate) updates: u64,
    /// The weights to measure the KL to, where it is measured (D18).
    initial: Option<WeightsCopy<D>>,
    pub(crate) meter: Meter,
    /// Targets of the mini-batch at hand that have their gradient.
    trained: usize,
}

/// The largest difference between a log-probability recorded while sampling and the trainer's.
pub(crate) const SAMPLER_GAP: &str = "sampler/logprob_gap_max";

fn record_policy(stats: &mut Stats, terms: SpanTerms, of: SpanTokens, is_moved: bool) {
    let tokens = of.log_probs.len();
    stats.total("policy/loss", Over::FirstPass, -terms.objective);
    stats.mean("policy/clip_fraction", Over::AllPasses, terms.clipped as f64, tokens);
    stats.mean("policy/ratio_mean", Over::AllPasses, terms.ratio_sum, tokens);
    stats.max("policy/ratio_max", Over::AllPasses, terms.ratio_max);
    if !is_moved {
        let gaps = of.log_probs.iter().zip(of.old_log_probs);
        let gaps = gaps.map(|(new, old)| f64::from((new - old).abs()));
        stats.max(SAMPLER_GAP, Over::FirstUpdate, gaps.fold(0.0, f64::max));
    }
}

fn record_teacher(stats: &mut Stats, terms: SpanTerms, of: SpanTokens) {
    let tokens = of.log_probs.len();
    let prob = of.log_probs.iter().map(|it| libm::exp(f64::from(*it))).sum();
    let entropy = of.entropies.iter().map(|it| f64::from(*it)).sum();
    stats.total("teacher/loss", Over::FirstPass, -terms.objective);
    stats.mean("teacher/mean_prob", Over::FirstPass, prob, tokens);
    stats.mean("teacher/entropy", Over::FirstPass, entropy, tokens);
}

/// The loss that was minimised, both terms.
pub fn loss_of(stats: &Stats) -> f64 {
    let part = |name| stats.value(name).unwrap_or(0.0);
    part("policy/loss") + part("teacher/loss")
}

impl<D: Device> Trainer<D> {
    pub fn new(model: Model<D>, recompute: ActivationCheckpointing) -> Result<Self> {
        let moments = Moments::new(&model)?;
        Self::with_moments(model, recompute, moments)
    }

    /// The same, with moments in a format of the caller's.
    pub fn with_moments(
        model: Model<D>,
        recompute: ActivationCheckpointing,
        moments: Moments<D>,
    ) -> Result<Self> {
        let gradients = model.gradients()?;
        Ok(Self {
            model,
            tape: Tape::new(recompute),
            gradients,
            moments,
            updates: 0,
            initial: None,
            meter: Meter::default(),
            trained: 0,
        })
    }

    fn accumulate(
        &mut self,
        of: &MiniBatch,
        wanted: fn(&Sequence) -> bool,
        stats: &mut Stats,
    ) -> Result<()> {
        let MiniBatch { groups, batching, .. } = *of;
        let run = groups.iter().filter(|it| it.has_signal).flat_map(|it| &it.sequences);
        let all: usize = run.filter(|it| !it.spans.is_empty()).map(|it| it.response.len()).sum();
        let picked = |group: &TokenGroup, sequence: &Sequence| {
            group.has_signal && !sequence.spans.is_empty() && wanted(sequence)
        };
        for micro_batch in pack(groups, batching, picked) {
            let outputs = self.tape.forward(&self.model, &micro_batch.packed)?;
            let n = outputs.log_probs.len();
            let mut slopes = [vec![0.0; n], vec![0.0; n]];
            stats.merge(&micro_batch_loss(of, &micro_batch, &outputs, &mut slopes));
            self.tape.backward(&self.model, &slopes[0], &slopes[1], &mut self.gradients)?;
            self.trained += n;
            self.meter.tell("training", self.trained as f64 / all.max(1) as f64);
        }
        Ok(())
    }

    /// Keeps the weights of this moment as those that [`Trainer::kl_to_initial`] measures from.
    pub(crate) fn keep_initial(&mut self) -> Result<()> {
        self.initial = Some(self.model.copy_trained()?);
        Ok(())
    }

    /// The log-probability of every sampled token by the weights of this moment, and the recorded one.
    fn each_rollout_token(
        &mut self,
        groups: &[TokenGroup],
        batching: Batching,
        wanted: impl Fn(&TokenGroup) -> bool,
        mut take: impl FnMut(f32, f32),
    ) -> Result<()> {
        let picked = |group: &TokenGroup, sequence: &Sequence| {
            wanted(group) && !sequence.is_teacher() && !sequence.is_moved
        };
        for micro_batch in pack(groups, batching, picked) {
            let outputs = self.tape.forward(&self.model, &micro_batch.packed)?;
            for (group, sequence, targets) in &micro_batch.spans {
                let old_log_probs = &groups[*group].sequences[*sequence].old_log_probs;
                let now = outputs.log_probs[targets.end - old_log_probs.len()..targets.end].iter();
                now.zip(old_log_probs).for_each(|(now, old)| take(*now, *old));
            }
        }
        Ok(())
    }

    pub fn weights(&self) -> Weights<'_, Model<D>> {
        Weights { model: &self.model, version: self.updates }
    }

    /// Computes the loss of a mini-batch and its gradient, and returns its numbers.
    ///
    /// The teacher's sequences are run first, so that the norm of their gradient alone is known
    /// without a second backward pass; the price is that an injected group's prompt is read twice. A
    /// sequence with tokens of both is run with the rollouts.
    pub fn gradient(
        &mut self,
        loss: &Loss,
        groups: &[TokenGroup],
        batching: Batching,
    ) -> Result<Stats> {
        let sequences = groups.iter().flat_map(|it| &it.sequences);
        let divisors = loss.divisors(sequences.map(|it| (it.response.len(), &*it.spans)));
        self.gradients.clear();
        self.trained = 0;
        let mut stats = Stats::default();
        // A loss is 0 where nothing has a gradient; what is measured on tokens is not there.
        for name in ["policy/loss", "teacher/loss", "teacher/grad_norm"] {
            stats.total(name, Over::FirstPass, 0.0);
        }
        let batch = MiniBatch { loss, groups, batching, divisors };
        self.accumulate(&batch, Sequence::is_teacher, &mut stats)?;
        stats.total("teacher/grad_norm", Over::FirstPass, self.gradient_norm()?);
        self.accumulate(&batch, |it| !it.is_teacher(), &mut stats)?;
        Ok(stats)
    }

    /// Puts the log-probabilities of the weights of this moment in the place of the recorded ones, where a ratio is
    /// taken to them ([`hapo_core::Ratio::Rescored`]).
    pub fn rescore(&mut self, groups: &mut [TokenGroup], batching: Batching) -> Result<()> {
        let picked =
            |group: &TokenGroup, sequence: &Sequence| group.has_signal && sequence.is_rescored();
        for micro_batch in pack(groups, batching, picked) {
            let outputs = self.tape.forward(&self.model, &micro_batch.packed)?;
            for (group, sequence, targets) in micro_batch.spans {
                let rescored = &mut groups[group].sequences[sequence];
                rescored.old_log_probs = outputs.log_probs[targets].to_vec();
                rescored.is_moved = true;
            }
        }
        Ok(())
    }

    /// Scores every request with the weights of this moment, in order. Fails where one does not fit the model, or no memory.
    pub fn score(
        &mut self,
        requests: &[ScoreRequest],
        batching: Batching,
    ) -> Result<Vec<TokenScores>> {
        score_with(&self.model, &mut self.tape, requests, batching.micro_batch_tokens)
    }

    pub fn gradient_norm(&self) -> Result<f64> {
        let norm = self.model.gradient_norms(&self.gradients).iter().sum::<f64>().sqrt();
        self.model.device().check()?;
        Ok(norm)
    }

    /// Clips the gradient, whose global norm is `norm`, and makes one update. Fails where the device failed: nothing may be
    /// made of the weights then.
    pub fn apply(&mut self, mut settings: AdamW, norm: f64, max_norm: f64) -> Result<()> {
        self.updates += 1;
        settings.step = self.updates;
        // As torch.nn.utils.clip_grad_norm_.
        settings.gradient_scale = (max_norm / (norm + 1e-6)).min(1.0);
        self.gradients.materialize(self.model.device())?;
        self.moments.adamw(&mut self.model, settings, &self.gradients);
        Ok(self.model.device().check()?)
    }

    /// Gives back the memory that only training uses, where that is cheap: something is sampled next.
    pub fn release_training_memory(&mut self) {
        if self.model.device().caps().lends_memory {
            self.gradients.release();
            self.tape.release();
        }
    }

    pub fn weights_are_finite(&self) -> Result<bool> {
        let norm = self.model.trained_squared_norms().iter().sum::<f64>();
        self.model.device().check()?;
        Ok(norm.is_finite())
    }

    /// Mean KL of the rollouts' tokens to the initial weights (D18). Is `None` where these are not kept, or nothing
    /// was sampled.
    ///
    /// The k3 estimator of `KL(π_old ‖ π_initial)`, exp(q) − q − 1 with q = `log π_initial − log π_old`, both at
    /// the sampling temperature.
    pub fn kl_to_initial(
        &mut self,
        groups: &[TokenGroup],
        batching: Batching,
    ) -> Result<Option<f64>> {
        let Some(mut initial) = self.initial.take() else { return Ok(None) };
        let (mut sum, mut tokens) = (0.0, 0_usize);
        let k3 = |initial, old| {
            let q = f64::from(initial) - f64::from(old);
            sum += libm::exp(q) - q - 1.0;
            tokens += 1;
        };
        self.model.swap_trained(&mut initial);
        let measured = self.each_rollout_token(groups, batching, |_| true, k3);
        self.model.swap_trained(&mut initial);
        self.initial = Some(initial);
        measured?;
        Ok((tokens > 0).then(|| sum / tokens as f64))
    }

    /// The largest difference between a log-probability that was recorded while sampling and that of the weights of
    /// this moment, over the groups that have a signal.
    pub fn sampler_gap(&mut self, groups: &[TokenGroup], batching: Batching) -> Result<f64> {
        let mut gap = 0.0;
        let take = |now: f32, old: f32| gap = f64::max(gap, f64::from((now - old).abs()));
        self.each_rollout_token(groups, batching, |it| it.has_signal, take)?;
        Ok(gap)
    }

    /// Bytes of weights, gradients, moments and the copy for the KL, and of weights that are not trained.
    pub fn state_bytes(&self) -> u64 {
        let gradient = (self.model.trained_len() * size_of::<f32>()) as u64;
        let initial = self.initial.as_ref().map_or(0, WeightsCopy::bytes);
        self.model.bytes() as u64 + gradient + self.moments.bytes() + initial
    }
}

/// The groups of one update, and how their loss is computed.
struct MiniBatch<'a> {
    loss: &'a Loss,
    groups: &'a [TokenGroup],
    batching: Batching,
    divisors: Divisors,
}

/// Loss of one micro-batch and its derivative by every log-probability and entropy, span by span.
fn micro_batch_loss(
    MiniBatch { loss, groups, divisors, .. }: &MiniBatch,
    micro_batch: &MicroBatch,
    outputs: &Outputs,
    [d_log_probs, d_entropies]: &mut [Vec<f32>; 2],
) -> Stats {
    let mut stats = Stats::default();
    stats.tokens = micro_batch.packed.tokens.len();
    for (group, sequence, targets) in &micro_batch.spans {
        let sequence = &groups[*group].sequences[*sequence];
        for span in &sequence.spans {
            let at = targets.start + span.tokens.start..targets.start + span.tokens.end;
            let tokens = SpanTokens {
                log_probs: &outputs.log_probs[at.clone()],
                old_log_probs: sequence.old_log_probs(span.tokens.clone()),
                reference: span.reference.as_deref().unwrap_or_default(),
                entropies: &outputs.entropies[at.clone()],
            };
            let (d_log_probs, d_entropies) = (&mut d_log_probs[at.clone()], &mut d_entropies[at]);
            let counted = loss.counted(sequence.response.len(), &sequence.spans);
            let divisor = loss.divisor_of(span, counted, *divisors);
            let terms = loss.span(span, tokens, divisor, d_log_probs, d_entropies);
            if span.is_teacher() {
                record_teacher(&mut stats, terms, tokens);
            } else {
                record_policy(&mut stats, terms, tokens, sequence.is_moved);
            }
        }
    }
    stats
}
