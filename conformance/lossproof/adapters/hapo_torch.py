"""hapo's losses as torch functions, which its trainers for TRL and verl call with the divisor of the optimiser step.

`step` has the native loss, `plain` the same as a torch expression (`hapo/trl.py` and `hapo/verl/loss.py` call these).
"""

from __future__ import annotations

from typing import Any

import hapo
import hapo.torch
import torch
from torch import Tensor

from lossproof.adapters._torch import Micro, Window, accumulate, only
from lossproof.cases import Case, Cut, NotApplicable

engine = "hapo, torch"
licence = "MIT OR Apache-2.0"
adapter_version = "1"
about = "hapo.torch.policy_loss and teacher_loss with hapo.divisor of the optimiser step."
NORMALISERS = {
    "token-mean": ("token-mean", None),
    "seq-mean-token-mean": ("sequence-mean", None),
    "seq-mean-token-sum-norm": ("constant", 12),
    "seq-mean-token-sum": ("constant", 1),
}


def engine_version() -> str:
    return str(hapo.__version__)


def step(case: Case, cut: Cut | None) -> dict[str, Any]:
    return _step(case, cut, hapo.torch.policy_loss, hapo.torch.teacher_loss)


def plain(case: Case, cut: Cut | None) -> dict[str, Any]:
    return _step(case, cut, hapo.torch.plain_policy_loss, hapo.torch.plain_teacher_loss)


plain.row = "hapo, torch, plain"  # type: ignore[attr-defined]


def _step(case: Case, cut: Cut | None, policy: Any, teacher: Any) -> dict[str, Any]:
    if case["kind"] not in ("loss", "law") or cut is None:
        raise NotApplicable("losses only")
    hyper = only(case, "surrogate", "teacher", "d")
    level = {"ppo": "token", "gspo": "sequence"}.get(hyper["surrogate"])
    if hyper.get("teacher", "luffy") != "luffy" or (level is None and hyper["surrogate"] != "nll"):
        raise NotApplicable(f"no {hyper.get('teacher', hyper['surrogate'])}")
    if hyper["aggregate"] not in NORMALISERS:
        raise NotApplicable(f"no {hyper['aggregate']}")
    sources = case["batch"].get("source")
    normaliser, longest = NORMALISERS[hyper["aggregate"]]
    masks = case["batch"].get("mask") or [[1] * len(it) for it in case["batch"]["logp"]]

    def loss(micro: Micro, window: Window) -> Tensor:
        divisor = hapo.divisor(normaliser, [sum(masks[i]) for i in window.rows], longest)
        taught = torch.tensor([bool(sources) and "teacher" in hyper and sources[i] == "teacher" for i in micro.rows])
        common = {"divisor": divisor, "normaliser": normaliser}
        mask = micro.mask.bool()
        if level is None:
            ones = torch.ones(len(micro.rows), dtype=torch.float64)
            return teacher(micro.logp, mask, ones, operator="srft", **common)
        clip = {"clip_low": hyper.get("clip_low", torch.inf), "clip_high": hyper.get("clip_high", torch.inf)}
        total = policy(
            micro.logp[~taught],
            micro.old[~taught],
            mask[~taught],
            micro.advantage[~taught],
            importance_ratio_level=level,
            **clip,
            **common,
        )
        if taught.any():
            more = {"operator": "luffy", "d": hyper["d"]}
            total = total + teacher(micro.logp[taught], mask[taught], micro.advantage[taught], **more, **common)
        return total

    return accumulate(case, cut, loss, windows=True)
