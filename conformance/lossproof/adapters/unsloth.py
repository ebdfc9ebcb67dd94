"""Unsloth Zoo (AGPL-3.0; nothing is copied): `unsloth_zoo.rl_replacements.grpo_compute_loss`, called alone.

It divides by the accumulation itself, with `num_items_in_batch` over the generation batch, so what it returns goes to
`backward`. The package refuses to be imported without a GPU; the function is read from its file.
"""

from __future__ import annotations

import math
from importlib.metadata import distribution, version
from typing import Any

import torch
from torch import Tensor

from lossproof.adapters._source import function_of
from lossproof.adapters._torch import Micro, Window, accumulate, bnpo_only, one_size, only, trl_settings
from lossproof.cases import Case, Cut, NotApplicable

engine = "Unsloth Zoo"
licence = "AGPL-3.0"
adapter_version = "1"
about = "grpo_compute_loss of unsloth_zoo/rl_replacements.py, compiled from its file without the rest of the package."
definitions = {"agg/cispo/both": "upper-only", "kl/clamped/k3": "delta-20, value-10"}
FILE = distribution("unsloth_zoo").locate_file("unsloth_zoo/rl_replacements.py")
grpo_compute_loss = function_of(str(FILE), "grpo_compute_loss", {"torch": torch, "math": math})


def engine_version() -> str:
    return version("unsloth_zoo")


def step(case: Case, cut: Cut | None) -> dict[str, Any]:
    return _step(case, cut, "dapo")


def local(case: Case, cut: Cut | None) -> dict[str, Any]:
    """`bnpo`: the mean of local means."""
    bnpo_only(case)
    return _step(case, cut, "bnpo")


local.row = "Unsloth Zoo, loss type bnpo"  # type: ignore[attr-defined]


def _step(case: Case, cut: Cut | None, by_token: str) -> dict[str, Any]:
    if case["kind"] not in ("loss", "law") or cut is None:
        raise NotApplicable("losses only")
    hyper = only(case, "surrogate", "ratio_cap", "kl", "beta", "temperature_positive", "temperature_negative", "tis")
    if hyper["surrogate"] == "nll":
        raise NotApplicable("no supervised loss")
    settings = trl_settings(hyper, by_token)
    if hyper.get("divisor"):
        raise NotApplicable("rejected tokens stay in the divisor")
    settings.update(correction(hyper))
    one_size(cut)

    def loss(micro: Micro, window: Window) -> Tensor:
        return grpo_compute_loss(
            micro.ref,
            micro.logp,
            micro.old,
            micro.sampler if "tis" in hyper else None,
            torch.zeros_like(micro.logp, dtype=torch.long),
            micro.mask,
            advantages=micro.advantage * (0.0 if hyper["surrogate"] == "none" else 1.0),
            delta=hyper.get("ratio_cap"),
            sapo_temperature_pos=hyper.get("temperature_positive", 1.0),
            sapo_temperature_neg=hyper.get("temperature_negative", 1.05),
            num_items_in_batch=torch.tensor(float(window.generation_tokens)),
            current_gradient_accumulation_steps=window.micros,
            steps_per_generation=window.generation_micros,
            **settings,
        )[0]

    return accumulate(case, cut, loss, windows=True)


def correction(hyper: dict[str, Any]) -> dict[str, Any]:
    rule = hyper.get("tis")
    if rule is None:
        return {}
    level = {"token": "token", "sequence-geometric": "geometric", "sequence-product": "sequence"}[rule["level"]]
    return {
        "use_vllm": True,
        "vllm_importance_sampling_correction": True,
        "vllm_importance_sampling_mode": f"{level}_{'truncate' if rule['mode'] == 'clip' else 'mask'}",
        "vllm_importance_sampling_clip_min": rule.get("low"),
        "vllm_importance_sampling_clip_max": rule["high"],
    }
