"""A toy trainer: a table of logits for each state, the clipped surrogate, micro-batches, plain SGD."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass
class Settings:
    clip_low: float = 0.2
    clip_high: float = 0.2
    micro_batch: int = 2
    learning_rate: float = 1.0


@dataclass
class Rollout:
    states: list[int]
    tokens: list[int]
    old_log_probs: list[float]
    advantage: float


class Policy(nn.Module):
    """Logits of the next token in each state."""

    def __init__(self, states: int, vocabulary: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(states, vocabulary, dtype=torch.float64))

    def log_probs(self, states: Tensor, tokens: Tensor) -> Tensor:
        return torch.log_softmax(self.table[states], dim=-1).gather(-1, tokens[..., None])[..., 0]


def pad(rows: list[list[float]]) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([row + [0] * (width - len(row)) for row in rows])


def loss_of(policy: Policy, rollouts: list[Rollout], settings: Settings, n_tokens: int) -> Tensor:
    """The clipped surrogate, a mean over the tokens of the optimiser step."""
    states = pad([list(map(float, it.states)) for it in rollouts]).long()
    tokens = pad([list(map(float, it.tokens)) for it in rollouts]).long()
    mask = pad([[1.0] * len(it.tokens) for it in rollouts])
    old = pad([it.old_log_probs for it in rollouts]).double()
    advantage = torch.tensor([it.advantage for it in rollouts], dtype=torch.float64)[:, None]
    ratio = torch.exp(policy.log_probs(states, tokens) - old)
    clipped = ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high)
    objective = torch.minimum(ratio * advantage, clipped * advantage)
    return -(objective * mask).sum() / n_tokens


def train_step(policy: Policy, rollouts: list[Rollout], settings: Settings) -> float:
    """One optimiser step, accumulated over micro-batches."""
    optimiser = torch.optim.SGD(policy.parameters(), lr=settings.learning_rate)
    optimiser.zero_grad()
    n_tokens = sum(len(it.tokens) for it in rollouts)
    total = 0.0
    for start in range(0, len(rollouts), settings.micro_batch):
        loss = loss_of(policy, rollouts[start : start + settings.micro_batch], settings, n_tokens)
        loss.backward()
        total += float(loss.detach())
    optimiser.step()
    return total
