"""TRL (Apache-2.0): `GRPOTrainer._compute_loss`, called unbound with recorded log-probabilities.

The trainer divides by the accumulation itself, so what it returns goes to `backward` (`GRPOTrainer.__init__` switches
the scaling of transformers' Trainer off). `local` has the loss type `bnpo` where a case asks for the token mean. Its
SFT is transformers' `ForCausalLMLoss` with `num_items_in_batch` over the accumulated micro-batches, as
`Trainer.get_batch_samples` counts it.
"""

from __future__ import annotations

from collections import defaultdict
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from transformers.loss.loss_utils import ForCausalLMLoss
from trl.trainer.grpo_trainer import GRPOTrainer

from lossproof.adapters._torch import (
    Micro,
    Window,
    accumulate,
    bnpo_only,
    one_size,
    only,
    trl_settings,
    two_token_logits,
)
from lossproof.cases import Case, Cut, NotApplicable

engine = "TRL"
licence = "Apache-2.0"
adapter_version = "2"
about = "GRPOTrainer._compute_loss with loss types dapo, grpo, dr_grpo, luspo, cispo, sapo and vespo; SFT by ForCausalLMLoss."
definitions = {"agg/cispo/both": "upper-only"}
VESPO = {"k_positive": "vespo_k_pos", "lambda_positive": "vespo_lambda_pos", "k_negative": "vespo_k_neg",
         "lambda_negative": "vespo_lambda_neg"}  # fmt: skip
OLD = tuple(int(it) for it in version("trl").split(".")[:2]) < (1, 10)


def engine_version() -> str:
    return version("trl")


def step(case: Case, cut: Cut | None) -> dict[str, Any]:
    return _step(case, cut, "dapo")


def local(case: Case, cut: Cut | None) -> dict[str, Any]:
    """`bnpo`: documented as the mean of local means."""
    bnpo_only(case)
    return _step(case, cut, "bnpo")


local.row = "TRL, loss type bnpo"  # type: ignore[attr-defined]


def _step(case: Case, cut: Cut | None, by_token: str) -> dict[str, Any]:
    if case["kind"] not in ("loss", "law") or cut is None:
        raise NotApplicable("advantages are an expression inside a method that generates")
    hyper = only(case, "surrogate", "ratio_cap", "kl", "beta", "entropy_coef", "off_policy_limit",
                 "temperature_positive", "temperature_negative", *VESPO)  # fmt: skip
    if hyper.get("kl") == "k3-times-ratio":
        hyper = {**hyper, "kl": "k3", "kl_times_ratio": True}
    settings = trl_settings(hyper, by_token)
    newer = {"entropy_coef", "off_policy_limit", "kl_times_ratio", *VESPO} & {key for key, it in hyper.items() if it}
    if OLD and (newer or hyper["aggregate"] == "seq-mean-token-sum"):
        raise NotApplicable("no such loss in this version")
    one_size(cut)

    def loss(micro: Micro, window: Window) -> Tensor:
        if hyper["surrogate"] == "nll":
            return supervised(micro, window)
        return surrogate(micro, window, settings, hyper)

    return accumulate(case, cut, loss, windows=hyper["surrogate"] != "nll")


def train_step(case: Case, cut: Cut | None) -> dict[str, Any]:
    """Real optimiser steps by GRPOTrainer or SFTTrainer."""
    assert cut is not None
    hyper = only(case, "surrogate", "ratio_cap", "temperature_positive", "temperature_negative")
    settings = trl_settings(hyper)
    one_size(cut)
    if hyper["surrogate"] == "none":
        raise NotApplicable("a policy's term")
    from lossproof.adapters._trl_trainer import train

    if hyper["surrogate"] == "nll":
        return train(case, cut, {})
    return train(
        case,
        cut,
        {"epsilon" if key == "epsilon_low" else key: value for key, value in settings.items() if key != "beta"}
        | {
            "delta": hyper.get("ratio_cap"),
            "sapo_temperature_pos": hyper.get("temperature_positive", 1.0),
            "sapo_temperature_neg": hyper.get("temperature_negative", 1.05),
        },
    )


def surrogate(micro: Micro, window: Window, settings: dict[str, Any], hyper: dict[str, Any]) -> Tensor:
    rows, width = micro.logp.shape
    ids = torch.ones(rows, width, dtype=torch.long)
    inputs = {
        "prompt_ids": ids[:, :1],
        "prompt_mask": ids[:, :1],
        "completion_ids": ids,
        "completion_mask": micro.mask.long(),
        "advantages": micro.advantage * (0.0 if hyper["surrogate"] == "none" else 1.0),
        "old_per_token_logps": micro.old,
        "ref_per_token_logps": micro.ref,
        "sampling_per_token_logps": micro.sampler,
        "num_items_in_batch": torch.tensor(float(window.generation_tokens)),
    }
    return GRPOTrainer._compute_loss(trainer(micro, window, settings, hyper), None, inputs)


def trainer(micro: Micro, window: Window, settings: dict[str, Any], hyper: dict[str, Any]) -> SimpleNamespace:
    """The attributes that `_compute_loss` reads. Log-probabilities are the recorded ones."""
    coefficient = hyper.get("entropy_coef") or 0.0
    outputs = (micro.logp, micro.entropy) if OLD else (micro.logp, micro.entropy, None)
    return SimpleNamespace(
        **settings,
        _get_per_token_logps_and_entropies=lambda *_, **__: outputs,
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=hyper.get("off_policy_limit"),
        get_off_policy_mask=getattr(GRPOTrainer, "get_off_policy_mask", None),
        get_gamma_weights=getattr(GRPOTrainer, "get_gamma_weights", None),
        use_vllm=False,
        vllm_importance_sampling_correction=False,
        use_liger_kernel=False,
        entropy_coef=coefficient,
        _entropy_bonus_enabled=coefficient != 0.0,
        use_adaptive_entropy=False,
        model=SimpleNamespace(training=True),
        current_gradient_accumulation_steps=window.micros,
        accelerator=SimpleNamespace(
            num_processes=1,
            sync_gradients=False,
            gather=lambda it: it,
            gather_for_metrics=lambda it: it,
            reduce=lambda it, reduction=None: it,
        ),
        _metrics={"train": defaultdict(list)},
        args=SimpleNamespace(
            use_bias_correction_kl=hyper.get("kl_times_ratio", False),
            **{word: hyper.get(key) for key, word in VESPO.items()},
            delta=hyper.get("ratio_cap"),
            steps_per_generation=window.generation_micros,
            sapo_temperature_pos=hyper.get("temperature_positive", 1.0),
            sapo_temperature_neg=hyper.get("temperature_negative", 1.05),
        ),
    )


def supervised(micro: Micro, window: Window) -> Tensor:
    """Labels are shifted by the loss, so a first position without a label stands in front."""
    logits = two_token_logits(micro.logp)
    rows, _, size = logits.shape
    logits = torch.cat([logits, torch.zeros(rows, 1, size, dtype=logits.dtype)], dim=1)
    labels = torch.where(micro.mask.bool(), 0, -100)
    labels = torch.cat([torch.full((rows, 1), -100), labels], dim=1)
    return ForCausalLMLoss(logits, labels, vocab_size=size, num_items_in_batch=torch.tensor(window.tokens))
