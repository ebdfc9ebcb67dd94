//! The updates of one batch: every pass visits every mini-batch of prompts once (D19).

use hapo_kernels::{AdamW, Device};

use crate::error::{Error, Result};
use crate::pack::TokenGroup;
use crate::run::Run;
use crate::stats::{Over, Stats};
use crate::trainer::{loss_of, no_tokens};

/// Makes the updates of one batch.
pub(crate) fn update<D: Device>(
    run: &mut Run<D>,
    groups: &[TokenGroup],
    step: u64,
) -> Result<Stats> {
    let objective = run.method.objective().at(step);
    let total_updates = run.total_updates();
    let optim = &run.recipe.raw.optim;
    let per_mini_batch = if optim.mini_batch_prompts == 0 {
        groups.len().max(1)
    } else {
        optim.mini_batch_prompts
    };
    let batching = run.batching();
    let mut stats = no_tokens().of_no_update();
    let (mut updates, mut learning_rate) = (0, 0.0);
    for pass in 0..optim.passes {
        for mini_batch in groups.chunks(per_mini_batch) {
            let mut numbers = run.trainer.gradient(&objective, mini_batch, batching)?;
            let norm = run.trainer.gradient_norm();
            for (what, value) in [("loss", loss_of(&numbers)), ("gradient norm", norm)] {
                if !value.is_finite() {
                    return Err(Error::NotFinite { what, value, step });
                }
            }
            numbers.total("grad_norm", Over::AllPasses, norm);
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
            stats.merge_update(&numbers, pass, updates);
            updates += 1;
        }
    }
    let responses = groups.iter().flat_map(|it| &it.sequences);
    let response_tokens = responses.map(|it| it.response.len()).sum();
    let teacher_tokens = stats.count("teacher/mean_prob") as f64;
    let first_pass = Over::FirstPass;
    stats.mean(
        "teacher/token_share",
        first_pass,
        teacher_tokens,
        response_tokens,
    );
    stats.mean("lr", Over::AllPasses, learning_rate, 1);
    Ok(stats)
}
