"""pip install verl==0.9.1 torch; prints the step's gradient over that of the uncut batch."""

import torch
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.workers.config import ActorConfig

torch.manual_seed(0)
old = -torch.rand(6, 8, dtype=torch.float64)
advantages = torch.tensor([1.0, -0.5, -0.5, -1.0, 0.5, 0.5], dtype=torch.float64)[:, None].expand(6, 8)


def gradient(name, micro_batches):
    config = ActorConfig(
        strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, loss_agg_mode="seq-mean-token-mean"
    )
    # As workers/utils/losses.py ppo_loss sets it.
    config.global_batch_info.update(dp_size=1, batch_num_tokens=48, global_batch_size=6, loss_scale_factor=None)
    logp = (old + 0.05).requires_grad_()
    for rows in micro_batches:
        mask = torch.ones(len(rows), 8, dtype=torch.bool)
        loss, _ = get_policy_loss_fn(name)(old[rows], logp[rows], advantages[rows], mask, config.loss_agg_mode, config)
        loss.backward()
    return logp.grad


for name in ("vanilla", "geo_mean"):
    whole, cut = gradient(name, [[0, 1, 2, 3, 4, 5]]), gradient(name, [[0], [1], [2], [3], [4], [5]])
    print(name, "with six micro-batches:", round(float((cut * whole).sum() / (whole * whole).sum()), 6))
