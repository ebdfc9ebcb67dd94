"""NeMo-RL (Apache-2.0): `ClippedPGLossFn`, `NLLLossFn` and the GRPO advantage estimator.

The trainer passes the valid sequences and tokens of the whole step (`global_valid_seqs`, `global_valid_toks`); what the
loss returns goes to `backward`, and data-parallel gradients are summed.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from lossproof.adapters._source import absent, commit_of
from lossproof.adapters._torch import Micro, Window, accumulate, only
from lossproof.cases import Case, Cut, NotApplicable

absent(
    "nemo_rl.algorithms.x_token", "nemo_rl.distributed", "nemo_rl.models", "nemo_rl.data", "nemo_rl.utils", "megatron"
)

from nemo_rl.algorithms.advantage_estimator import GRPOAdvantageEstimator  # noqa: E402
from nemo_rl.algorithms.loss import loss_functions  # noqa: E402

engine = "NeMo-RL"
licence = "Apache-2.0"
adapter_version = "1"
about = "ClippedPGLossFn and NLLLossFn with the global counts of the step; GRPOAdvantageEstimator."
definitions = {
    "kl/k1": "with-score-term",
    "kl/k2": "with-score-term",
    "kl/k3": "with-score-term",
    "kl/clamped": "with-score-term, delta-20, value-10",
    "kl/k3-in-grpo": "with-score-term",
    "law/masked-sequence": "not-counted",
    "law/dead-micro-batch": "not-counted",
    "law/empty-response": "not-counted",
    "tis/seq-mask": "token-weights",
}
CORRECTIONS = {("token", "clip"): "tis", ("token", "mask"): "icepop", ("sequence-geometric", "mask"): "seq-mask-tis"}


def engine_version() -> str:
    return commit_of(str(loss_functions.__file__))


def step(case: Case, cut: Cut | None) -> dict[str, Any]:
    if case["kind"] == "advantage":
        return {"advantage": advantages(case)}
    if case["kind"] not in ("loss", "law") or cut is None:
        raise NotApplicable(f"no {case['kind']}")
    function = loss_function(case)

    def loss(micro: Micro, window: Window) -> Tensor:
        kept = (micro.mask.sum(1) > 0).to(micro.logp.dtype)
        value, _ = function(
            micro.logp,
            {
                "token_mask": shifted(micro.mask),
                "sample_mask": kept,
                "advantages": shifted(micro.advantage[:, None].expand_as(micro.logp)),
                "prev_logprobs": shifted(micro.old),
                "generation_logprobs": shifted(micro.sampler),
                "reference_policy_logprobs": shifted(micro.ref),
            },
            global_valid_seqs=torch.tensor(float(window.kept)),
            global_valid_toks=torch.tensor(float(window.tokens)),
        )
        return value * window.ranks  # Gradients are summed over ranks.

    return accumulate(case, cut, loss, ranks=True, windows=True)


def shifted(rows: Tensor) -> Tensor:
    """The first column is a prompt's last token, which the loss drops."""
    return torch.cat([torch.zeros_like(rows[:, :1]), rows], dim=1)


def loss_function(case: Case) -> Any:
    hyper = only(case, "surrogate", "dual_clip", "kl", "beta", "tis")
    name, by_token = hyper["surrogate"], hyper["aggregate"] == "token-mean"
    if name not in ("ppo", "gspo", "cispo", "reinforce", "nll", "none") or hyper["aggregate"] not in (
        "token-mean",
        "seq-mean-token-mean",
    ):
        raise NotApplicable(f"no {name} by {hyper['aggregate']}")
    if name == "cispo" and not by_token:
        raise NotApplicable("CISPO by token mean")
    if name == "nll":
        if not by_token:
            raise NotApplicable("SFT by token mean")
        return loss_functions.NLLLossFn()
    if hyper.get("kl", "k3") not in ("k1", "k2", "k3") or hyper.get("divisor"):
        raise NotApplicable(f"no {hyper.get('kl')}")
    if hyper.get("kl") and "pair" not in case and not any("score" in it for it in case.get("variants", {})):
        raise NotApplicable("its KL has the score term")
    config = loss_functions.ClippedPGLossConfig(
        disable_ppo_ratio=name == "reinforce",
        token_level_loss=by_token,
        sequence_level_importance_ratios=name == "gspo",
        use_cispo=name == "cispo",
        ratio_clip_min=hyper.get("clip_low", 0.2),
        ratio_clip_max=hyper.get("clip_high", 0.2),
        ratio_clip_c=hyper.get("dual_clip"),
        reference_policy_kl_penalty=hyper.get("beta", 0.0),
        reference_policy_kl_type=hyper.get("kl", "k3"),
        **correction(hyper),
    )
    function = loss_functions.ClippedPGLossFn(config)
    return function if name != "none" else without_policy(function)


def without_policy(function: Any) -> Any:
    return lambda logp, data, **counts: function(
        logp, {**data, "advantages": torch.zeros_like(data["advantages"])}, **counts
    )


def correction(hyper: dict[str, Any]) -> dict[str, Any]:
    rule = hyper.get("tis")
    if rule is None:
        return {}
    kind = CORRECTIONS.get((rule["level"], rule["mode"]))
    if kind is None:
        raise NotApplicable(f"no {rule['level']} {rule['mode']}")
    return {
        "use_importance_sampling_correction": True,
        "truncated_importance_sampling_type": kind,
        "truncated_importance_sampling_ratio": rule["high"],
        "truncated_importance_sampling_ratio_min": rule.get("low", 0.0),
    }


def advantages(case: Case) -> list[float]:
    batch, hyper = case["batch"], case["hyper"]
    if "source" in batch or "trainable" in batch:
        raise NotApplicable("all members are in the mean")
    settings = SimpleNamespace(
        use_leave_one_out_baseline=hyper["baseline"] == "leave-one-out", normalize_rewards=bool(hyper.get("std"))
    )
    result = GRPOAdvantageEstimator(settings, None).compute_advantage(
        torch.tensor(batch["group"])[:, None],
        torch.tensor(batch["reward"], dtype=torch.float32),
        torch.ones(len(batch["reward"]), 1),
    )
    return [float(it) for it in result[:, 0]]
