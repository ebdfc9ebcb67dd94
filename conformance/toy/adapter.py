"""The adapter of the toy trainer: one real optimiser step for each case."""

import torch

from lossproof import NotApplicable, micro_batches
from toy import trainer


def step(case, cut):
    if case["kind"] not in ("loss", "law") or set(case["hyper"]) - {"surrogate", "clip_low", "clip_high", "aggregate"}:
        raise NotApplicable("only the clipped surrogate")
    if (case["hyper"]["surrogate"], case["hyper"]["aggregate"]) != ("ppo", "token-mean") or case.get("layout"):
        raise NotApplicable("only by token mean")
    batch, cuts = case["batch"], micro_batches(cut)
    order, size = [i for micro in cuts for i in micro], len(cuts[0])
    if any(len(micro) != size for micro in cuts) or any(0 in mask for mask in batch["mask"]) or [] in batch["logp"]:
        raise NotApplicable("micro-batches of one size, no masked token")
    state = iter(range(10_000))  # Each token has a state of its own, so its log-probability can be set freely.
    states = [[next(state) for _ in row] for row in batch["logp"]]
    policy = trainer.Policy(sum(map(len, states)), 4)
    p = torch.tensor([x for row in batch["logp"] for x in row], dtype=torch.float64).exp()
    policy.table.data[:, 0], policy.table.data[:, 1:] = p.log(), ((1 - p) / 3).log()[:, None]
    before = policy.table.detach().clone()
    rows = [
        trainer.Rollout(states[i], [0] * len(states[i]), batch["old_logp"][i], batch["advantage"][i]) for i in order
    ]
    settings = trainer.Settings(case["hyper"]["clip_low"], case["hyper"]["clip_high"], micro_batch=size)
    loss = trainer.train_step(policy, rows, settings)
    slope = (before - policy.table.detach())[:, 0] / (1 - p)  # d log p / d logit at the token is 1 − p.
    return {"loss": loss, "grad": [[float(slope[s]) for s in row] for row in states]}


train_step = step
