"""prime-rl (Apache-2.0): `compute_loss` of `src/prime_rl/trainer/rl/loss.py` on packed sequences.

The trainer sums the tokens in the loss over micro-batches and ranks (`trainer/rl/train.py`), passes the counts as
`rl_scale` and `ce_scale`, calls `backward` on what comes, and sums gradients over ranks. Its ratio is to the sampler, so
`old_logp` is handed over as that.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from lossproof.adapters._source import absent, commit_of
from lossproof.adapters._torch import Batch, Micro, Window, accumulate, only
from lossproof.cases import Case, Cut, NotApplicable

absent("prime_rl.configs", "prime_rl.utils")

from prime_rl.trainer.rl import loss as engine_loss  # noqa: E402

engine = "prime-rl"
licence = "Apache-2.0"
adapter_version = "1"
about = "compute_loss with default_loss_fn (DPPO with the squared log-ratio) and ce_loss_fn, by global token counts."


def engine_version() -> str:
    return commit_of(str(engine_loss.__file__))


def step(case: Case, cut: Cut | None) -> dict[str, Any]:
    if case["kind"] not in ("loss", "law") or cut is None:
        raise NotApplicable("losses only")
    hyper = only(case, "surrogate", "tv_limit", "kl_coef")
    name = hyper["surrogate"]
    unclipped = name == "ppo" and min(hyper["clip_low"], hyper["clip_high"]) == float("inf")
    if hyper["aggregate"] != "token-mean" or not (name in ("dppo-tv", "nll") or unclipped):
        raise NotApplicable(f"no {name} by {hyper['aggregate']}")
    limit = hyper.get("tv_limit", float("inf"))
    config = SimpleNamespace(dppo_mask_high=limit, dppo_mask_low=limit, adv_tau=1.0, kl_tau=hyper.get("kl_coef", 0.0))
    batch = Batch({**case, "layout": {}})
    masks = [torch.tensor(batch.mask(i), dtype=torch.bool) for i in range(len(batch.logp))]

    def loss(micro: Micro, window: Window) -> Tensor:
        weights = [mask.to(torch.float64) for mask in masks]
        rows = micro.rows
        value, _ = engine_loss.compute_loss(
            trainer_logprobs=[packed(micro, at, masks[i]) for at, i in enumerate(rows)],
            inference_logprobs=batch.numbers("old_logp", rows),
            ref_logprobs=None,
            advantages=[torch.full_like(batch.logp[i], float(micro.advantage[at])) for at, i in enumerate(rows)],
            loss_mask=[masks[i] for i in rows],
            rl_weights=[torch.zeros_like(weights[i]) for i in rows] if name == "nll" else None,
            ce_weights=[weights[i] for i in rows] if name == "nll" else None,
            ref_kl_weights=None,
            rl_loss_fn=lambda inputs: engine_loss.default_loss_fn(inputs, config),
            rl_scale=max(window.tokens, 1),
            ce_scale=max(window.tokens, 1),
            ref_kl_scale=1,
        )
        return value * window.ranks  # Gradients are summed over ranks.

    if case.get("layout", {}).get("pad", "right") == "left" or case.get("layout", {}).get("extra"):
        raise NotApplicable("takes packed sequences")
    return accumulate({**case, "layout": {}}, cut, loss, ranks=True, windows=True)


def packed(micro: Micro, at: int, mask: Tensor) -> Tensor:
    return micro.logp[at, : len(mask)]
