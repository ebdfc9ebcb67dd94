"""Liger (BSD-2-Clause): `LigerFusedLinearGRPOFunction.ppo_loss_fn`, the loss inside its fused GRPO kernel.

`step` passes `num_items_in_batch` and divides the local means by the accumulation, as TRL's trainer for it does. `alone`
leaves the count out, as a caller that knows one micro-batch does.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import torch
from liger_kernel.chunked_loss.grpo_loss import LigerFusedLinearGRPOFunction
from torch import Tensor

from lossproof.adapters._torch import Micro, Window, accumulate, one_size, only, trl_settings
from lossproof.cases import Case, Cut, NotApplicable

engine = "Liger"
licence = "BSD-2-Clause"
adapter_version = "1"
about = "LigerFusedLinearGRPOFunction.ppo_loss_fn with num_items_in_batch of the optimiser step."
definitions = {"agg/cispo/both": "upper-only"}


def engine_version() -> str:
    return version("liger-kernel")


def step(case: Case, cut: Cut | None) -> dict[str, Any]:
    return _step(case, cut, counts=True)


def alone(case: Case, cut: Cut | None) -> dict[str, Any]:
    """Without the count of the step: the divisor is the micro-batch's own."""
    return _step(case, cut, counts=False)


alone.row = "Liger, function alone"  # type: ignore[attr-defined]


def _step(case: Case, cut: Cut | None, *, counts: bool) -> dict[str, Any]:
    if case["kind"] not in ("loss", "law") or cut is None:
        raise NotApplicable("losses only")
    hyper = only(
        case, "surrogate", "ratio_cap", "kl", "beta", "temperature_positive", "temperature_negative", "entropy_coef"
    )
    if hyper["surrogate"] == "nll" or hyper.get("entropy_coef"):
        raise NotApplicable("no such term")
    settings = trl_settings(hyper)
    if settings["loss_type"] == "luspo":
        raise NotApplicable("its luspo multiplies by the length")
    one_size(cut)

    def loss(micro: Micro, window: Window) -> Tensor:
        items = torch.tensor(float(window.tokens)) if counts else None
        value, _ = LigerFusedLinearGRPOFunction.ppo_loss_fn(
            per_token_logps=micro.logp,
            attention_mask=micro.mask,
            advantages=micro.advantage * (0.0 if hyper["surrogate"] == "none" else 1.0),
            full_attention_mask=micro.mask,
            ref_per_token_logps=micro.ref,
            old_per_token_logps=micro.old,
            delta=hyper.get("ratio_cap"),
            sapo_temperature_pos=hyper.get("temperature_positive", 1.0),
            sapo_temperature_neg=hyper.get("temperature_negative", 1.05),
            num_items_in_batch=items,
            **settings,
        )
        whole = counts and settings["loss_type"] in ("dapo", "cispo")
        return value if whole else value / window.micros

    return accumulate(case, cut, loss, windows=True)
