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

from lossproof.adapters._torch import Micro, Window, accumulate, only, two_token_logits
from lossproof.cases import Case, Cut, NotApplicable

engine = "TRL"
licence = "Apache-2.0"
adapter_version = "1"
about = "GRPOTrainer._compute_loss with loss types dapo, grpo, dr_grpo, luspo, cispo and sapo; SFT by ForCausalLMLoss."
definitions = {"agg/cispo/both": "upper-only"}
OLD = tuple(int(it) for it in version("trl").split(".")[:2]) < (1, 10)
LOSS_TYPES = {
    "token-mean": "dapo",
    "seq-mean-token-mean": "grpo",
    "seq-mean-token-sum-norm": "dr_grpo",
    "seq-mean-token-sum": "luspo",
}


def engine_version() -> str:
    return version("trl")


def step(case: Case, cut: Cut | None) -> dict[str, Any]:
    return _step(case, cut, LOSS_TYPES)


def local(case: Case, cut: Cut | None) -> dict[str, Any]:
    """`bnpo`: documented as the mean of local means."""
    if case["hyper"].get("aggregate") != "token-mean" or case["hyper"].get("surrogate") != "ppo":
        raise NotApplicable("bnpo is a token mean of the clipped surrogate")
    return _step(case, cut, {**LOSS_TYPES, "token-mean": "bnpo"})


local.row = "TRL, loss type bnpo"  # type: ignore[attr-defined]


def _step(case: Case, cut: Cut | None, types: dict[str, str]) -> dict[str, Any]:
    if case["kind"] not in ("loss", "law") or cut is None:
        raise NotApplicable("advantages are an expression inside a method that generates")
    hyper = only(
        case, "surrogate", "ratio_cap", "kl", "beta", "entropy_coef", "temperature_positive", "temperature_negative"
    )
    settings = trainer_settings(hyper, types)
    if OLD and (hyper.get("entropy_coef") or hyper["aggregate"] == "seq-mean-token-sum"):
        raise NotApplicable("no such loss in this version")
    if len({len(micro) for ranks in cut["steps"] for micros in ranks for micro in micros}) > 1:
        raise NotApplicable("micro-batches of one size")

    def loss(micro: Micro, window: Window) -> Tensor:
        if hyper["surrogate"] == "nll":
            return supervised(micro, window)
        return surrogate(micro, window, settings, hyper)

    return accumulate(case, cut, loss, windows=hyper["surrogate"] != "nll")


def trainer_settings(hyper: dict[str, Any], types: dict[str, str]) -> dict[str, Any]:
    name = hyper["surrogate"]
    kind = {"cispo": "cispo", "sapo": "sapo"}.get(name) or types.get(hyper["aggregate"], "")
    wanted = {"cispo": "token-mean", "sapo": "seq-mean-token-mean"}.get(name, hyper["aggregate"])
    if name not in ("ppo", "gspo", "cispo", "sapo", "none", "nll") or not kind or wanted != hyper["aggregate"]:
        raise NotApplicable(f"no {name} by {hyper['aggregate']}")
    if name == "nll" and hyper["aggregate"] != "token-mean":
        raise NotApplicable("SFT by token mean")
    if hyper.get("kl", "k3") not in ("k3", "k3-with-score-term"):
        raise NotApplicable(f"no {hyper['kl']}")
    if hyper.get("kl") == "k3-with-score-term":
        raise NotApplicable("its correction of the KL is by the ratio to the old policy")
    # In CISPO `epsilon_high` bounds the ratio itself.
    high = 1 + hyper.get("clip_high", 0.2) if name == "cispo" else hyper.get("clip_high", 0.2)
    return {
        "loss_type": kind,
        "epsilon_low": min(hyper.get("clip_low", 0.2), 1e9),
        "epsilon_high": min(high, 1e9),
        "importance_sampling_level": "sequence" if name == "gspo" else "token",
        "beta": hyper.get("beta", 0.0),
        "max_completion_length": hyper.get("length", 12),
    }


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
        off_policy_mask_threshold=None,
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
            use_bias_correction_kl=False,
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
