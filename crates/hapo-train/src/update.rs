//! From token groups to new weights: mini-batches, micro-batches, loss, gradient, clipping, AdamW.

use hapo_kernels::{AdamW, Buffer, Device};
use hapo_methods::{Objective, PolicyTokens, SequenceTerms, TeacherTokens};

use crate::error::{Error, Result};
use crate::pack::{MicroBatch, Role, TokenGroup, pack};
use crate::run::Run;

/// What the updates of one step did. Losses are of the first pass over the batch, summed over its
/// mini-batches and averaged; norms are of the last update.
#[derive(Clone, Copy, Debug, Default)]
pub struct UpdateReport {
    /// The loss to be minimised, teacher term included.
    pub loss: f64,
    /// Its on-policy part.
    pub policy_loss: f64,
    /// Its teacher part.
    pub teacher_loss: f64,
    /// Teacher tokens over all response tokens.
    pub teacher_token_share: f64,
    /// Mean π of the teacher's tokens, before the update.
    pub teacher_mean_prob: f64,
    /// On-policy tokens outside the trust region, over all passes.
    pub clip_fraction: f64,
    /// Mean importance ratio, over all passes.
    pub ratio_mean: f64,
    /// Largest importance ratio, over all passes.
    pub ratio_max: f64,
    /// Global gradient norm before clipping, mean over the step's updates.
    pub grad_norm: f64,
    /// Learning rate of the last update.
    pub learning_rate: f64,
    /// Largest |log π recorded while sampling − log π of the trainer| for the same weights.
    pub log_prob_gap_max: f64,
    /// Tokens run forward and backward, prompts included.
    pub tokens: usize,
}

/// Sums over the tokens of one mini-batch.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    policy_objective: f64,
    teacher_objective: f64,
    policy_tokens: usize,
    teacher_tokens: usize,
    teacher_prob: f64,
    clipped: usize,
    ratio: f64,
    ratio_max: f64,
    log_prob_gap_max: f64,
    tokens: usize,
}

impl Sums {
    fn add_policy(&mut self, terms: SequenceTerms, tokens: usize) {
        self.policy_objective += terms.objective;
        self.policy_tokens += tokens;
        self.clipped += terms.clipped;
        self.ratio += terms.ratio_sum;
        self.ratio_max = self.ratio_max.max(terms.ratio_max);
    }

    fn merge(&mut self, it: Sums) {
        self.policy_objective += it.policy_objective;
        self.teacher_objective += it.teacher_objective;
        self.policy_tokens += it.policy_tokens;
        self.teacher_tokens += it.teacher_tokens;
        self.teacher_prob += it.teacher_prob;
        self.clipped += it.clipped;
        self.ratio += it.ratio;
        self.ratio_max = self.ratio_max.max(it.ratio_max);
        self.log_prob_gap_max = self.log_prob_gap_max.max(it.log_prob_gap_max);
        self.tokens += it.tokens;
    }
}

/// Makes the updates of one batch: every pass visits every mini-batch of prompts once (D19).
pub(crate) fn update(run: &mut Run, groups: &[TokenGroup], step: u64) -> Result<UpdateReport> {
    let optim = &run.recipe.raw.optim;
    let per_mini_batch = if optim.mini_batch_prompts == 0 { groups.len().max(1) } else { optim.mini_batch_prompts };
    let passes = optim.passes;
    let (mut first_pass, mut all) = (Sums::default(), Sums::default());
    let (mut updates, mut norm_sum, mut learning_rate) = (0_u32, 0.0, 0.0);
    for pass in 0..passes {
        for (index, mini_batch) in groups.chunks(per_mini_batch).enumerate() {
            let mut sums = gradient(run, mini_batch)?;
            // Only before the first update are the weights those that sampled.
            if pass > 0 || index > 0 {
                sums.log_prob_gap_max = 0.0;
            }
            let loss = -(sums.policy_objective + sums.teacher_objective);
            let (norm, rate) = apply(run, loss, step)?;
            norm_sum += norm;
            learning_rate = rate;
            updates += 1;
            if pass == 0 {
                first_pass.merge(sums);
            }
            all.merge(sums);
        }
    }
    let mini_batches = f64::from(updates) / passes as f64;
    let share = |part: f64, whole: usize| if whole == 0 { 0.0 } else { part / whole as f64 };
    let policy_loss = -first_pass.policy_objective / mini_batches.max(1.0);
    let teacher_loss = -first_pass.teacher_objective / mini_batches.max(1.0);
    Ok(UpdateReport {
        loss: policy_loss + teacher_loss,
        policy_loss,
        teacher_loss,
        teacher_token_share: share(
            first_pass.teacher_tokens as f64,
            groups.iter().flat_map(|it| &it.sequences).map(|it| it.response.len()).sum(),
        ),
        teacher_mean_prob: share(first_pass.teacher_prob, first_pass.teacher_tokens),
        clip_fraction: share(all.clipped as f64, all.policy_tokens),
        ratio_mean: share(all.ratio, all.policy_tokens),
        ratio_max: all.ratio_max,
        grad_norm: norm_sum / f64::from(updates.max(1)),
        learning_rate,
        log_prob_gap_max: all.log_prob_gap_max,
        tokens: all.tokens,
    })
}

/// Gradient of one mini-batch's loss into the run's gradient buffer. The normaliser is that of the
/// whole mini-batch (D16), groups without signal included (D20).
fn gradient(run: &mut Run, groups: &[TokenGroup]) -> Result<Sums> {
    let objective = *run.method.objective();
    let lengths = groups.iter().flat_map(|it| &it.sequences).map(|it| it.response.len());
    let divisor = objective.normaliser.divisor(lengths);
    let inverse_temperature = 1.0 / run.recipe.raw.sampling.temperature;
    run.optimizer.clear_gradient(&run.decoder);
    let mut sums = Sums::default();
    for micro_batch in pack(groups, run.recipe.raw.optim.micro_batch_tokens, inverse_temperature) {
        let outputs = run.decoder.forward(&micro_batch.packed, &mut run.tape)?;
        let n = outputs.log_probs.len();
        let (mut d_log_probs, mut d_entropies) = (vec![0.0; n], vec![0.0; n]);
        let seen = Seen { log_probs: &outputs.log_probs, entropies: &outputs.entropies };
        sums.merge(loss(&objective, groups, &micro_batch, seen, divisor, &mut d_log_probs, &mut d_entropies));
        run.decoder.backward(&micro_batch.packed, &mut run.tape, &d_log_probs, &d_entropies, &mut run.optimizer.gradient)?;
    }
    Ok(sums)
}

/// What the decoder says of a micro-batch's targets.
#[derive(Clone, Copy)]
struct Seen<'a> {
    log_probs: &'a [f32],
    entropies: &'a [f32],
}

/// Loss of one micro-batch and its derivative by every log-probability and entropy.
fn loss(
    objective: &Objective,
    groups: &[TokenGroup],
    micro_batch: &MicroBatch,
    seen: Seen<'_>,
    divisor: f64,
    d_log_probs: &mut [f32],
    d_entropies: &mut [f32],
) -> Sums {
    let mut sums = Sums { tokens: micro_batch.packed.tokens.len(), ..Sums::default() };
    for (group, sequence, targets) in &micro_batch.spans {
        let log_probs = &seen.log_probs[targets.clone()];
        match &groups[*group].sequences[*sequence].role {
            Role::Policy { old_log_probs, advantage } => {
                let tokens = PolicyTokens {
                    log_probs,
                    old_log_probs,
                    entropies: &seen.entropies[targets.clone()],
                    advantage: *advantage,
                };
                let (d_log_probs, d_entropies) = (&mut d_log_probs[targets.clone()], &mut d_entropies[targets.clone()]);
                sums.add_policy(objective.policy_terms(tokens, divisor, d_log_probs, d_entropies), log_probs.len());
                let gap = log_probs.iter().zip(old_log_probs).map(|(new, old)| f64::from((new - old).abs()));
                sums.log_prob_gap_max = gap.fold(sums.log_prob_gap_max, f64::max);
            }
            Role::Teacher { weight } => {
                let tokens = TeacherTokens { log_probs, weight: *weight };
                sums.teacher_objective += objective.teacher_terms(tokens, divisor, &mut d_log_probs[targets.clone()]);
                sums.teacher_tokens += log_probs.len();
                sums.teacher_prob += log_probs.iter().map(|it| f64::from(*it).exp()).sum::<f64>();
            }
        }
    }
    sums
}

/// Clips the gradient by its global norm and makes one `AdamW` step. Returns the norm before
/// clipping and the learning rate.
fn apply(run: &mut Run, loss: f64, step: u64) -> Result<(f64, f64)> {
    let optim = &run.recipe.raw.optim;
    let norm = run.optimizer.gradient_norm(&run.decoder);
    for (what, value) in [("loss", loss), ("gradient norm", norm)] {
        if !value.is_finite() {
            return Err(Error::NotFinite { what, value, step });
        }
    }
    run.optimizer.steps += 1;
    let total = run.total_updates();
    let learning_rate = optim.lr * run.recipe.schedule.factor(run.optimizer.steps, total, optim.warmup);
    let settings = AdamW {
        learning_rate,
        beta1: optim.betas[0],
        beta2: optim.betas[1],
        epsilon: optim.eps,
        weight_decay: optim.weight_decay,
        step: run.optimizer.steps,
        // As torch.nn.utils.clip_grad_norm_.
        gradient_scale: (optim.max_grad_norm / (norm + 1e-6)).min(1.0),
    };
    run.optimizer.apply(&mut run.decoder, settings);
    Ok((norm, learning_rate))
}
