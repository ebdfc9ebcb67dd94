"""pip install torch; the expression of OpenRLHF 0.11.2's `group_norm` on groups whose rewards are all one number."""

import torch

for size, reward in ((7, 0.1), (6, 0.3), (16, 0.9), (32, 0.7)):
    rewards = torch.full((1, size), reward)
    # openrlhf/trainer/ppo_utils/experience_maker.py, compute_advantages_and_returns, estimator group_norm
    advantages = (rewards - rewards.mean(-1, keepdim=True)) / (rewards.std(-1, keepdim=True) + 1e-9)
    print(f"{size} rewards of {reward}: advantage {float(advantages[0, 0]):+.3f}, expected 0")
