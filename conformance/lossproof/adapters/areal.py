"""AReaL (Apache-2.0): `ppo_actor_loss_fn` and `sapo_loss_fn` of `areal/utils/functional/functional.py`.

The scale: `engine/fsdp_engine.py _compute_logprobs_and_loss` multiplies a micro-batch's loss by its tokens over the
tokens of the step (`compute_total_loss_weight`) and by the number of ranks. Importing the package starts its launchers, so
the functions are compiled from their file.
"""

from __future__ import annotations

from importlib.metadata import distribution, version
from typing import Any

import torch
from torch import Tensor

from lossproof.adapters._source import function_of
from lossproof.adapters._torch import Micro, Window, accumulate, only
from lossproof.cases import Case, Cut, NotApplicable

engine = "AReaL"
licence = "Apache-2.0"
adapter_version = "1"
about = "ppo_actor_loss_fn and sapo_loss_fn, weighted as the FSDP engine weights micro-batches; the SFT loss likewise."
definitions = {"agg/gspo": "by-token-mean", "agg/sapo": "by-token-mean", "law/masked-gspo": "by-token-mean"}
FILE = str(distribution("areal").locate_file("areal/utils/functional/functional.py"))
NAMES = {"torch": torch, "Any": Any, "RejectionSamplingConfig": object}
NAMES["_compute_sequence_level_ratio_and_advantages"] = function_of(
    FILE, "_compute_sequence_level_ratio_and_advantages", NAMES
)
ppo_actor_loss_fn = function_of(FILE, "ppo_actor_loss_fn", NAMES)
sapo_loss_fn = function_of(FILE, "sapo_loss_fn", NAMES)


def engine_version() -> str:
    return version("areal")


def step(case: Case, cut: Cut | None) -> dict[str, Any]:
    if case["kind"] not in ("loss", "law") or cut is None:
        raise NotApplicable("losses only")
    hyper = only(case, "surrogate", "dual_clip", "temperature_positive", "temperature_negative")
    name = hyper["surrogate"]
    if name not in ("ppo", "gspo", "sapo") or (name == "ppo" and hyper["aggregate"] != "token-mean"):
        raise NotApplicable(f"no {name} by {hyper['aggregate']}")
    if name != "ppo" and "by-token-mean" not in case.get("variants", {}) and "pair" not in case:
        raise NotApplicable("its terms are a token mean")

    def loss(micro: Micro, window: Window) -> Tensor:
        if micro.tokens == 0:  # As the engine does.
            return micro.logp.mean() * 0.0
        common = {
            "logprobs": micro.logp,
            "old_logprobs": micro.old,
            "advantages": micro.advantage[:, None].expand_as(micro.logp),
            "loss_mask": micro.mask.bool(),
        }
        if name == "sapo":
            heat = {"tau_pos": hyper["temperature_positive"], "tau_neg": hyper["temperature_negative"]}
            value, _ = sapo_loss_fn(**common, **heat)
        else:
            value, _ = ppo_actor_loss_fn(
                **common,
                proximal_logprobs=micro.old,
                eps_clip=min(hyper["clip_low"], 1e9),
                eps_clip_higher=min(hyper["clip_high"], 1e9),
                c_clip=hyper.get("dual_clip"),
                importance_sampling_level="sequence" if name == "gspo" else "token",
            )
        return value * micro.tokens / window.tokens * window.ranks

    return accumulate(case, cut, loss, ranks=True, windows=True)
