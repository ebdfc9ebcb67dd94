"""SkyRL (Apache-2.0): the policy losses and advantages of `skyrl/backends/skyrl_train/utils/ppo_utils.py`.

The scale: the trainer divides advantages by the mini-batch's counts (`apply_loss_reduction_to_advantages_minibatch`) and
losses are sums; `workers/worker.py` multiplies by the number of ranks, and weights KL and entropy by the micro-batch's
share of the rank's rows. Importance ratios are f32.
"""

from __future__ import annotations

from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lossproof.adapters._source import absent
from lossproof.adapters._torch import Batch, Micro, Window, accumulate, only
from lossproof.cases import Case, Cut, NotApplicable

absent("skyrl.train", "skyrl.backends.backend", "skyrl_gym", "cloudpathlib")

from skyrl.backends.skyrl_train.utils import ppo_utils  # noqa: E402
from skyrl.backends.skyrl_train.utils.torch_utils import masked_mean  # noqa: E402

engine = "SkyRL"
licence = "Apache-2.0"
adapter_version = "1"
about = "Policy losses of ppo_utils.py on advantages that the trainer scaled; KL and entropy as worker.py adds them."
definitions = {"kl/clamped/k3": "delta-20, value-10"}
REDUCTIONS = {
    "token-mean": "token_mean",
    "seq-mean-token-mean": "sequence_mean",
    "seq-mean-token-sum-norm": "seq_mean_token_sum_norm",
    "prompt-mean": "prompt_mean",
}
LOSSES = {"ppo": "regular", "gspo": "gspo", "cispo": "cispo", "sapo": "sapo", "dppo-tv": "dppo", "none": "regular"}


def engine_version() -> str:
    return version("skyrl")


def step(case: Case, cut: Cut | None) -> dict[str, Any]:
    return _step(case, cut, REDUCTIONS)


def legacy(case: Case, cut: Cut | None) -> dict[str, Any]:
    """`token_mean_legacy`: the mean over micro-batches of their own token means."""
    if case["kind"] in ("loss", "law") and case["hyper"].get("aggregate") != "token-mean":
        raise NotApplicable("a token mean")
    if case["kind"] not in ("loss", "law"):
        raise NotApplicable("losses only")
    return _step(case, cut, {"token-mean": "token_mean_legacy"})


legacy.row = "SkyRL, token_mean_legacy"  # type: ignore[attr-defined]


def _step(case: Case, cut: Cut | None, reductions: dict[str, str]) -> dict[str, Any]:
    if case["kind"] == "advantage":
        return {"advantage": advantages(case)}
    if case["kind"] not in ("loss", "law") or cut is None:
        raise NotApplicable(f"no {case['kind']}")
    hyper = only(case, "surrogate", "dual_clip", "kl", "beta", "entropy_coef", "tv_limit", "kl_coef",
                 "temperature_positive", "temperature_negative", "tis")  # fmt: skip
    name, reduction = hyper["surrogate"], reductions.get(hyper["aggregate"])
    if name not in LOSSES or reduction is None:
        raise NotApplicable(f"no {name} by {hyper['aggregate']}")
    if hyper.get("kl") not in (None, "k1", "k2", "k3") or hyper.get("kl_coef") or hyper.get("divisor"):
        raise NotApplicable("no such term")
    if name == "gspo" and "dual_clip" in hyper:
        raise NotApplicable("GSPO without a dual clip")
    if hyper.get("kl") and hyper["aggregate"] != "seq-mean-token-mean":
        raise NotApplicable("its KL is a mean over sequences")
    config = configuration(hyper)
    function = ppo_utils.PolicyLossRegistry.get(config.policy_loss_type)

    def loss(micro: Micro, window: Window) -> Tensor:
        share = len(micro.rows) / (len(window.rows) / window.ranks)
        value, _ = function(
            micro.logp,
            micro.old,
            scaled(case, micro, window, reduction),
            config=config,
            loss_mask=micro.mask,
            rollout_logprobs=micro.sampler if "tis" in hyper else None,
        )
        value = value * window.ranks
        if hyper.get("kl"):
            kl = ppo_utils.compute_approx_kl(micro.logp, micro.ref, loss_mask=micro.mask, kl_estimator_type=hyper["kl"])
            value = value + masked_mean(kl, micro.mask, dim=-1).mean() * hyper["beta"] * share
        if hyper.get("entropy_coef") is not None:
            value = value - masked_mean(micro.entropy, micro.mask) * hyper["entropy_coef"] * share
        return value

    return accumulate(case, cut, loss, ranks=True, windows=True)


def scaled(case: Case, micro: Micro, window: Window, reduction: str) -> Tensor:
    """The rows of this micro-batch among the mini-batch's advantages, which the trainer scales before it cuts."""
    if case["hyper"]["surrogate"] == "none":
        return torch.zeros_like(micro.logp)
    whole = Batch(case).micro(window.rows)
    groups = [case["batch"]["group"][i] for i in window.rows]
    if groups != sorted(groups) and reduction == "prompt_mean":
        raise NotApplicable("a prompt's sequences are neighbours")
    starts = [i for i, group in enumerate(groups) if i == 0 or group != groups[i - 1]]
    result = ppo_utils.apply_loss_reduction_to_advantages_minibatch(
        advantages=whole.advantage[:, None].expand_as(whole.mask) * whole.mask,
        loss_mask=whole.mask,
        loss_reduction=reduction,
        micro_batch_size=len(micro.rows),
        max_seq_len=case["hyper"].get("length", 12),
        prompt_boundaries=list(zip(starts, [*starts[1:], len(groups)], strict=True)),
    )
    return result[[window.rows.index(i) for i in micro.rows]]


def configuration(hyper: dict[str, Any]) -> SimpleNamespace:
    low, high = min(hyper.get("clip_low", 0.2), 1e9), min(hyper.get("clip_high", 0.2), 1e9)
    limit = hyper.get("tv_limit", 0.2)
    return SimpleNamespace(
        policy_loss_type="dual_clip" if "dual_clip" in hyper else LOSSES[hyper["surrogate"]],
        loss_reduction="sequence_mean",
        eps_clip_low=low,
        eps_clip_high=high,
        clip_ratio_c=hyper.get("dual_clip", 3.0),
        cispo=SimpleNamespace(cispo_anchor="old", cispo_eps_clip_low=low, cispo_eps_clip_high=high),
        sapo=SimpleNamespace(
            tau_pos=hyper.get("temperature_positive", 1.0), tau_neg=hyper.get("temperature_negative", 1.05)
        ),
        dppo=SimpleNamespace(dppo_type="binary_tv", delta_low=limit, delta_high=limit),
        off_policy_correction=correction(hyper.get("tis")),
    )


def correction(rule: dict[str, Any] | None) -> SimpleNamespace:
    result = SimpleNamespace(
        tis_ratio_type=None,
        sequence_mask_metric=None,
        outlier_token_is_threshold_low=None,
        outlier_token_is_threshold_high=None,
        token_mask_is_threshold_low=None,
        token_mask_is_threshold_high=None,
    )
    if rule is None:
        return result
    if rule["mode"] != "clip" or rule.get("low"):
        raise NotApplicable("clips above only")
    result.tis_ratio_type = {"token": "token", "sequence-product": "sequence"}.get(rule["level"])
    if result.tis_ratio_type is None:
        raise NotApplicable(f"no {rule['level']}")
    result.token_tis_ratio_clip_high = result.sequence_tis_ratio_clip_high = rule["high"]
    return result


def advantages(case: Case) -> list[float]:
    batch, hyper = case["batch"], case["hyper"]
    if "source" in batch or "trainable" in batch:
        raise NotApplicable("all members are in the mean")
    more, name = {"grpo_norm_by_std": bool(hyper.get("std"))}, "grpo"
    if hyper["baseline"] == "leave-one-out":
        if hyper.get("std"):
            raise NotApplicable("no leave-one-out with a deviation")
        name = "rloo"
    dtype = torch.float32 if batch.get("dtype") == "f32" else torch.float64
    result, _ = ppo_utils.AdvantageEstimatorRegistry.get(name)(
        token_level_rewards=torch.tensor(batch["reward"], dtype=dtype)[:, None],
        response_mask=torch.ones(len(batch["reward"]), 1, dtype=dtype),
        index=np.array(batch["group"]),
        **more,
    )
    return [float(it) for it in result[:, 0]]
