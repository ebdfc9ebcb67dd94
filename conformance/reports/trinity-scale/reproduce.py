"""pip install trinity-rft==0.6.0 verl==0.9.1 torch; prints the step's gradient over that of the uncut batch."""

import torch
from trinity.algorithm.policy_loss_fn.ppo_policy_loss import PPOPolicyLossFn

torch.manual_seed(0)
old = -torch.rand(6, 8, dtype=torch.float64)
advantages = torch.tensor([1.0, -0.5, -0.5, -1.0, 0.5, 0.5], dtype=torch.float64)[:, None].expand(6, 8)
loss_fn = PPOPolicyLossFn(clip_range=0.2, loss_agg_mode="seq-mean-token-mean")


def gradient(micro_batches):
    logp = (old + 0.05).requires_grad_()
    for rows in micro_batches:  # trinity/trainer/verl/losses.py returns this; verl's FSDP engine calls backward on it.
        mask = torch.ones(len(rows), 8)
        loss, _ = loss_fn(logprob=logp[rows], old_logprob=old[rows], action_mask=mask, advantages=advantages[rows])
        loss.backward()
    return logp.grad


whole = gradient([[0, 1, 2, 3, 4, 5]])
for cut in ([[0, 1, 2], [3, 4, 5]], [[0, 1], [2, 3], [4, 5]], [[0], [1], [2], [3], [4], [5]]):
    print(len(cut), "micro-batches:", round(float((gradient(cut) * whole).sum() / (whole * whole).sum()), 6))
