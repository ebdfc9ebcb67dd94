//! The updates of one batch: every pass visits every mini-batch of prompts once (D19).

use hapo_kernels::{AdamW, Device};

use crate::error::{Error, Result};
use crate::pack::TokenGroup;
use crate::run::Run;
use crate::trainer::Sums;

/// What the updates of one step did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UpdateReport {
    /// On-policy part of the loss, mean over the first pass's mini-batches.
    pub(crate) policy_loss: f64,
    /// Teacher's part of the loss, likewise.
    pub(crate) teacher_loss: f64,
    /// Teacher tokens over all response tokens of the batch.
    pub(crate) teacher_token_share: f64,
    /// Mean π of the teacher's tokens in the first pass.
    pub(crate) teacher_mean_prob: f64,
    /// Mean entropy of the teacher's tokens in the first pass, at temperature 1.
    pub(crate) teacher_entropy: f64,
    /// Norm of the gradient of the teacher's term alone, mean over the first pass's mini-batches.
    pub(crate) teacher_grad_norm: f64,
    /// Teacher tokens of the first pass.
    pub(crate) teacher_tokens: usize,
    /// On-policy tokens outside the trust region, over all passes.
    pub(crate) clip_fraction: f64,
    /// Mean importance ratio, over all passes.
    pub(crate) ratio_mean: f64,
    /// Largest importance ratio, over all passes.
    pub(crate) ratio_max: f64,
    /// Global gradient norm before clipping, mean over the updates.
    pub(crate) grad_norm: f64,
    /// Learning rate of the last update.
    pub(crate) learning_rate: f64,
    /// Largest |log π recorded while sampling − log π of the trainer| for the same weights.
    pub(crate) log_prob_gap_max: f64,
    /// Tokens run forward and backward, prompts included.
    pub(crate) tokens: usize,
}

/// Makes the updates of one batch.
pub(crate) fn update<D: Device>(
    run: &mut Run<D>,
    groups: &[TokenGroup],
    step: u64,
) -> Result<UpdateReport> {
    let objective = run.method.objective().at(step);
    let total_updates = run.total_updates();
    let optim = &run.recipe.raw.optim;
    let per_mini_batch = if optim.mini_batch_prompts == 0 {
        groups.len().max(1)
    } else {
        optim.mini_batch_prompts
    };
    let batching = run.batching();
    let (mut first_pass, mut all) = (Sums::default(), Sums::default());
    let (mut updates, mut norm_sum, mut learning_rate) = (0_u32, 0.0, 0.0);
    for pass in 0..optim.passes {
        for mini_batch in groups.chunks(per_mini_batch) {
            let mut sums = run.trainer.gradient(&objective, mini_batch, batching)?;
            let norm = run.trainer.gradient_norm();
            for (what, value) in [("loss", sums.loss()), ("gradient norm", norm)] {
                if !value.is_finite() {
                    return Err(Error::NotFinite { what, value, step });
                }
            }
            learning_rate = optim.lr
                * run
                    .recipe
                    .schedule
                    .factor(run.trainer.updates + 1, total_updates, optim.warmup);
            let settings = AdamW {
                learning_rate,
                beta1: optim.betas[0],
                beta2: optim.betas[1],
                epsilon: optim.eps,
                weight_decay: optim.weight_decay,
                step: 0,
                gradient_scale: 1.0,
            };
            run.trainer.apply(settings, norm, optim.max_grad_norm);
            // Only before the first update are the weights those that sampled.
            if updates > 0 {
                sums.log_prob_gap_max = 0.0;
            }
            norm_sum += norm;
            updates += 1;
            if pass == 0 {
                first_pass.merge(sums);
            }
            all.merge(sums);
        }
    }
    let share = |part: f64, whole: usize| if whole == 0 { 0.0 } else { part / whole as f64 };
    let mini_batches = groups.len().div_ceil(per_mini_batch).max(1) as f64;
    let response_tokens = groups
        .iter()
        .flat_map(|it| &it.sequences)
        .map(|it| it.response.len())
        .sum();
    Ok(UpdateReport {
        // Adding zero turns −0, the loss of a batch without signal, into 0.
        policy_loss: -first_pass.policy_objective / mini_batches + 0.0,
        teacher_loss: -first_pass.teacher_objective / mini_batches + 0.0,
        teacher_token_share: share(first_pass.teacher_tokens as f64, response_tokens),
        teacher_mean_prob: share(first_pass.teacher_prob, first_pass.teacher_tokens),
        teacher_entropy: share(first_pass.teacher_entropy, first_pass.teacher_tokens),
        teacher_grad_norm: first_pass.teacher_gradient_norm / mini_batches,
        teacher_tokens: first_pass.teacher_tokens,
        clip_fraction: share(all.clipped as f64, all.policy_tokens),
        ratio_mean: share(all.ratio, all.policy_tokens),
        ratio_max: all.ratio_max,
        grad_norm: norm_sum / f64::from(updates.max(1)),
        learning_rate,
        log_prob_gap_max: all.log_prob_gap_max,
        tokens: all.tokens,
    })
}
