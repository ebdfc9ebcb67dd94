"""OpenRLHF (Apache-2.0): `openrlhf.models.loss.PolicyLoss` and `SFTLoss`.

The scale since 0.10.4: `openrlhf/utils/loss_utils.py` counts tokens and samples over the accumulation window and
divides both by the accumulation, DeepSpeed multiplies by 1/accumulation. Before, DeepSpeed's 1/accumulation alone.
`flash_attn` and `vllm`, which need a GPU, are empty modules here.
"""

from __future__ import annotations

import inspect
import types
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
import transformers
from torch import Tensor

from lossproof.adapters._source import absent
from lossproof.adapters._torch import Micro, Window, accumulate, only
from lossproof.cases import Case, Cut, NotApplicable

absent("flash_attn", "vllm")
transformers.utils.import_utils.PACKAGE_DISTRIBUTION_MAPPING.setdefault("flash_attn", ["absent"])  # type: ignore[attr-defined]

from openrlhf.models.loss import PolicyLoss, SFTLoss  # noqa: E402

engine = "OpenRLHF"
licence = "Apache-2.0"
adapter_version = "1"
about = "PolicyLoss and SFTLoss with the counts of loss_utils.py where the version has them."
definitions = {
    "law/masked-sequence": "not-counted",
    "law/dead-micro-batch": "not-counted",
    "law/empty-response": "not-counted",
    "tis/seq-mask": "token-weights",
    "adv/std": "n-1, epsilon 1e-09",
}
GLOBAL = "batch_num_tokens" in inspect.signature(SFTLoss.forward).parameters


def engine_version() -> str:
    try:
        return version("openrlhf")
    except PackageNotFoundError:
        return ""


def step(case: Case, cut: Cut | None) -> dict[str, Any]:
    if case["kind"] == "advantage":
        return {"advantage": advantages(case)}
    if case["kind"] not in ("loss", "law") or cut is None:
        raise NotApplicable(f"no {case['kind']}")
    hyper = only(case, "surrogate", "dual_clip", "tis")
    if hyper["aggregate"] not in ("token-mean", "seq-mean-token-mean"):
        raise NotApplicable(f"no {hyper['aggregate']}")
    by_token = hyper["aggregate"] == "token-mean"
    function = supervised(by_token) if hyper["surrogate"] == "nll" else policy(hyper, by_token)

    def loss(micro: Micro, window: Window) -> Tensor:
        counts = {}
        if GLOBAL:
            counts = {
                "dp_size": window.ranks,
                "batch_num_tokens": window.tokens / window.micros,
                "global_batch_size": samples(case, window) / window.micros,
            }
        return function(micro, counts) / window.micros

    return accumulate(case, cut, loss, ranks=GLOBAL, windows=True)


def samples(case: Case, window: Window) -> int:
    """Sequences with a token in the loss (`loss_utils.py` counts these)."""
    masks = case["batch"].get("mask")
    return sum(1 for i in window.rows if masks is None or any(masks[i]))


def policy(hyper: dict[str, Any], by_token: bool) -> Any:
    name = hyper["surrogate"]
    if name not in ("ppo", "gspo") or (name == "gspo" and by_token):
        raise NotApplicable(f"no {name}")
    options: dict[str, Any] = {
        "clip_eps_low": hyper["clip_low"],
        "clip_eps_high": hyper["clip_high"],
        "dual_clip": hyper.get("dual_clip"),
        "token_level_loss": by_token,
    }
    parameters = inspect.signature(PolicyLoss.__init__).parameters
    if name == "gspo":
        options["policy_loss_type"] = "gspo"
    if hyper.get("tis"):
        options.update(correction(hyper, parameters))
    options = {key: value for key, value in options.items() if key in parameters or value is not None}
    if missing := set(options) - set(parameters):
        raise NotApplicable(f"no {', '.join(sorted(missing))}")
    module = PolicyLoss(**options)

    def loss(micro: Micro, counts: dict[str, Any]) -> Tensor:
        more = {"rollout_log_probs": micro.sampler} if hyper.get("tis") else {}
        result = module(
            micro.logp,
            micro.old,
            micro.advantage[:, None].expand_as(micro.logp),
            action_mask=micro.mask,
            **more,
            **counts,
        )
        return result[0] if isinstance(result, tuple) else result

    return loss


def correction(hyper: dict[str, Any], parameters: Any) -> dict[str, Any]:
    rule = hyper["tis"]
    if "is_correction_level" not in parameters or rule["level"] == "sequence-product" or hyper.get("divisor") == "kept":
        raise NotApplicable(f"no {rule['level']} {rule['mode']}")
    return {
        "is_correction_level": "token" if rule["level"] == "token" else "seq",
        "is_correction_mode": rule["mode"],
        "is_correction_threshold": [rule.get("low", 0.0), rule["high"]],
    }


def supervised(by_token: bool) -> Any:
    module = SFTLoss(token_level_loss=by_token)
    return lambda micro, counts: module(micro.logp, micro.mask, **counts)


def advantages(case: Case) -> list[float]:
    """`RemoteExperienceMaker.compute_advantages_and_returns`, with a stand-in for the maker."""
    batch, hyper = case["batch"], case["hyper"]
    if not GLOBAL:
        raise NotApplicable("the maker of this version is not stood in for")
    names = {("mean", True): "group_norm", ("mean", False): "dr_grpo", ("leave-one-out", False): "rloo"}
    name = names.get((hyper["baseline"], bool(hyper.get("std"))))
    if name is None or "source" in batch or "trainable" in batch:
        raise NotApplicable("no such baseline")
    return maker_advantages(name, batch)


def maker_advantages(name: str, batch: dict[str, Any]) -> list[float]:
    """Groups are of one size in OpenRLHF, so groups of one size are called together."""
    from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker

    dtype = torch.float32 if batch.get("dtype") == "f32" else torch.float64
    members: dict[int, list[int]] = {}
    for i, group in enumerate(batch["group"]):
        members.setdefault(group, []).append(i)
    result = [0.0] * len(batch["group"])
    for rows in members.values():
        rewards = torch.tensor([batch["reward"][i] for i in rows], dtype=dtype)
        for i, value in zip(rows, normalised(RemoteExperienceMaker, name, rewards), strict=True):
            result[i] = value
    return result


def normalised(maker: Any, name: str, rewards: Tensor) -> list[float]:
    """One group through the maker's method, a token for each response and no KL."""
    from openrlhf.trainer.ppo_utils.experience_maker import Experience

    n = len(rewards)
    space = types.SimpleNamespace
    args = space(
        algo=space(advantage=space(estimator=name, gamma=1.0, lambd=1.0, no_std_norm=True)),
        rollout=space(n_samples_per_prompt=n),
        reward=space(clip_range=None, overlong_buffer_len=None, stop_properly_penalty_coef=None),
    )
    experience = Experience(
        index=list(range(n)),
        rewards=rewards,
        kl=torch.zeros(n, 1, dtype=rewards.dtype),
        action_mask=torch.ones(n, 1, dtype=torch.bool),
        info={},
    )
    stand_in = space(
        strategy=space(args=args),
        advantage_estimator=name,
        kl_ctl=space(value=0.0),
        get_cumulative_returns=lambda *values: maker.get_cumulative_returns(None, *values),
    )
    (experience,) = maker.compute_advantages_and_returns(stand_in, [experience])
    return [float(it) for it in experience.advantages[:, 0]]
