# %% [markdown]
# # The gate for a trainer of one's own
# A trainer has sampled groups of rollouts and their rewards. The gate says where the teacher enters; the decision says
# what every row is worth. With torch the loss follows, value and derivative.

# %%
import numpy as np

import hapo

N, PROMPTS = 4, 3
schedule = hapo.Schedule(group_size=N, steps_per_epoch=20, turn_off_epoch=1.5)
method = hapo.Method("luffy", N, schedule=schedule)
print(f"the teacher leaves for good at step {schedule.extinction}")

# %% One step: three groups, of which the second failed; rows may come in any order.
rewards = [1, 0, 0, 1, 0, 0, 0, 0, 1, 1, 1, 1]
uids = np.repeat(["a", "b", "c"], N)
lengths = np.array([5, 9, 7, 4, 6, 12, 12, 8, 3, 3, 4, 5])
truncated = lengths == 12
decision = hapo.decide(rewards, uids, lengths, truncated, [True] * 12, 1, method=method)
row = int(np.flatnonzero(decision.replaced)[0])
print(f"row {row} of group {uids[row]} gives way: truncated, and the first of the longest")
print("advantages", np.round(decision.advantages, 3))

# %% From log-probabilities to the loss: the policy's rows and the teacher's.
try:
    import torch

    import hapo.torch
except ImportError:
    print("torch is not installed: no loss")
else:
    lengths[row] = 10  # the teacher's trajectory
    mask = torch.arange(lengths.max())[None] < torch.tensor(lengths)[:, None]
    log_probs = torch.full(mask.shape, -1.0, requires_grad=True)
    taught = torch.tensor(decision.replaced)[:, None]
    divisor = hapo.divisor("constant", lengths.tolist(), max_response=12)
    loss = hapo.torch.policy_loss(
        log_probs, log_probs.detach(), mask & ~taught, torch.tensor(decision.advantages), divisor=divisor
    ) + hapo.torch.teacher_loss(
        log_probs, mask & taught, torch.tensor(decision.teacher_weights),
        divisor=divisor, operator=decision.operator, d=decision.d,
    )  # fmt: skip
    loss.backward()
    print(f"loss {loss.item():.6f}, gradient norm {log_probs.grad.norm().item():.6f}")
