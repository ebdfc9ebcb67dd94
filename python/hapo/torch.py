"""The losses as autograd functions: log-probabilities in, loss out, value and derivative by the code of ``hapo train``.

Each takes a padded batch of B rows and T tokens. The derivative is written straight into torch memory on a CPU; from
another device the log-probabilities are copied to the host, four bytes for each token. The ``plain_`` functions are the
same losses as torch expressions, for compiled graphs and as a check.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from hapo import _hapo


def policy_loss(
    log_probs: Tensor,
    old_log_probs: Tensor,
    mask: Tensor,
    advantages: Tensor,
    *,
    divisor: float,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    importance_ratio_level: str = "token",
    normaliser: str = "constant",
) -> Tensor:
    """−Σ min(r·A, clip(r)·A) / divisor over the masked tokens: (B, T), (B, T), (B, T) of bool, (B,) to a scalar.

    ``divisor`` is that of the whole optimiser step, see ``hapo.divisor``; with the normaliser "sequence-mean" each row
    is divided by its own length too. ``importance_ratio_level`` "sequence" has one ratio for a row.
    """
    return _loss(
        log_probs,
        _hapo.policy_terms,
        _host(old_log_probs, torch.float32),
        _host(mask, torch.bool),
        _host(advantages, torch.float64),
        divisor,
        clip_low=clip_low,
        clip_high=clip_high,
        importance_ratio_level=importance_ratio_level,
        normaliser=normaliser,
    )


def teacher_loss(
    log_probs: Tensor,
    mask: Tensor,
    weights: Tensor,
    *,
    divisor: float,
    operator: str,
    d: float = 0.1,
    normaliser: str = "constant",
) -> Tensor:
    """−Σ λ·F(π) / divisor over the masked tokens: (B, T), (B, T) of bool, (B,) to a scalar."""
    return _loss(
        log_probs,
        _hapo.teacher_terms,
        _host(mask, torch.bool),
        _host(weights, torch.float64),
        divisor,
        operator=operator,
        d=d,
        normaliser=normaliser,
    )


def entropy_factor(entropies: Tensor, mask: Tensor, exponents: Tensor) -> Tensor:
    """exp(k·H) for each row, H the mean entropy of its masked tokens, without a gradient; 1 where k is 0."""
    with torch.no_grad():
        mean = (entropies * mask).sum(1) / mask.sum(1).clamp(min=1)
        return torch.exp(exponents.to(mean) * mean)


def plain_policy_loss(
    log_probs: Tensor,
    old_log_probs: Tensor,
    mask: Tensor,
    advantages: Tensor,
    *,
    divisor: float,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    importance_ratio_level: str = "token",
    normaliser: str = "constant",
) -> Tensor:
    """``policy_loss`` as a torch expression."""
    advantage = advantages[:, None].to(log_probs)
    log_ratio = torch.where(mask, log_probs - old_log_probs, 0.0)
    if importance_ratio_level == "sequence":
        mean = log_ratio.sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)
        log_ratio = mean.expand_as(log_probs)
    ratio = log_ratio.exp()
    kept = torch.minimum(ratio * advantage, ratio.clamp(1 - clip_low, 1 + clip_high) * advantage)
    return -_over(torch.where(mask, kept, 0.0).sum(1), mask, divisor, normaliser)


def plain_teacher_loss(
    log_probs: Tensor,
    mask: Tensor,
    weights: Tensor,
    *,
    divisor: float,
    operator: str,
    d: float = 0.1,
    normaliser: str = "constant",
) -> Tensor:
    """``teacher_loss`` as a torch expression."""
    log_pi = torch.where(mask, log_probs, 0.0)
    pi = log_pi.exp()
    match operator:
        case "luffy":
            value = pi / (pi + d)
        case "srft":
            value = log_pi
        case "trapo":
            value = torch.where(pi < d, pi / d, 1 + torch.log(pi.clamp(min=d) / d))
        case "chord":
            value = pi - pi * pi / 2
        case _:
            names = ", ".join(name for name, _ in _hapo.operators())
            raise ValueError(f"operator: expected one of {names}, got {operator!r}")
    sums = torch.where(mask, value, 0.0).sum(1) * weights.to(log_probs)
    return -_over(sums, mask, divisor, normaliser)


def _over(sums: Tensor, mask: Tensor, divisor: float, normaliser: str) -> Tensor:
    """The sum of rows over the divisor."""
    if normaliser == "sequence-mean":
        sums = sums / mask.sum(1).clamp(min=1)
    return sums.sum() / divisor


class _Loss(torch.autograd.Function):
    """Log-probabilities and what else the terms take, to a loss whose derivative the same call has written."""

    @staticmethod
    def forward(
        ctx: Any,
        log_probs: Tensor,
        terms: Callable[..., tuple[Any, ...]],
        others: tuple[Any, ...],
        options: dict[str, Any],
    ) -> Tensor:
        slopes = torch.empty(log_probs.shape, dtype=torch.float32)
        loss, *_ = terms(_host(log_probs, torch.float32), *others, slopes.numpy(), **options)
        ctx.save_for_backward(slopes.to(log_probs))
        return torch.tensor(loss, dtype=torch.float32, device=log_probs.device)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        (slopes,) = ctx.saved_tensors
        return slopes * grad.to(slopes), None, None, None


def _loss(log_probs: Tensor, terms: Callable[..., tuple[Any, ...]], *others: Any, **options: Any) -> Tensor:
    """The function on its arguments. torch has no type for it."""
    result: Tensor = _Loss.apply(log_probs, terms, others, options)
    return result


def _host(it: Tensor, dtype: torch.dtype) -> Any:
    """The numbers as a contiguous array of the host; without a copy where they are one."""
    return it.detach().to(device="cpu", dtype=dtype).contiguous().numpy()
