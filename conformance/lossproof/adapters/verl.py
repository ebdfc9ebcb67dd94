"""verl (Apache-2.0): its policy losses with the counts of the whole mini-batch, as its FSDP engine passes them.

The scale: `workers/utils/losses.py ppo_loss` puts dp_size, batch_num_tokens, global_batch_size and loss_scale_factor
into `ActorConfig.global_batch_info`, and the engine calls `backward` on what the loss returns. `alone` leaves these
counts out and divides by the number of micro-batches, as callers of the function by itself do. Dual clip is on by
default at c = 3; where a case has none, c is 1e9.
"""

from __future__ import annotations

from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import Tensor
from verl.trainer.ppo.core_algos import agg_loss, get_adv_estimator_fn, get_policy_loss_fn, kl_penalty
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_weights
from verl.workers.config import ActorConfig, PolicyLossConfig
from verl.workers.utils.losses import ppo_loss, sft_loss

from lossproof.adapters._torch import Batch, Micro, Window, accumulate, only
from lossproof.cases import Case, Cut, NotApplicable

engine = "verl"
licence = "Apache-2.0"
adapter_version = "2"
about = "Policy losses, KL and advantages by verl.trainer.ppo.core_algos with the global counts of ppo_loss."
definitions = {
    "law/masked-sequence": "not-counted",
    "kl/clamped/k3": "delta-20, value-10",
}
SURROGATES = {
    "ppo": "vanilla",
    "gspo": "gspo",
    "cispo": "cispo",
    "sapo": "sapo",
    "gmpo": "geo_mean",
    "reinforce": "gpg",
    "dppo-tv": "dppo_tv",
    "dro": "dro",
}
AGGREGATES = ("token-mean", "token-sum", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm")
KL = {"k1": "k1", "k2": "k2", "k3": "k3", "k3-straight-through": "k3+"}


def engine_version() -> str:
    return version("verl")


def step(case: Case, cut: Cut | None) -> dict[str, Any]:
    if case["kind"] == "advantage":
        return {"advantage": advantages(case)}
    if case["kind"] == "reward":
        return {"reward": rewards(case)}
    loss = loss_of(case, alone=False)
    assert cut is not None
    return accumulate(case, cut, loss, ranks=True, windows=True)


def alone(case: Case, cut: Cut | None) -> dict[str, Any]:
    if case["kind"] not in ("loss", "law") or cut is None:
        raise NotApplicable("losses only")
    return accumulate(case, cut, loss_of(case, alone=True))


alone.row = "verl, function alone"  # type: ignore[attr-defined]


def train_step(case: Case, cut: Cut | None) -> dict[str, Any]:
    """Real optimiser steps by verl's FSDP engine."""
    assert cut is not None
    loss_of(case, alone=False)  # Raises for what verl has no word for.
    hyper = only(case, "surrogate", "dual_clip", "tv_limit", "dro_beta", "temperature_positive", "temperature_negative")
    if hyper["surrogate"] == "none":
        raise NotApplicable("a policy's term")
    from lossproof.adapters._verl_trainer import train

    if hyper["surrogate"] == "nll":
        if hyper["aggregate"] != "token-mean":
            raise NotApplicable("SFT by token mean")
        return train(case, cut, partial(sft_loss, None))
    return train(case, cut, partial(ppo_loss, configuration(hyper)))


def loss_of(case: Case, *, alone: bool) -> Any:
    """The loss of a micro-batch as `ppo_loss` puts it together."""
    hyper = only(case, "surrogate", "dual_clip", "kl", "beta", "entropy_coef", "tis", "tv_limit", "kl_coef", "dro_beta",
                 "temperature_positive", "temperature_negative")  # fmt: skip
    name = hyper["surrogate"]
    if name not in SURROGATES and name not in ("none", "nll"):
        raise NotApplicable(f"no {name}")
    if hyper.get("kl") and hyper["kl"] not in KL:
        raise NotApplicable(f"no {hyper['kl']}")
    if hyper["aggregate"] not in AGGREGATES:
        raise NotApplicable(f"no {hyper['aggregate']}")
    if hyper.get("kl_coef"):
        raise NotApplicable("no squared log-ratio beside DPPO")
    if name == "gspo" and "dual_clip" in hyper:
        raise NotApplicable("GSPO without a dual clip")
    config = configuration(hyper)
    weights = correction(case)

    def loss(micro: Micro, window: Window) -> Tensor:
        if not alone:
            config.global_batch_info.update(
                dp_size=window.ranks,
                batch_num_tokens=window.tokens,
                global_batch_size=len(window.rows),
                loss_scale_factor=config.loss_scale_factor,
            )
        total = policy_loss(micro, config, name, weights)
        share: dict[str, Any] = config.global_batch_info
        if hyper.get("entropy_coef") is not None:
            bonus = agg_loss(loss_mat=micro.entropy, loss_mask=micro.mask, loss_agg_mode=config.loss_agg_mode, **share)
            total = total - hyper["entropy_coef"] * bonus
        if hyper.get("kl"):
            kld = kl_penalty(logprob=micro.logp, ref_logprob=micro.ref, kl_penalty=KL[hyper["kl"]])
            part = agg_loss(loss_mat=kld, loss_mask=micro.mask, loss_agg_mode=config.loss_agg_mode, **share)
            total = total + part * hyper["beta"]
        return total / window.micros if alone else total

    return loss


def policy_loss(micro: Micro, config: ActorConfig, name: str, weights: Tensor | None) -> Tensor:
    if name == "none":
        return torch.zeros((), dtype=micro.logp.dtype)
    if name == "nll":  # workers/utils/losses.py sft_loss: the sum over batch_num_tokens, times dp_size.
        if "batch_num_tokens" not in config.global_batch_info:
            raise NotApplicable("sft_loss needs batch_num_tokens")
        return supervised(micro, config)
    loss, _ = get_policy_loss_fn(SURROGATES[name])(
        old_log_prob=micro.old,
        log_prob=micro.logp,
        advantages=micro.advantage[:, None].expand_as(micro.logp),
        response_mask=micro.mask.bool(),
        loss_agg_mode=config.loss_agg_mode,
        config=config,
        rollout_is_weights=None if weights is None else weights[micro.rows],
    )
    return loss


def supervised(micro: Micro, config: ActorConfig) -> Tensor:
    from tensordict import TensorDict
    from verl.utils import tensordict_utils as tu
    from verl.utils.dataset.dataset_utils import DatasetPadMode

    if config.loss_agg_mode != "token-mean":
        raise NotApplicable("SFT by token mean")
    data = TensorDict({"response_mask": micro.mask.bool()}, batch_size=[len(micro.rows)])
    tu.assign_non_tensor(
        data,
        pad_mode=DatasetPadMode.LEFT_RIGHT,
        dp_size=config.global_batch_info["dp_size"],
        batch_num_tokens=config.global_batch_info["batch_num_tokens"],
    )
    loss, _ = sft_loss(config, {"log_probs": micro.logp}, data)
    return loss


def configuration(hyper: dict[str, Any]) -> ActorConfig:
    name = hyper["surrogate"]
    low, high = hyper.get("clip_low", 0.2), hyper.get("clip_high", 0.2)
    if name == "dppo-tv":
        low = high = hyper["tv_limit"]
    return ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        clip_ratio=low,
        clip_ratio_low=min(low, 1e9),
        clip_ratio_high=min(high, 1e9),
        clip_ratio_c=hyper.get("dual_clip", 1e9),
        loss_agg_mode=hyper["aggregate"],
        loss_scale_factor=hyper.get("length", 12) if hyper["aggregate"] == "seq-mean-token-sum-norm" else None,
        tau_pos=hyper.get("temperature_positive", 1.0),
        tau_neg=hyper.get("temperature_negative", 1.05),
        use_torch_compile=False,
        policy_loss=PolicyLossConfig(loss_mode=SURROGATES.get(name, "vanilla"), dro_beta=hyper.get("dro_beta")),
    )


def correction(case: Case) -> Tensor | None:
    """Rollout correction, over the whole batch before it is cut (`rollout_corr_helper.py`)."""
    rule = case["hyper"].get("tis")
    if rule is None:
        return None
    level, mode = rule["level"], rule["mode"]
    if mode == "clip" and rule.get("low", 0.0) > 0:
        raise NotApplicable("clips above only")
    if level == "sequence-geometric" or case["hyper"].get("divisor") == "kept":
        raise NotApplicable(f"no {level} mask with the tokens kept in the divisor")
    batch = Batch({**case, "layout": case.get("layout", {})})
    whole = batch.micro(list(range(len(case["batch"]["logp"]))))
    threshold = f"{rule['low']}_{rule['high']}" if mode == "mask" else rule["high"]
    weights, _ = compute_rollout_correction_weights(
        whole.old - whole.sampler,
        whole.mask,
        rollout_is="sequence" if level == "sequence-product" else "token",
        rollout_is_threshold=threshold,
    )
    return weights


def advantages(case: Case) -> list[float]:
    batch, hyper = case["batch"], case["hyper"]
    if "source" in batch or "trainable" in batch:
        raise NotApplicable("all members are in the mean")
    name, more = estimator(hyper)
    dtype = torch.float32 if batch.get("dtype") == "f32" else torch.float64
    result, _ = get_adv_estimator_fn(name)(
        token_level_rewards=torch.tensor(batch["reward"], dtype=dtype)[:, None],
        response_mask=torch.ones(len(batch["reward"]), 1, dtype=dtype),
        index=np.array(batch["group"]),
        **more,
    )
    return [float(it) for it in result[:, 0]]


def estimator(hyper: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    if hyper["baseline"] == "leave-one-out":
        if hyper.get("std"):
            raise NotApplicable("no leave-one-out with a deviation")
        return "rloo", {}
    return "grpo", {"norm_adv_by_std_in_grpo": bool(hyper.get("std"))}


def rewards(case: Case) -> list[list[float]]:
    """`trainer/ppo/ray_trainer.py apply_kl_penalty`: β times the estimate is subtracted from token scores."""
    batch, hyper = case["batch"], case["hyper"]
    if any(0 in row for row in batch["mask"]):
        raise NotApplicable("scores are placed by the attention mask, before the mask of the loss")
    result = []
    for i, old in enumerate(batch["old_logp"]):
        kld = kl_penalty(torch.tensor(old), torch.tensor(batch["ref_logp"][i]), kl_penalty=KL[hyper["kl"]])
        scores = torch.zeros(len(old), dtype=kld.dtype)
        scores[-1] = batch["reward"][i]
        result.append((scores - hyper["beta"] * kld).tolist())
    return result
