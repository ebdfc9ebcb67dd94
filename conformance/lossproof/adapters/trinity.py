"""Trinity-RFT (Apache-2.0): its policy losses, on each of its two paths.

`step` is the path for verl ≥ 0.8: `trinity/trainer/verl/losses.py` returns the loss, and verl's FSDP engine calls
`backward` on it; neither scales it. `legacy` is the path for verl < 0.8: `verl_legacy/dp_actor.py` multiplies by the
share of the micro-batch's rows in the mini-batch. Dual clip is on by default at c = 3; where a case has none, c is 1e9.
"""

from __future__ import annotations

from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from trinity.algorithm.advantage_fn.grpo_advantage import GRPOGroupedAdvantage
from trinity.algorithm.policy_loss_fn.chord_policy_loss import MIXCHORDPolicyLossFn, mu_schedule_function
from trinity.algorithm.policy_loss_fn.cispo_policy_loss import CISPOPolicyLossFn
from trinity.algorithm.policy_loss_fn.gspo_policy_loss import GSPOLossFn
from trinity.algorithm.policy_loss_fn.ppo_policy_loss import PPOPolicyLossFn
from trinity.algorithm.policy_loss_fn.sapo_policy_loss import SAPOPolicyLossFn
from trinity.algorithm.policy_loss_fn.sft_loss import SFTLossFn

from lossproof.adapters._source import absent
from lossproof.adapters._torch import Micro, Window, accumulate, only
from lossproof.cases import Case, Cut, NotApplicable

engine = "Trinity-RFT"
licence = "Apache-2.0"
adapter_version = "1"
about = "Policy losses as trinity/trainer/verl/losses.py passes them to verl's engine: no scale between the two."
definitions = {"law/masked-sequence": "not-counted"}
AGGREGATES = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum")


def engine_version() -> str:
    return version("trinity-rft")


def step(case: Case, cut: Cut | None) -> dict[str, Any]:
    return _step(case, cut, legacy=False)


step.row = "Trinity-RFT, verl ≥ 0.8"  # type: ignore[attr-defined]


def legacy(case: Case, cut: Cut | None) -> dict[str, Any]:
    return _step(case, cut, legacy=True)


legacy.row = "Trinity-RFT, verl < 0.8"  # type: ignore[attr-defined]


def _step(case: Case, cut: Cut | None, *, legacy: bool) -> dict[str, Any]:
    if case["kind"] == "schedule":
        return {"value": [schedule(case["hyper"], at) for at in case["steps"]]}
    if case["kind"] == "advantage":
        return {"advantage": advantages(case)}
    if case["kind"] not in ("loss", "law") or cut is None:
        raise NotApplicable(f"no {case['kind']}")
    function = function_of(case, cut)

    def loss(micro: Micro, window: Window) -> Tensor:
        share = len(micro.rows) / len(window.rows) if legacy else 1.0
        return function(micro) * share

    return accumulate(case, cut, loss)


def train_step(case: Case, cut: Cut | None) -> dict[str, Any]:
    """Real optimiser steps by verl's FSDP engine with Trinity's loss, as its workers set it (verl ≥ 0.8)."""
    assert cut is not None
    hyper = only(case, "surrogate", "dual_clip")
    if hyper["surrogate"] not in ("ppo", "gspo") or hyper["aggregate"] not in AGGREGATES:
        raise NotApplicable(f"no {hyper['surrogate']} by {hyper['aggregate']}")
    if hyper["surrogate"] == "gspo" and "dual_clip" in hyper:
        raise NotApplicable("GSPO without a dual clip")
    absent("torch.utils.tensorboard")
    from trinity.trainer.verl.losses import build_trinity_loss

    from lossproof.adapters._verl_trainer import train

    arguments = {"clip_range_low": hyper["clip_low"], "clip_range_high": hyper["clip_high"],
                 "loss_agg_mode": hyper["aggregate"]}  # fmt: skip
    if hyper["surrogate"] == "ppo":
        arguments["clip_ratio_c"] = hyper.get("dual_clip", 1e9)
    settings = SimpleNamespace(
        policy_loss_fn=hyper["surrogate"],
        policy_loss_fn_args=arguments,
        kl_loss_fn="none",
        kl_loss_fn_args={},
        entropy_loss_fn="none",
        entropy_loss_fn_args={"entropy_coef": 0.0},
        loss_agg_mode=hyper["aggregate"],
    )
    return train(case, cut, build_trinity_loss(settings))


train_step.row = "Trinity-RFT, verl ≥ 0.8"  # type: ignore[attr-defined]


def schedule(hyper: dict[str, Any], at: int) -> float:
    return float(mu_schedule_function(at, hyper["warmup"], hyper["decay"], hyper["peak"], hyper["valley"]))


def function_of(case: Case, cut: Cut) -> Any:
    hyper = only(case, "surrogate", "dual_clip", "temperature_positive", "temperature_negative", "teacher", "mu")
    teacher = hyper.get("teacher")
    if teacher in ("chord-mu", "chord-phi"):
        return chord(case, cut)
    if teacher:
        raise NotApplicable(f"no {teacher}")
    if hyper["aggregate"] not in AGGREGATES:
        raise NotApplicable(f"no {hyper['aggregate']}")
    how = {"loss_agg_mode": hyper["aggregate"]}
    clip = {"clip_range_low": hyper.get("clip_low"), "clip_range_high": hyper.get("clip_high")}
    name = hyper["surrogate"]
    if name == "gspo" and "dual_clip" in hyper:
        raise NotApplicable("GSPO without a dual clip")
    if name == "ppo":
        function = PPOPolicyLossFn(**clip, **how, clip_ratio_c=hyper.get("dual_clip", 1e9))
    elif name == "gspo":
        function = GSPOLossFn(**clip, **how)
    elif name == "sapo":
        function = SAPOPolicyLossFn(tau_pos=hyper["temperature_positive"], tau_neg=hyper["temperature_negative"], **how)
    elif name == "cispo":
        function = cispo(hyper, how)
    elif name == "nll":
        function = SFTLossFn(**how)
        return lambda micro: function(logprob=micro.logp, action_mask=micro.mask)[0]
    else:
        raise NotApplicable(f"no {name}")

    def loss(micro: Micro) -> Tensor:
        return function(
            logprob=micro.logp,
            old_logprob=micro.old,
            action_mask=micro.mask,
            advantages=micro.advantage[:, None].expand_as(micro.logp),
        )[0]

    return loss


def cispo(hyper: dict[str, Any], how: dict[str, Any]) -> Any:
    low, high = min(hyper["clip_low"], 1e9), min(hyper["clip_high"], 1e9)
    return CISPOPolicyLossFn(clip_range_low=low, clip_range_high=high, enable_mask_clip=False, **how)


def chord(case: Case, cut: Cut) -> Any:
    """CHORD is given the counts of rows that its recipe states; means of tokens are its own. Verl's ≥ 0.8 path."""
    hyper, sources = case["hyper"], case["batch"]["source"]
    rows = [i for rank in cut["steps"][0] for micro in rank for i in micro]
    experts = sum(sources[i] == "teacher" for i in rows)
    micros = cut["steps"][0][0]
    sizes = {len(micro) for micro in micros}
    if len(sizes) > 1:
        raise NotApplicable("micro-batches of one size")
    function = MIXCHORDPolicyLossFn(
        mu_peak=hyper["mu"],
        mu_valley=hyper["mu"],
        enable_phi_function=hyper["teacher"] == "chord-phi",
        clip_range=hyper["clip_low"],
        use_dynamic_bsz=False,
        ppo_mini_batch_size=len(rows),
        ppo_micro_batch_size_per_gpu=sizes.pop(),
        train_batch_size_usual=len(rows) - experts,
        train_batch_size_expert=experts,
    )
    function.grpo_loss_fn.clip_ratio_c = hyper.get("dual_clip", 1e9)

    def loss(micro: Micro) -> Tensor:
        return function(
            logprob=micro.logp,
            old_logprob=micro.old,
            action_mask=micro.mask,
            advantages=micro.advantage[:, None].expand_as(micro.logp),
            expert_mask=torch.tensor([sources[i] == "teacher" for i in micro.rows]),
            step=torch.zeros(len(micro.rows), dtype=torch.long),
        )[0]

    return loss


def advantages(case: Case) -> list[float]:
    """`GRPOGroupedAdvantage.calculate_group_advantage` on one group after the other."""
    batch, hyper = case["batch"], case["hyper"]
    if hyper["baseline"] != "mean" or not hyper.get("std") or "source" in batch or "trainable" in batch:
        raise NotApplicable("advantages over the deviation of the whole group")
    function = GRPOGroupedAdvantage()
    result = [0.0] * len(batch["group"])
    for group in sorted(set(batch["group"])):
        rows = [i for i, it in enumerate(batch["group"]) if it == group]
        members = [SimpleNamespace(reward=batch["reward"][i], action_mask=torch.ones(1)) for i in rows]
        function.calculate_group_advantage(str(group), members)
        for i, member in zip(rows, members, strict=True):
            result[i] = float(member.advantages[0])
    return result
