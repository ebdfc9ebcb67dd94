"""Writes `batches/` and `cases/`: the batches from seeds, the answers from the reference in numpy.

usage: python make_cases.py [--check]     (in this folder; --check compares with what lies there and writes nothing)
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

from lossproof import reference
from lossproof.cases import numbers

HERE = Path(__file__).resolve().parent
SPEC = "1.1"
Json = dict[str, Any]
FILES: dict[str, str] = {}
BATCHES: dict[str, Json] = {}
FIELDS = ("logp", "old_logp", "ref_logp", "sampler_logp", "entropy")


def f32(values: Any) -> Any:
    return np.asarray(values, dtype=np.float32).astype(np.float64)


def f32_negative(values: Any) -> Any:
    return np.minimum(f32(values), f32(-1e-3))


# ---------------------------------------------------------------- batches


def batch(name: str, about: str, **fields: Any) -> None:
    BATCHES[name] = {"name": name, "about": about, **{key: plain(value) for key, value in fields.items()}}


def group_advantages(rewards: list[float]) -> Any:
    r = np.array(rewards)
    return (r - r.mean()) / (r.std(ddof=1) + 1e-6)


def draw_sequences(rng: np.random.Generator, lengths: list[int]) -> Json:
    fields: Json = {"logp": [], "old_logp": [], "ref_logp": [], "sampler_logp": []}
    for n in lengths:
        logp = -3 * rng.random(n)
        old = logp + 0.3 * rng.standard_normal(n)
        ref = logp + 0.4 * rng.standard_normal(n)
        sampler = old + 0.15 * rng.standard_normal(n)
        fields["logp"].append(f32(logp))
        for key, values in (("old_logp", old), ("ref_logp", ref), ("sampler_logp", sampler)):
            fields[key].append(f32_negative(values))
    return fields


def more_fields(seed: int, lengths: list[int]) -> Json:
    rng = np.random.default_rng(seed)
    return {
        "entropy": [f32(2 * rng.random(n)) for n in lengths],
        "tokens": [rng.integers(0, 4, n) for n in lengths],
        "mask": [[1] * n for n in lengths],
    }


def core6() -> None:
    lengths = [5, 9, 12, 3, 8, 6]
    rewards = [1.0, 0.0, 0.0, 0.0, 1.0, 1.0]
    fields = draw_sequences(np.random.default_rng(7), lengths)
    fields["old_logp"][1][2] = fields["logp"][1][2] - 1.5  # Ratio e^1.5 with a negative advantage: dual clip acts.
    advantage = np.concatenate([group_advantages(rewards[:3]), group_advantages(rewards[3:])])
    batch(
        "core6",
        "two groups of three; PCG64 seed 7, seed 8 for entropies and ids",
        group=[0, 0, 0, 1, 1, 1],
        reward=rewards,
        advantage=advantage,
        **fields,
        **more_fields(8, lengths),
    )


def small5() -> None:
    """The batch of cases that need no more, and the same with a token out of the loss at which nothing is a number."""
    lengths = [3, 5, 2, 1, 4]
    rewards = [1.0, 0.0, 0.0, 0.0, 1.0]
    fields = {
        "group": [0, 0, 0, 1, 1],
        "reward": rewards,
        "advantage": np.concatenate([group_advantages(rewards[:3]), group_advantages(rewards[3:])]),
        **draw_sequences(np.random.default_rng(21), lengths),
        **more_fields(22, lengths),
    }
    batch("small5", "groups of three and two; PCG64 seed 21, seed 22 for entropies and ids", **fields)
    holed("hole5", "small5", (1, 3))
    holed("hole6", "core6", (1, 3))


def holed(name: str, source: str, at: tuple[int, int]) -> None:
    fields = json.loads(json.dumps({key: it for key, it in BATCHES[source].items() if key not in ("name", "about")}))
    for field in FIELDS:
        fields[field][at[0]][at[1]] = math.nan
    fields["mask"][at[0]][at[1]] = 0
    batch(name, f"{source}, with no number at token {at[1]} of sequence {at[0]}, which is out of the loss", **fields)


def switch9() -> None:
    lengths = [4, 6, 5, 3, 7, 4, 5, 2, 8]
    source = ["policy", "policy", "teacher"] * 3
    rewards = [0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0]
    group = [0, 0, 0, 1, 1, 1, 2, 2, 2]
    advantage = [0.0, 0.0, 0.0, 0.5, -0.5, 0.0, 0.0, 0.0, 0.0]
    batch(
        "switch9",
        "three prompts of two rollouts and a demonstration; prompts 0 and 2 have no success; PCG64 seed 11",
        group=group,
        reward=rewards,
        advantage=advantage,
        source=source,
        **draw_sequences(np.random.default_rng(11), lengths),
        **more_fields(12, lengths),
    )


def micro8() -> None:
    lengths = [6, 9, 7, 5, 12, 10, 14, 12]
    rewards = [0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0]
    prefix = [0, 0, 0, 0, 3, 3, 6, 0]
    more = more_fields(14, lengths)
    more["mask"] = [[int(i != 4 or t >= 3) for t in range(n)] for i, n in enumerate(lengths)]
    batch(
        "micro8",
        "one prompt: four rollouts, two behind a prefix of a demonstration, one behind a longer one, and all of it; PCG64 seed 15",
        group=[0] * 8,
        reward=rewards,
        advantage=[it - 0.5 for it in rewards],
        source=["policy"] * 7 + ["teacher"],
        prefix=prefix,
        **draw_sequences(np.random.default_rng(15), lengths),
        **more,
    )


def logits4() -> None:
    rng = np.random.default_rng(13)
    lengths = [3, 4, 2, 3]
    logits = [f32(1.5 * rng.standard_normal((n, 4))) for n in lengths]
    old = [f32(it + 0.3 * rng.standard_normal(it.shape)) for it in logits]
    tokens = [rng.integers(0, 4, n) for n in lengths]
    batch(
        "logits4",
        "two groups of two as logits over four ids; PCG64 seed 13",
        group=[0, 0, 1, 1],
        advantage=[0.7, -0.7, -0.7, 0.7],
        logits=logits,
        old_logits=old,
        tokens=tokens,
        logp=[[0.0] * n for n in lengths],
        mask=[[1] * n for n in lengths],
    )


def far6() -> None:
    """Distances from the reference at which clamps act."""
    deltas = [[25.0, 12.0, 5.0], [-5.0, -3.0, 1.0], [0.5, 22.0], [-4.0, -1.0, 15.0]]
    logp = [[-1.0 if d > 0 else d - 1.0 for d in row] for row in deltas]
    ref = [[a - d for a, d in zip(row, ds, strict=True)] for row, ds in zip(logp, deltas, strict=True)]
    batch(
        "far4",
        "log-probabilities between 25 below and 25 above the reference's",
        group=[0, 0, 1, 1],
        advantage=[0.0] * 4,
        logp=logp,
        old_logp=logp,
        ref_logp=ref,
        mask=[[1] * len(it) for it in logp],
    )


# ---------------------------------------------------------------- cuts

WHOLE = [[[[0, 1, 2, 3, 4, 5]]]]
CUTS: Json = {
    "1x6": WHOLE,
    "6x1": [[[[0], [1], [2], [3], [4], [5]]]],
    "2x3": [[[[0, 1, 2], [3, 4, 5]]]],
    "3x2": [[[[0, 1], [2, 3], [4, 5]]]],
    "by-length": [[[[2], [1, 4], [5, 0, 3]]]],
    "4+2": [[[[0, 1, 2, 3], [4, 5]]]],
    "5+1": [[[[0, 1, 2, 3, 4], [5]]]],
    "2x3@2": [[[[0, 1, 2]], [[3, 4, 5]]]],
    "2+1@2": [[[[0, 1], [2]], [[3, 4], [5]]]],
}
WINDOWS: Json = {
    "1x3,1x3": [[[[0, 1, 2]]], [[[3, 4, 5]]]],
    "3x1,3x1": [[[[0], [1], [2]]], [[[3], [4], [5]]]],
    "2+1,2+1": [[[[0, 1], [2]]], [[[3, 4], [5]]]],
}


def cuts_over(n: int) -> Json:
    return {
        f"1x{n}": [[[list(range(n))]]],
        f"{n}x1": [[[[i] for i in range(n)]]],
        f"{n - 1}+1": [[[list(range(n - 1)), [n - 1]]]],
    }


# ---------------------------------------------------------------- cases


def case(number: int, name: str, law: str, /, **fields: Any) -> None:
    """Writes one case. `variants` maps a name to changes of hyper; both get their answers here."""
    given = dict(fields.pop("variants", {}))
    kind = fields.pop("kind", "loss")
    record: Json = {"id": name, "number": number, "spec": SPEC, "kind": kind, "law": law, **fields}
    record.setdefault("hyper", {})
    if kind in ("loss", "law") and "batch" not in record:
        record["batch"] = "core6"
    if kind in ("loss", "law") and "cuts" not in record:
        record["cuts"] = CUTS
    if "pair" not in record and "sum_to_zero" not in record and "expect" not in record:
        record["expect"] = answer(record)
    if given:
        record["variants"] = {
            key: {"hyper": change, "expect": answer({**record, "hyper": {**record["hyper"], **change}})}
            for key, change in given.items()
        }
    text = dumps(plain(record))
    if len(text) > 40_000:
        raise ValueError(f"{name}: {len(text)} bytes, expected at most 40 kB")
    FILES[f"cases/{name}.json"] = text


def resolved(record: Json) -> Json:
    source = BATCHES[record["batch"]] if isinstance(record["batch"], str) else plain(record["batch"])
    return {**record, "batch": numbers({**source, **plain(record.get("with", {}))})}


def answer(record: Json) -> Json:
    cuts = record.get("cuts")
    cut = {"name": "", "steps": next(iter(cuts.values()))} if cuts else None
    got = reference.step(resolved(record), cut)
    if record["kind"] in ("loss", "law"):
        kept: Json = {"loss": got["loss"], "grad": got["grad"]}
        if got["loss"] is None:
            kept["surrogate"] = got["value"]
        if "grad_entropy" in got:
            kept["grad_entropy"] = got["grad_entropy"]
        kept["grad_l2"] = float(np.sqrt(sum(x * x for x in reference_flat(got["grad"]))))
        got = kept
    answers: Json = shorter(got)
    return answers


def shorter(it: Any) -> Any:
    """Answers to 14 digits: a hundredth of what counts as exact."""
    if isinstance(it, dict):
        return {key: shorter(value) for key, value in it.items()}
    if isinstance(it, list):
        return [shorter(value) for value in it]
    return float(f"{it:.14g}") if isinstance(it, float) else it


def reference_flat(it: Any) -> list[float]:
    return [x for part in it for x in reference_flat(part)] if isinstance(it, list) else [float(it)]


PPO = {"surrogate": "ppo", "clip_low": 0.2, "clip_high": 0.2}
TOKEN_MEAN = {**PPO, "aggregate": "token-mean"}
SEQ_MEAN = {**PPO, "aggregate": "seq-mean-token-mean"}
DUAL = {"dual-clip-3": {"dual_clip": 3.0}}
GRPO = "GRPO, arXiv 2402.03300, Eq. 3"
DAPO = "DAPO, arXiv 2503.14476, Eq. 8"


def surrogates() -> None:
    case(1, "agg/token-mean/ppo", f"one mean over all tokens of the step ({DAPO})", hyper=TOKEN_MEAN, variants=DUAL)
    case(
        2,
        "agg/seq-mean-token-mean/ppo",
        f"the mean over sequences of each sequence's token mean ({GRPO})",
        hyper=SEQ_MEAN,
        variants=DUAL,
    )
    case(
        3,
        "agg/seq-mean-token-sum/ppo",
        "the mean over sequences of each sequence's sum",
        hyper={**PPO, "aggregate": "seq-mean-token-sum"},
        variants=DUAL,
    )
    case(
        4,
        "agg/seq-mean-token-sum-norm/ppo",
        "the sum over B·L with L a constant (Dr. GRPO, arXiv 2503.20783)",
        hyper={**PPO, "aggregate": "seq-mean-token-sum-norm", "length": 12},
        variants=DUAL,
    )
    higher = {**TOKEN_MEAN, "clip_high": 0.28}
    case(5, "agg/token-mean/clip-higher", f"clip 0.2 below and 0.28 above ({DAPO})", hyper=higher, variants=DUAL)
    case(
        6,
        "agg/token-mean/clip-higher-dual",
        "a bad token's loss is at most −A·c (dual clip, arXiv 1912.09729)",
        hyper={**higher, "dual_clip": 3.0},
    )
    case(
        7,
        "agg/seq-mean-token-mean/dual",
        "dual clip under the mean over sequences (arXiv 1912.09729)",
        hyper={**SEQ_MEAN, "dual_clip": 3.0},
    )
    case(
        8,
        "agg/seq-mean/two-sided",
        "the ratio is at most 3 before the minimum (INTELLECT-2, arXiv 2505.07291)",
        hyper={**SEQ_MEAN, "ratio_cap": 3.0},
    )
    for number, name, low, high in ((9, "narrow", 3e-4, 4e-4), (10, "wide", 0.2, 0.2)):
        case(
            number,
            f"agg/gspo/{name}",
            "one ratio for a sequence, the exponential of its mean log-ratio; mean over sequences (GSPO, arXiv 2507.18071, Eq. 5–7)",
            hyper={"surrogate": "gspo", "clip_low": low, "clip_high": high, "aggregate": "seq-mean-token-mean"},
            variants={"by-token-mean": {"aggregate": "token-mean"}, **DUAL},
        )
    cispo = {"surrogate": "cispo", "clip_high": 0.2, "aggregate": "token-mean"}
    case(
        11,
        "agg/cispo/both",
        "the clipped ratio is a constant weight of log π (CISPO, arXiv 2506.13585, Eq. 4)",
        hyper={**cispo, "clip_low": 0.2},
        variants={"upper-only": {"clip_low": math.inf}},
    )
    case(
        12,
        "agg/cispo/upper",
        "as agg/cispo/both, clipped above alone",
        hyper={**cispo, "clip_low": math.inf},
        variants={"both": {"clip_low": 0.2}},
    )
    case(13, "agg/reinforce", "−A·log π, token mean", hyper={"surrogate": "reinforce", "aggregate": "token-mean"})
    case(
        14,
        "agg/dppo-tv",
        "ρA where the probability moved by at most 0.2 in the advantage's direction, plus 1e-3·Δ² (arXiv 2602.04879)",
        hyper={"surrogate": "dppo-tv", "tv_limit": 0.2, "kl_coef": 1e-3, "aggregate": "token-mean"},
    )
    sapo = {"surrogate": "sapo", "temperature_positive": 1.0, "temperature_negative": 1.05}
    case(
        15,
        "agg/sapo",
        "a gate 4/τ·sigmoid(τ(ρ − 1)) in place of the clip (SAPO, arXiv 2511.20347)",
        hyper={**sapo, "aggregate": "seq-mean-token-mean"},
        variants={"by-token-mean": {"aggregate": "token-mean"}},
    )
    case(
        16,
        "agg/gmpo",
        "the geometric mean of ratios clipped token by token (GMPO, arXiv 2507.20673)",
        hyper={"surrogate": "gmpo", "clip_low": 0.4, "clip_high": 0.4, "aggregate": "seq-mean-token-mean"},
        variants={"by-token-mean": {"aggregate": "token-mean"}},
    )
    case(
        17,
        "agg/prompt-mean",
        "the mean over prompts of each prompt's token mean",
        hyper={**PPO, "aggregate": "prompt-mean"},
    )


def corrections() -> None:
    def rule(level: str, mode: str, **more: Any) -> Json:
        return {**TOKEN_MEAN, "tis": {"level": level, "mode": mode, **more}}

    bounds = {"low": 0.9, "high": 1.1}
    case(
        18,
        "tis/token-clip",
        "each token's loss times clip(π_old/π_sampler, 0.9, 1.1), a constant",
        hyper=rule("token", "clip", **bounds),
        variants=DUAL,
    )
    mask = rule("token", "mask", keeps="weight", **bounds)
    one = rule("token", "mask", keeps="one", **bounds)
    case(
        19,
        "tis/token-mask",
        "a token outside [0.9, 1.1] counts 0; the divisor keeps all tokens",
        hyper=mask,
        variants={"divisor-after-mask": {"divisor": "kept"}, "kept-count-one": {"tis": one["tis"]}, **DUAL},
    )
    sequence = rule("sequence-geometric", "mask", keeps="weight", **bounds)
    case(
        20,
        "tis/seq-mask",
        "a sequence whose geometric mean lies outside [0.9, 1.1] is out; the divisor keeps its tokens",
        hyper=sequence,
        variants={
            "kept-count-one": {"tis": {**sequence["tis"], "keeps": "one"}},
            "token-weights": {"tis": {**sequence["tis"], "keeps": "token-weight"}},
            "divisor-after-mask": {"divisor": "kept"},
        },
    )
    case(
        21,
        "tis/seq-product",
        "each sequence's product of weights, at most 1.5",
        hyper=rule("sequence-product", "clip", high=1.5),
        variants=DUAL,
    )
    case(
        22,
        "tis/divisor-after-mask",
        "as tis/token-mask, divided by the tokens that are kept",
        hyper={**mask, "divisor": "kept"},
        variants={"divisor-keeps-all": {"divisor": "all"}},
    )
    law = "where the sampler's numbers are the trainer's, the correction is 1"
    old = BATCHES["small5"]["old_logp"]
    small(23, "tis/identity", law, rule("token", "clip", **bounds), variants=DUAL, sampler_logp=old)


def divergences() -> None:
    alone = {"surrogate": "none", "beta": 1.0, "aggregate": "token-mean"}

    def score(name: str) -> dict[str, Any]:
        return {"with-score-term": {"kl": f"{name}-with-score-term"}}

    through = {"straight-through": {"kl": "k3-straight-through"}}
    for number, name, formula in ((24, "k1", "Δ"), (25, "k2", "Δ²/2"), (26, "k3", "e^−Δ + Δ − 1")):
        case(
            number,
            f"kl/{name}",
            f"{formula} of each token with Δ = log π − log π_ref, and its plain derivative",
            hyper={**alone, "kl": name},
            variants={**score(name), **(through if name == "k3" else {})},
        )
    inside = {**SEQ_MEAN, "kl": "k3", "beta": 0.04}
    case(
        27,
        "kl/k3-in-grpo",
        f"the surrogate plus 0.04·k3, both by one aggregation ({GRPO})",
        hyper=inside,
        variants={
            **score("k3"),
            **through,
            **DUAL,
            "with-score-term, dual-clip-3": {"kl": "k3-with-score-term", "dual_clip": 3.0},
        },
    )
    plain_k3 = {"plain": {"kl": "k3"}}
    case(
        28,
        "kl/straight-through",
        "the value of k3 with the gradient of k2",
        hyper={**alone, "kl": "k3-straight-through"},
        variants=plain_k3,
    )
    case(
        29,
        "kl/with-score-term",
        "k·∂log π added to ∂k (arXiv 2506.09477)",
        hyper={**alone, "kl": "k3-with-score-term"},
        variants=plain_k3,
    )
    case(
        30,
        "kl/in-reward",
        "0.04·(log π_old − log π_ref) is subtracted from each token's reward and has no gradient",
        kind="reward",
        batch="core6",
        hyper={"kl": "k1", "beta": 0.04},
    )
    for name in ("k2", "k3"):
        case(
            31,
            f"kl/clamped/{name}",
            "Δ up to 25; an engine's clamp shows here and is recorded",
            batch="far4",
            hyper={**alone, "kl": name},
            cuts=cuts_over(4),
            variants={
                "delta-10": {"kl_clamp": {"delta": 10.0}},
                "delta-20": {"kl_clamp": {"delta": 20.0}},
                "delta-20, value-10": {"kl_clamp": {"delta": 20.0, "value": 10.0}},
                **score(name),
                "with-score-term, delta-20, value-10": {
                    "kl": f"{name}-with-score-term",
                    "kl_clamp": {"delta": 20.0, "value": 10.0},
                },
            },
        )
    case(
        32,
        "entropy/bonus",
        "−c·(mean entropy) by the loss's divisor",
        hyper={**TOKEN_MEAN, "entropy_coef": 0.01},
        variants=DUAL,
    )
    case(
        32,
        "entropy/policy-tokens-only",
        "a demonstration's tokens have no entropy bonus and stay in the divisor",
        hyper={**TOKEN_MEAN, "entropy_coef": 0.01, "teacher": "luffy", "d": 0.1},
        **{"with": {"source": SOURCES}},
    )
    case(
        33,
        "entropy/detached-metric",
        "with c = 0 the entropy changes nothing",
        hyper={**TOKEN_MEAN, "entropy_coef": 0.0},
        variants=DUAL,
    )
    case(
        34,
        "temperature/both",
        "logits are divided by T for the current and the old policy alike; grad is by the logits",
        batch="logits4",
        hyper={**TOKEN_MEAN, "temperature": 0.7},
        cuts=cuts_over(4),
    )


SOURCES = ["policy", "teacher", "policy", "policy", "teacher", "policy"]
NAMED = {"token-mean": TOKEN_MEAN, "seq-mean": SEQ_MEAN}
GSPO = {"surrogate": "gspo", "clip_low": 0.2, "clip_high": 0.2, "aggregate": "seq-mean-token-mean"}
CISPO = {"surrogate": "cispo", "clip_low": 0.2, "clip_high": 0.2, "aggregate": "token-mean"}
SFT = {"surrogate": "nll", "aggregate": "token-mean"}
CONSTANT = {**PPO, "aggregate": "seq-mean-token-sum-norm", "length": 12}


def laws() -> None:
    core = BATCHES["core6"]
    order = [3, 0, 5, 1, 4, 2]
    one = {"1x6": WHOLE}
    for name, hyper in NAMED.items():
        case(
            35,
            f"law/permutation/{name}",
            "gradients move with their sequences",
            kind="law",
            hyper=hyper,
            cuts=one,
            pair={"select": order},
        )
    uncut = {"name": "1x6", "steps": WHOLE}
    parts = {key: CUTS[key] for key in ("6x1", "2x3", "3x2", "by-length", "4+2")}
    for name, hyper in {**NAMED, "gspo": GSPO}.items():
        case(
            36,
            f"law/micro-batches/{name}",
            "any cut into micro-batches gives the step's gradient",
            kind="law",
            hyper=hyper,
            cuts=parts,
            pair={"cut": uncut},
        )
    for name, hyper in NAMED.items():
        case(
            37,
            f"law/ranks/{name}",
            "two ranks with 26 and 17 tokens give the gradient of one",
            kind="law",
            hyper=hyper,
            cuts={key: CUTS[key] for key in ("2x3@2", "2+1@2")},
            pair={"cut": uncut},
        )
    prompted = {"mask": [[0] * (1 + i % 3) + [1] * (len(it) - 1 - i % 3) for i, it in enumerate(core["logp"])]}
    case(
        38,
        "law/accumulation",
        "accumulation is the batch, for supervised tokens with masked prompts",
        kind="law",
        hyper=SFT,
        cuts=parts,
        pair={"cut": uncut},
        **{"with": prompted},
    )
    for name, hyper in NAMED.items():
        for layout in ("left", "packed"):
            case(
                39,
                f"law/padding-{layout}/{name}",
                f"padding at the right or {layout}: the same step",
                kind="law",
                hyper=hyper,
                cuts=one,
                pair={"layout": {"pad": layout}},
            )
    for field, value, word in (("logp", math.nan, "nan"), ("old_logp", -1e4, "low")):
        case(
            40,
            f"law/padding-{word}/token-mean",
            f"what lies in padded places of {field} changes nothing",
            kind="law",
            hyper=TOKEN_MEAN,
            cuts=one,
            pair={"layout": {"fill": {field: value}}},
        )
    for name, hyper in {"token-mean": TOKEN_MEAN, "constant": CONSTANT}.items():
        case(
            41,
            f"law/width/{name}",
            "ten more padded columns change nothing",
            kind="law",
            hyper=hyper,
            cuts=one,
            pair={"layout": {"extra": 10}},
        )
    masked = {"mask": [[0] * len(it) if i == 2 else [1] * len(it) for i, it in enumerate(core["logp"])]}
    out = {"not-counted": {"empty_sequences": "out"}}
    case(
        42,
        "law/masked-sequence",
        "a sequence with no token in the loss counts in B or does not; batch and cuts agree",
        hyper=SEQ_MEAN,
        variants={**out, **DUAL, "not-counted, dual-clip-3": {"empty_sequences": "out", "dual_clip": 3.0}},
        **{"with": masked},
    )
    fields = ("logp", "old_logp", "ref_logp", "sampler_logp", "entropy", "tokens", "mask")
    case(
        42,
        "law/masked-gspo",
        "a sequence's ratio is a mean over its tokens in the loss",
        hyper=GSPO,
        variants={"by-token-mean": {"aggregate": "token-mean"}},
        **{"with": {"mask": [[int(t % 3 != 1) for t in range(len(it))] for it in core["logp"]]}},
    )
    shown = BATCHES["small5"]
    small(
        43,
        "law/empty-response",
        "an empty response counts in B or does not, and makes no NaN",
        SEQ_MEAN,
        variants={**out, **DUAL, "not-counted, dual-clip-3": {"empty_sequences": "out", "dual_clip": 3.0}},
        **{name: [[] if i == 3 else it for i, it in enumerate(shown[name])] for name in fields},
    )
    first = {"mask": [[0] * len(it) if i < 2 else [1] * len(it) for i, it in enumerate(core["logp"])]}
    for name, hyper in NAMED.items():
        case(
            44,
            f"law/dead-micro-batch/{name}",
            "a micro-batch with no token in the loss adds 0 and no NaN",
            hyper=hyper,
            cuts={key: CUTS[key] for key in ("1x6", "3x2", "6x1")},
            variants={**out, **DUAL, "not-counted, dual-clip-3": {"empty_sequences": "out", "dual_clip": 3.0}},
            **{"with": first},
        )
        case(
            44,
            f"law/dead-batch/{name}",
            "a batch with no token in the loss has loss 0 and gradient 0",
            hyper=hyper,
            cuts={key: CUTS[key] for key in ("1x6", "2x3")},
            **{"with": {"mask": [[0] * len(it) for it in core["logp"]]}},
        )
    case(
        45,
        "law/truncated/loss",
        "a truncated response's tokens are out of the loss and of its divisor (DAPO, overlong filtering)",
        hyper=TOKEN_MEAN,
        variants=DUAL,
        **{"with": masked},
    )
    case(
        45,
        "law/truncated/advantage",
        "a truncated response's reward stays in its group's mean",
        kind="advantage",
        batch={"group": [0, 0, 0, 0], "reward": [1.0, 0.0, 0.0, 1.0], "trainable": [1, 1, 0, 1]},
        hyper={"baseline": "mean", "untrainable_in_mean": True},
        variants={"out-of-the-mean": {"untrainable_in_mean": False}},
    )
    dead = {"advantage": [0.0] * 3 + core["advantage"][3:]}
    case(
        46,
        "law/dead-group",
        "the tokens of a group without advantage count in N and have gradient 0",
        hyper=TOKEN_MEAN,
        variants={"out-of-the-divisor": {"dead_groups": "out"}},
        **{"with": dead},
    )
    for name, hyper in {**NAMED, "gspo": GSPO}.items():
        case(
            47,
            f"law/twice/{name}",
            "the batch twice has the gradient of the batch, its two halves added",
            kind="law",
            hyper=hyper,
            cuts=one,
            pair={
                "select": [0, 1, 2, 3, 4, 5] * 2,
                "with": {"group": [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]},
                "steps": [[[list(range(12))]]],
            },
        )
        if name != "gspo":
            case(
                48,
                f"law/window/{name}",
                "two optimiser steps on one generation batch divide by their own tokens each",
                hyper=hyper,
                cuts=WINDOWS,
                variants=DUAL,
            )
    case(
        49,
        "law/teacher-apart",
        "a teacher's sequences in micro-batches of their own change nothing",
        kind="law",
        hyper={**TOKEN_MEAN, "teacher": "luffy", "d": 0.1},
        cuts={"apart": [[[[1, 4], [0, 2], [3, 5]]]], "mixed": [[[[0, 1, 2], [3, 4, 5]]]]},
        pair={"cut": uncut},
        **{"with": {"source": SOURCES}},
    )


CUTS_OF_NINE = {
    "1x9": [[[list(range(9))]]],
    "3x3": [[[[0, 1, 2], [3, 4, 5], [6, 7, 8]]]],
    "9x1": [[[[i] for i in range(9)]]],
    "4+4+1": [[[[0, 1, 2, 3], [4, 5, 6, 7], [8]]]],
}


def whole_groups(off: dict[str, Any], srft: dict[str, Any]) -> None:
    """From rewards to gradients: a method's rule for advantages, with its terms."""
    constant = {"aggregate": "seq-mean-token-sum-norm", "length": 12}

    def of(number: int, name: str, law: str, hyper: dict[str, Any], advantage: list[float] | None = None) -> None:
        more = {} if advantage is None else {"with": {"advantage": advantage}}
        case(number, name, law, batch="switch9", hyper=hyper, cuts=CUTS_OF_NINE, **more)

    third, half = 1 / (3 * (math.sqrt(1 / 3) + 1e-6)), 1 / (2 * (math.sqrt(1 / 2) + 1e-6))
    failed = [-third, -third, 2 * third]
    of(
        50,
        "teacher/luffy/groups",
        "advantages over the deviation of a group and its demonstration, then LUFFY's terms without clip",
        {**off, **constant, "teacher": "luffy", "d": 0.1},
        [*failed, third, -2 * third, third, *failed],
    )
    of(51, "teacher/srft/groups", "SRFT's weights by the rewards of whole groups", srft)
    alone = [0.0, 0.0, 0.0, half, -half, 0.0, 0.0, 0.0, 0.0]
    mixed = "advantages over the deviation of the rollouts alone, then CHORD's two means"
    of(53, "teacher/chord-mu/groups", mixed, {**PPO, "teacher": "chord-mu", "mu": 0.2}, alone)
    of(
        54,
        "teacher/chord-phi/groups",
        f"{mixed}, weighted by π(1 − π)",
        {**PPO, "teacher": "chord-phi", "mu": 0.1},
        alone,
    )
    case(
        55,
        "teacher/trapo/micro-groups",
        "of two rollouts behind one prefix the second's is imitated; advantages over all eight members",
        batch="micro8",
        hyper={**off, "aggregate": "seq-mean-token-sum-norm", "length": 14, "teacher": "trapo", "d": 0.1},
        cuts={
            "1x8": [[[list(range(8))]]],
            "4x2": [[[[0, 1], [2, 3], [4, 5], [6, 7]]]],
            "8x1": [[[[i] for i in range(8)]]],
            "3+3+2": [[[[0, 1, 2], [3, 4, 5], [6, 7]]]],
        },
    )


def teachers() -> None:
    taught = {"with": {"source": SOURCES}}
    off = {"surrogate": "ppo"}
    luffy = "LUFFY, arXiv 2504.14945: −A·π/(π + 0.1) on a demonstration, ρA on rollouts"
    case(
        50,
        "teacher/luffy/token-mean",
        f"{luffy}; with clip and one token mean",
        hyper={**TOKEN_MEAN, "teacher": "luffy", "d": 0.1},
        variants={"sum-over-length": {"aggregate": "seq-mean-token-sum-norm", "length": 12}},
        **taught,
    )
    case(
        50,
        "teacher/luffy/constant",
        f"{luffy}; no clip, the sum over B·L as its code has it",
        hyper={**off, "aggregate": "seq-mean-token-sum-norm", "length": 12, "teacher": "luffy", "d": 0.1},
        **taught,
    )
    srft = {**PPO, "aggregate": "seq-mean-token-sum-norm", "length": 12, "teacher": "srft", "d": 0.1}
    about = "SRFT, arXiv 2506.19767: 0.5·e^−H·NLL of demonstrations, 0.1·e^H on correct and −1 on wrong rollouts"
    case(
        51,
        "teacher/srft/weights",
        about,
        hyper=srft,
        variants={
            "log-prob": {"surrogate": "reinforce"},
            "no-clip": {"clip_low": math.inf, "clip_high": math.inf},
            "paper": {"demonstration_advantage": True},
        },
        **taught,
    )
    case(
        51,
        "teacher/srft/paper",
        f"{about}, and −A·π/(π + 0.1) on demonstrations",
        hyper={**srft, "demonstration_advantage": True},
        variants={
            "log-prob": {"surrogate": "reinforce"},
            "no-clip": {"clip_low": math.inf, "clip_high": math.inf},
            "code": {"demonstration_advantage": False},
        },
        **taught,
    )
    hpt = {**off, "teacher": "hpt", "length": 12}
    case(
        52,
        "teacher/hpt/code",
        "demonstrations by their own token mean, rollouts' sum over L without clip (HPT's code, arXiv 2509.04419)",
        hyper=hpt,
        **taught,
    )
    case(
        52,
        "teacher/hpt/switch",
        "a group with no success imitates its demonstration, any other is GRPO (HPT, arXiv 2509.04419, Eq. 9)",
        batch="switch9",
        hyper={**hpt, "switch": True},
        cuts=CUTS_OF_NINE,
    )
    whole_groups(off, srft)
    mixed = "the surrogate's token mean and the demonstrations', (1 − μ) and μ (CHORD, arXiv 2508.11408)"
    for mu in (0.1, 0.9):
        hyper = {**PPO, "teacher": "chord-mu", "mu": mu}
        case(53, f"teacher/chord-mu/{mu}", mixed, hyper=hyper, variants=DUAL, **taught)
    phi = f"{mixed}, each token of a demonstration times π(1 − π)"
    hyper = {**PPO, "teacher": "chord-phi", "mu": 0.1}
    case(54, "teacher/chord-phi/0.1", phi, hyper=hyper, variants=DUAL, **taught)
    case(
        55,
        "teacher/trapo",
        "a prefix's NLL times min(1, π/0.1), ρA after it (TRAPO, arXiv 2512.17636)",
        hyper={**off, "aggregate": "seq-mean-token-sum-norm", "length": 12, "teacher": "trapo", "d": 0.1},
        **{"with": {"source": SOURCES, "prefix": [2, 0, 5, 0, 0, 0]}},
    )
    for name, warmup, decay in (("from-peak", 0, 200), ("warm-up", 8, 200)):
        case(
            56,
            f"teacher/mixing-schedule/{name}",
            "μ at optimiser steps counted from 0: a straight rise, then half a cosine (arXiv 2508.11408)",
            kind="schedule",
            batch={},
            steps=[0, 1, 4, 8, 50, 108, 199, 200, 208, 500],
            hyper={"warmup": warmup, "decay": decay, "peak": 0.9, "valley": 0.05},
            variants={"counted-from-1": {"first_step": 1}},
        )


def supervised() -> None:
    core = BATCHES["core6"]
    by_sample = {"by-sample": {"aggregate": "seq-mean-token-mean"}}
    case(57, "sft/token-mean", "the mean NLL of all tokens of the step", hyper=SFT, variants=by_sample)
    planted_cuts = {key: CUTS[key] for key in ("6x1", "2x3", "3x2")}
    case(
        58,
        "sft/mean-of-means",
        "must fail: each micro-batch is divided by its own tokens (arXiv 2604.23747)",
        hyper=SFT,
        cuts=planted_cuts,
        planted={"bug": "mean-of-means", "r": planted_r(planted_cuts, mean_of_means)},
    )
    six = {"6x1": CUTS["6x1"]}
    for name, kept in (("last", [5]), ("first-and-last", [0, 5])):
        case(
            59,
            f"sft/dropped-micro-batches/{name}",
            "must fail: only some micro-batches reach the optimiser (DeepSpeed PR 7967, 7981)",
            hyper=SFT,
            cuts=six,
            planted={
                "bug": "dropped-micro-batches",
                "kept": kept,
                "r": planted_r(six, lambda cut, kept=kept: dropped(cut, kept)),
            },
        )
    prompts = {"mask": [[0] * (1 + i % 2) + [1] * (len(it) - 1 - i % 2) for i, it in enumerate(core["logp"])]}
    case(
        60,
        "sft/first-token",
        "the first token after the prompt is in the loss (OpenRLHF issue 973)",
        hyper=SFT,
        variants=by_sample,
        **{"with": prompts},
    )


def mean_of_means(steps: Any) -> list[Any]:
    logp = BATCHES["core6"]["logp"]
    micros = steps[0][0]
    grad: list[Any] = [None] * len(logp)
    for micro in micros:
        n = sum(len(logp[i]) for i in micro)
        for i in micro:
            grad[i] = [-1 / n / len(micros)] * len(logp[i])
    return grad


def dropped(steps: Any, kept: list[int]) -> list[Any]:
    logp = BATCHES["core6"]["logp"]
    n = sum(len(it) for it in logp)
    micros = steps[0][0]
    seen = {i for at in kept for i in micros[at]}
    return [[-1 / n if i in seen else 0.0] * len(it) for i, it in enumerate(logp)]


def planted_r(cuts: Json, broken: Any) -> Json:
    logp = BATCHES["core6"]["logp"]
    n = sum(len(it) for it in logp)
    right = np.full(n, -1 / n)
    return {
        key: float(np.linalg.norm(np.array(reference_flat(broken(steps))) - right) / np.linalg.norm(right))
        for key, steps in cuts.items()
    }


def advantage_cases() -> None:
    rewards = [1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.5, 0.25, 0.125, 0.875]
    groups = [0, 0, 0, 1, 1, 1, 2, 2, 2, 2]
    graded = {"group": groups, "reward": rewards}
    std = {"baseline": "mean", "std": {"ddof": 1, "epsilon": 1e-6}}
    case(
        61,
        "adv/std",
        "(R − mean)/(σ + 1e-6), σ with n − 1",
        kind="advantage",
        batch=graded,
        hyper=std,
        variants=other_deviations(),
    )
    case(61, "adv/mean", "R − mean (Dr. GRPO)", kind="advantage", batch=graded, hyper={"baseline": "mean"})
    loo = {"baseline": "leave-one-out"}
    case(62, "adv/leave-one-out", "R less the mean of the others", kind="advantage", batch=graded, hyper=loo)
    for reward in (0.1, 0.7):
        sizes = range(3, 33)
        constant = {
            "group": [at for at, size in enumerate(sizes) for _ in range(size)],
            "reward": [float(np.float32(reward))] * sum(sizes),
            "dtype": "f32",
        }
        for name, hyper in (("std", std), ("mean", {"baseline": "mean"}), ("leave-one-out", loo)):
            case(
                63,
                f"adv/constant-group/{name}/{reward}",
                "a group whose rewards are all one number has advantage 0, in sizes 3 to 32",
                kind="advantage",
                batch=constant,
                hyper=hyper,
            )
    for name, hyper in (("std", std), ("mean", {"baseline": "mean"}), ("leave-one-out", loo)):
        case(
            64,
            f"adv/group-of-one/{name}",
            "a group of one has advantage 0, or is refused",
            kind="advantage",
            batch={"group": [0, 1], "reward": [1.0, 0.5]},
            hyper=hyper,
            may_refuse=True,
        )
        case(
            65,
            f"adv/nan-reward/{name}",
            "a reward that is no number is refused, or that member alone is out",
            kind="advantage",
            batch={"group": [0, 0, 0, 1, 1, 1], "reward": [math.nan, 0.0, 1.0, 1.0, 0.0, 0.0]},
            hyper=hyper,
            expect={"refused": True},
        )
        case(
            66,
            f"adv/sum-to-zero/{name}",
            "the advantages of a group sum to 0",
            kind="advantage",
            batch=graded,
            hyper=hyper,
            sum_to_zero=True,
        )
        case(
            66,
            f"adv/shift/{name}",
            "a constant added to all rewards changes nothing",
            kind="advantage",
            batch=graded,
            hyper=hyper,
            pair={"with": {"reward": [r + 2.0 for r in rewards]}},
        )
    case(
        65,
        "adv/inf-reward/std",
        "a reward that is no finite number is refused, or that member alone is out",
        kind="advantage",
        batch={"group": [0, 0, 0, 1, 1, 1], "reward": [-math.inf, 0.0, 1.0, 1.0, 0.0, 0.0]},
        hyper=std,
        expect={"refused": True},
    )
    member_out()
    case(
        67,
        "adv/identical-rest",
        "where the others of a group are all one number, their spread is 0 and divides nothing (NeMo-RL PR 4158)",
        kind="advantage",
        batch={"group": [0] * 8, "reward": [float(np.float32(0.35))] * 7 + [0.0], "dtype": "f32"},
        hyper={**loo, "std": {"ddof": 1, "epsilon": 0.0}},
    )
    teacher = {"group": [0] * 4, "reward": [1.0, 0.0, 0.0, 1.0], "source": ["teacher", "policy", "policy", "policy"]}
    for name, inside in (("in", True), ("out", False)):
        case(
            68,
            f"adv/teacher-{name}-mean",
            f"the teacher's reward is {name} the group's mean" if inside else "the teacher's reward is out of the mean",
            kind="advantage",
            batch=teacher,
            hyper={"baseline": "mean", "teacher_in_mean": inside},
        )
    case(
        69,
        "adv/untrainable-member",
        "a member without a trainable token is in its group's mean",
        kind="advantage",
        batch={"group": [0] * 4, "reward": [1.0, 0.0, 0.0, 0.0], "trainable": [1, 1, 1, 0]},
        hyper={"baseline": "mean", "untrainable_in_mean": True},
        variants={"out-of-the-mean": {"untrainable_in_mean": False}},
    )


def member_out() -> None:
    """The registered answer to a reward that is no finite number, besides a refusal: that member has 0 and the others
    their own group."""
    names = [f"nan-reward/{it}" for it in ("std", "mean", "leave-one-out")]
    for name in (*names, "inf-reward/std"):
        path = f"cases/adv/{name}.json"
        record = json.loads(FILES[path])
        others = {**record, "batch": {"group": [0, 0, 1, 1, 1], "reward": [0.0, 1.0, 1.0, 0.0, 0.0]}}
        expect = {"advantage": [0.0, *reference.step(others, None)["advantage"]]}
        record["variants"] = {"member-out": {"hyper": {}, "expect": expect}}
        FILES[path] = dumps(plain(record))


# ---------------------------------------------------------------- what a bug needs to show


CUTS_OF_FIVE: Json = {
    "1x5": [[[[0, 1, 2, 3, 4]]]],
    "5x1": [[[[0], [1], [2], [3], [4]]]],
    "by-length": [[[[2, 3], [0], [4, 1]]]],
    "3+2": [[[[0, 1, 2], [3, 4]]]],
    "4+1": [[[[0, 1, 2, 3], [4]]]],
    "2+1@2": [[[[0, 3], [2]], [[1], [4]]]],  # Both prompts lie on both ranks.
}
TAUGHT = ["policy", "teacher", "policy", "policy", "teacher"]
K3 = {"kl": "k3", "beta": 1.0}
BOUNDS = {"low": 0.9, "high": 1.1}
TIS = {"tis": {"level": "token", "mode": "clip", **BOUNDS}}
VESPO = {"surrogate": "vespo", "k_positive": 2.0, "lambda_positive": 3.0, "k_negative": 3.0, "lambda_negative": 2.0,
         "aggregate": "token-mean"}  # fmt: skip
PROMPT_MEAN = {**PPO, "aggregate": "prompt-mean"}


def small(number: int, name: str, law: str, hyper: Json, /, **change: Any) -> None:
    """A case of small5, with some of its fields replaced."""
    source = change.pop("batch", "small5")
    more = {"variants": change.pop("variants")} if "variants" in change else {}
    if change:
        more["with"] = change
    case(number, name, law, hyper=hyper, batch=source, cuts=CUTS_OF_FIVE, **more)


def newer_surrogates() -> None:
    logp = BATCHES["small5"]["logp"]
    for name, hyper in {"ppo": TOKEN_MEAN, "gspo": GSPO}.items():
        law = "where π_old is π every ratio is 1, and the slope is that of −A·log π"
        small(70, f"agg/on-policy/{name}", law, hyper, old_logp=logp)
    dual = "a bad sequence's loss is at most −A·c by its one ratio"
    case(7, "agg/gspo/dual", dual, hyper={**GSPO, "dual_clip": 1.05})
    total = {**PPO, "aggregate": "token-sum"}
    small(71, "agg/token-sum/ppo", "the sum over all tokens of the step (verl's token-sum)", total)
    dro = {"surrogate": "dro", "dro_beta": 0.1, "aggregate": "token-mean"}
    small(72, "agg/dro", "−A·log π + 0.1/2·Δ² (DRO, arXiv 2405.19107, without its value function)", dro)
    about = "log π weighted by A and by exp(λ + k·ΣΔ − λ·exp(ΣΔ)), a constant of the sequence (VESPO, arXiv 2602.10693)"
    small(73, "agg/vespo", about, VESPO)
    luspo = {**GSPO, "aggregate": "seq-mean-token-sum"}
    small(74, "agg/luspo", "the sequence's ratio with the sum of its tokens (LUSPO, arXiv 2602.05261)", luspo)
    far = "a bad sequence whose mean of log π_sampler − log π is above 0.05 has no surrogate; N keeps it (DeepSeek-V3.2, arXiv 2512.02556)"
    small(75, "agg/off-policy-mask", far, {**TOKEN_MEAN, "off_policy_limit": 0.05})
    small(17, "agg/prompt-mean/uneven", "prompts of three and two rollouts weigh the same", PROMPT_MEAN)


def products() -> None:
    """Two terms in one loss: what one of them does not touch in the other."""
    mask = {"tis": {"level": "token", "mode": "mask", "keeps": "weight", **BOUNDS}}
    luffy = {**TOKEN_MEAN, "teacher": "luffy", "d": 0.1}
    with_kl = "the correction weighs the surrogate, not the KL"
    case(18, "tis/with-kl", with_kl, hyper={**TOKEN_MEAN, **TIS, **K3})
    with_teacher = "the correction weighs rollouts; nobody sampled a demonstration"
    case(18, "tis/with-teacher", with_teacher, hyper={**luffy, **TIS}, **{"with": {"source": SOURCES}})
    keeps = "a token whose surrogate is masked keeps its KL"
    small(19, "tis/mask-with-kl", keeps, {**TOKEN_MEAN, **mask, **K3})
    entropy = "the correction does not weigh the entropy bonus"
    small(18, "tis/with-entropy", entropy, {**TOKEN_MEAN, **TIS, "entropy_coef": 0.1})
    product = {"tis": {"level": "sequence-product", "mode": "clip", "high": 1.05}}
    small(21, "tis/gspo", "the correction of a sequence beside the sequence's ratio", {**GSPO, **product})
    upper = {"tis": {"level": "token", "mode": "clip", "high": 1.1}}
    small(18, "tis/token-truncate", "each token's loss times min(π_old/π_sampler, 1.1)", {**TOKEN_MEAN, **upper})
    whole = "a token that the correction masks counts in its sequence's mean"
    small(19, "tis/cispo", whole, {**CISPO, **mask, "aggregate": "seq-mean-token-mean"})
    for name, hyper in {"constant": CONSTANT, "gspo": GSPO, "prompt-mean": PROMPT_MEAN}.items():
        law = "the KL of every token, by the aggregation of the surrogate"
        small(27, f"kl/beside/{name}", law, {**hyper, **K3})
    ratio = {"surrogate": "none", "kl": "k3-times-ratio", "beta": 1.0, "aggregate": "token-mean"}
    small(76, "kl/k3-times-ratio", "ρ·k3, whose slope goes through ρ too (DeepSeek-V3.2, arXiv 2512.02556)", ratio)
    small(27, "kl/with-teacher", "a demonstration's tokens have no KL", {**luffy, **K3}, source=TAUGHT)
    constant = {"aggregate": "seq-mean-token-sum-norm", "length": 12, "d": 0.3}
    terms = {**PPO, **TIS, **K3}
    for number, name, hyper in (
        (51, "srft", {**terms, **constant, "entropy_coef": 0.1}),
        (52, "hpt", {**terms, "length": 12, "entropy_coef": 0.1}),
        (53, "chord-mu", {**terms, "mu": 0.2, "entropy_coef": 0.1}),
        (55, "trapo", {**terms, **constant}),
    ):
        law = "what a teacher wrote has no correction, no KL and no entropy bonus"
        more = {"prefix": [2, 0, 1, 0, 0]} if name == "trapo" else {}
        small(number, f"teacher/terms/{name}", law, {**hyper, "teacher": name}, source=TAUGHT, **more)
    for name, hyper in {"seq-mean": SEQ_MEAN, "constant": CONSTANT}.items():
        law = "−c·(mean entropy) by the loss's own aggregation"
        small(32, f"entropy/bonus/{name}", law, {**hyper, "entropy_coef": 0.1})
    for name, hyper in {
        "above": {**SEQ_MEAN, "temperature": 1.6},
        "gspo": {**GSPO, "temperature": 0.7},
    }.items():
        law = "logits are divided by T for the current and the old policy alike; grad is by the logits"
        case(34, f"temperature/{name}", law, batch="logits4", hyper=hyper, cuts=cuts_over(4))


def places() -> None:
    """Tokens out of the loss, padded places, empty parts of a cut."""
    product = {"tis": {"level": "sequence-product", "mode": "clip", "high": 1.05}}
    geometric = {"tis": {"level": "sequence-geometric", "mode": "mask", "keeps": "weight", "low": 0.97, "high": 1.05}}
    gmpo = {"surrogate": "gmpo", "clip_low": 0.4, "clip_high": 0.4, "aggregate": "seq-mean-token-mean"}
    masked: dict[str, Json] = {
        "seq-mean": SEQ_MEAN,
        "constant": CONSTANT,
        "prompt-mean": PROMPT_MEAN,
        "gmpo": gmpo,
        "kl": {**SEQ_MEAN, **K3},
        "entropy": {**TOKEN_MEAN, "entropy_coef": 0.1},
        "tis-product": {**TOKEN_MEAN, **product},
        "tis-geometric": {**TOKEN_MEAN, **geometric},
        "off-policy-mask": {**TOKEN_MEAN, **K3, "off_policy_limit": 0.05},
        "vespo": VESPO,
        "divisor": {
            **TOKEN_MEAN,
            "tis": {"level": "token", "mode": "mask", "keeps": "weight", **BOUNDS},
            "divisor": "kept",
        },
        "sft-seq-mean": {**SFT, "aggregate": "seq-mean-token-mean"},
    }
    for name, hyper in masked.items():
        law = "tokens out of the loss are in no sum, no mean and no divisor"
        small(77, f"law/masked-tokens/{name}", law, hyper, mask=holes("small5"))
    unread = {
        "ppo": TOKEN_MEAN,
        "gspo": GSPO,
        "kl": {**TOKEN_MEAN, **K3},
        "tis": {**TOKEN_MEAN, **TIS},
        "entropy": {**TOKEN_MEAN, "entropy_coef": 0.1},
    }
    law = "what stands at a token out of the loss changes nothing, NaN included"
    case(78, "law/masked-nan/cispo", law, batch="hole6", hyper=CISPO)
    for name, hyper in unread.items():
        small(78, f"law/masked-nan/{name}", law, hyper, batch="hole5")
    padded()
    empty()


def holes(name: str) -> list[list[int]]:
    """Every third token is out of the loss."""
    return [[int(t % 3 != 1) for t in range(len(it))] for it in BATCHES[name]["logp"]]


def padded() -> None:
    one = {"1x5": CUTS_OF_FIVE["1x5"]}

    def of(number: int, name: str, law: str, hyper: Json, layout: Json, change: Json) -> None:
        more: Json = {"pair": {"layout": layout}, **({"with": change} if change else {})}
        case(number, f"law/padding-{name}", law, kind="law", batch="small5", hyper=hyper, cuts=one, **more)

    constant = {**CONSTANT, "d": 0.3}
    gmpo = {"surrogate": "gmpo", "clip_low": 0.4, "clip_high": 0.4, "aggregate": "seq-mean-token-mean"}
    product = {"tis": {"level": "sequence-product", "mode": "clip", "high": 1.05}}
    terms = {**TOKEN_MEAN, **product, **K3, "entropy_coef": 0.1}
    trapo = {**constant, "teacher": "trapo"}
    taught, led = {"source": TAUGHT}, {"source": TAUGHT, "prefix": [2, 0, 1, 0, 0]}
    sides: list[tuple[str, str, Json, Json]] = [
        ("left", "gspo", GSPO, {}),
        ("left", "sft", SFT, {}),
        ("left", "terms", {**terms, **TIS}, {}),
        ("left", "trapo", trapo, led),
        ("packed", "gspo", GSPO, {}),
        ("packed", "terms", terms, {}),
        ("packed", "prompt-mean", {**PROMPT_MEAN, "off_policy_limit": 0.05}, {}),
        ("packed", "gmpo", gmpo, {}),
        ("packed", "vespo", VESPO, {}),
        ("packed", "srft", {**constant, "teacher": "srft"}, taught),
        ("packed", "trapo", trapo, led),
    ]
    for layout, name, hyper, change in sides:
        law = f"padding at the right or {layout}: the same step"
        of(39, f"{layout}/{name}", law, hyper, {"pad": layout}, change)
    filled: dict[str, tuple[Json, Json]] = {
        "nan/cispo": (CISPO, {"logp": math.nan}),
        "nan/gspo": (GSPO, {"logp": math.nan}),
        "nan/old": (CISPO, {"old_logp": math.nan}),
        "nan/kl": ({**TOKEN_MEAN, **K3}, {"ref_logp": math.nan}),
        "nan/tis": ({**TOKEN_MEAN, **TIS}, {"sampler_logp": math.nan}),
        "nan/entropy": ({**TOKEN_MEAN, "entropy_coef": 0.1}, {"entropy": math.nan}),
        "nan/sft": (SFT, {"logp": math.nan}),
        "low/kl": ({**TOKEN_MEAN, **K3}, {"logp": -1e10}),
    }
    for name, (hyper, fill) in filled.items():
        law = f"what lies in padded places of {', '.join(fill)} changes nothing, and their own slopes are 0"
        of(40, name, law, hyper, {"fill": fill}, {})


def empty() -> None:
    """Parts of a cut without a token in the loss."""
    batch = BATCHES["small5"]
    first = [[0] * len(it) if i < 2 else [1] * len(it) for i, it in enumerate(batch["logp"])]
    some = {key: CUTS_OF_FIVE[key] for key in ("1x5", "5x1")} | {"2+3": [[[[0, 1], [2, 3, 4]]]]}
    law = "a micro-batch with no token in the loss adds 0 and no NaN"
    more = {"with": {"mask": first}}
    case(44, "law/dead-micro-batch/kl", law, batch="small5", hyper={**TOKEN_MEAN, **K3}, cuts=some, **more)
    case(
        44,
        "law/dead-rank",
        "a rank with no token in the loss adds 0 and no NaN",
        batch="small5",
        hyper=TOKEN_MEAN,
        cuts={"1x5": CUTS_OF_FIVE["1x5"], "2+3@2": [[[[0, 1]], [[2, 3, 4]]]]},
        **{"with": {"mask": first}},
    )
    law = "a sequence with no token in the loss counts in B or does not; batch and cuts agree"
    gone = {"with": {"mask": [[int(i != 2)] * len(it) for i, it in enumerate(batch["logp"])]}}
    out = {"not-counted": {"empty_sequences": "out"}}
    case(
        42, "law/masked-sequence/constant", law, batch="small5", hyper=CONSTANT, cuts=CUTS_OF_FIVE, variants=out, **gone
    )
    windows = {
        "1x3,1x2": [[[[0, 1, 2]]], [[[3, 4]]]],
        "2+1,1+1": [[[[0, 1], [2]]], [[[3], [4]]]],
    }
    law = "two optimiser steps on one generation batch divide by their own counts each"
    for name, hyper in {"prompt-mean": PROMPT_MEAN, "constant": CONSTANT}.items():
        case(48, f"law/window/{name}", law, batch="small5", hyper=hyper, cuts=windows)
    law = "an optimiser step without a demonstration has no term of it, and no NaN"
    taught = {"source": ["policy", "teacher", "teacher", "policy", "policy"]}
    three = {"2,2,1": [[[[0, 1]]], [[[2, 3]]], [[[4]]]], "1+1,1+1,1": [[[[0], [1]]], [[[2], [3]]], [[[4]]]]}
    for name, hyper in {
        "chord": {**PPO, "teacher": "chord-mu", "mu": 0.2},
        "hpt": {**PPO, "teacher": "hpt", "length": 12},
    }.items():
        case(48, f"law/window/{name}", law, batch="small5", hyper=hyper, cuts=three, **{"with": taught})
    case(
        35,
        "law/permutation/prompt-mean",
        "gradients move with their sequences, whose prompts need not stand together",
        kind="law",
        batch="small5",
        hyper=PROMPT_MEAN,
        cuts={"1x5": CUTS_OF_FIVE["1x5"]},
        pair={"select": [3, 0, 4, 1, 2]},
    )


def rules() -> None:
    """What success is, and who is imitated, with rewards between 0 and 1 and with tokens out of the loss."""
    constant = {"aggregate": "seq-mean-token-sum-norm", "length": 12}
    hpt = {"surrogate": "ppo", "teacher": "hpt", "length": 12}
    case(
        52,
        "teacher/hpt/graded",
        "a reward of 0.1 is no success: `success_at` is 1",
        batch="switch9",
        hyper={**hpt, "switch": True, "success_at": 1.0},
        cuts=CUTS_OF_NINE,
        **{"with": {"reward": [0, 0.1, 1, 1, 0, 1, 0, 0, 1], "advantage": [-0.25, 0.5, -0.25, 0.5, -0.5, 0, 0, 0, 0]}},
    )
    srft = {**PPO, **constant, "teacher": "srft", "d": 0.1}
    graded = "SRFT's correct rollouts are those with a reward of at least `success_at`"
    half = {**srft, "success_at": 0.5}
    small(51, "teacher/srft/graded", graded, half, source=TAUGHT, reward=[0.6, 1.0, 0.4, 0.5, 1.0])
    constants = "SRFT's weights e^±H are constants: no slope by an entropy"
    small(51, "teacher/srft/detached", constants, {**srft, "entropy_coef": 0.0}, source=TAUGHT)
    for name, hyper, more in (
        ("luffy", {**TOKEN_MEAN, "teacher": "luffy", "d": 0.3}, {}),
        ("srft", srft, {}),
        ("hpt", hpt, {}),
        ("chord", {**PPO, "teacher": "chord-mu", "mu": 0.2}, {}),
        ("trapo", {"surrogate": "ppo", **constant, "teacher": "trapo", "d": 0.3}, {"prefix": [2, 0, 1, 0, 0]}),
    ):
        law = "tokens out of the loss are in no sum, no mean and no divisor of a teacher's terms"
        small(77, f"teacher/masked/{name}", law, hyper, source=TAUGHT, mask=holes("small5"), **more)
    for name, what in (("failures", "rollouts below `success_at`"), ("failed-groups", "groups without a success")):
        law = f"the pull to a teacher's model, k2, is on {what} alone; the divisor keeps all"
        hyper = {**TOKEN_MEAN, "kl": "k2", "beta": 1.0, "kl_on": name, "success_at": 1.0}
        small(79, f"kl/on-{name}", law, hyper, reward=[1.0, 0.4, 0.0, 0.0, 0.6])
    law = "a demonstration's success is none of its group"
    luffy = {**TOKEN_MEAN, "kl": "k2", "beta": 1.0, "kl_on": "failed-groups", "teacher": "luffy", "d": 0.3}
    small(79, "kl/on-failed-groups/taught", law, luffy, source=TAUGHT, reward=[0.9, 1.0, 0.0, 1.0, 0.0])
    within = [
        [int((t < len(it) - 1 and t != 1) or len(it) == 1) for t in range(len(it))] for it in BATCHES["small5"]["logp"]
    ]
    case(
        30,
        "kl/in-reward/masked",
        "the reward stands at the last token in the loss; a token out of it has none",
        kind="reward",
        batch="small5",
        hyper={"kl": "k1", "beta": 0.04},
        **{"with": {"mask": within, "reward": [1.0, -0.5, 0.25, 0.0, 2.0]}},
    )


def more_advantages() -> None:
    std = {"baseline": "mean", "std": {"ddof": 1, "epsilon": 1e-6}}
    loo = {"baseline": "leave-one-out"}

    def of(number: int, name: str, law: str, hyper: Json, rewards: list[float], **more: Any) -> None:
        variants = more.pop("variants", {})
        batch = {"group": [0] * len(rewards), "reward": rewards, **more}
        case(number, f"adv/{name}", law, kind="advantage", batch=batch, hyper=hyper, variants=variants)

    placed = "ε is added to σ, not to its square, and does not take its place"
    for name, reward in (("small", 2.0**-10), ("tiny", 2.0**-18)):
        of(61, f"std/{name}", placed, std, [0.0, 0.0, reward], variants=other_deviations())
    of(
        62,
        "leave-one-out/std",
        "R less the mean of the others, over their σ + ε",
        {**loo, "std": {"ddof": 1, "epsilon": 1e-6}},
        [0.0, 2.0**-18, 2.0**-17, 2.0**-18],
    )
    graded = [1.0, 0.25, 0.5, 0.0, 0.75]
    of(
        61,
        "std/groups",
        "members of a group need not stand together; beside it a constant group and a pair with negative rewards",
        std,
        [1.0, 0.25, 0.5, 0.3, -1.0, 0.3, 0.0, 0.3, -0.25],
        group=[7, 7, 7, 3, 4, 3, 7, 3, 4],
        variants=other_deviations(),
    )
    of(
        62,
        "interleaved/leave-one-out",
        "members of a group need not stand together",
        loo,
        [*graded, 0.5],
        group=[7, 3, 7, 3, 3, 7],
    )
    taught = ["teacher", *["policy"] * 4]
    outside = {**std, "teacher_in_mean": False}
    of(
        68,
        "teacher-out-std",
        "a teacher that is out of the mean is out of the deviation",
        outside,
        [1.0, 1.0, 0.0, 0.0, 0.0],
        source=taught,
    )
    of(
        68,
        "teacher-out-std/alone",
        "the rollouts' deviation alone, the teacher's reward far off",
        outside,
        [1.0, 0.0, 0.0, 0.0, 1.0],
        source=taught,
    )
    of(
        68,
        "teacher-out-std/failed",
        "where all rollouts failed their spread is 0 and divides nothing",
        outside,
        [1.0, 0.0, 0.0, 0.0, 0.0],
        source=taught,
        variants={"all-zero": {"constant_rest": "zero"}},
    )
    of(
        68,
        "teacher-in-std",
        "a teacher that is in the mean is in the deviation",
        {**std, "teacher_in_mean": True},
        [1.0, 0.0, 0.0, 0.5, 0.0],
        source=taught,
    )
    of(
        68,
        "teacher-out-leave-one-out",
        "the mean of the other rollouts; a teacher's baseline is all of them",
        {**loo, "teacher_in_mean": False},
        [1.0, 0.0, 0.25, 0.5, 0.0],
        source=taught,
    )
    of(
        69,
        "untrainable-member/std",
        "a member without a trainable token is in its group's mean and deviation",
        {**std, "untrainable_in_mean": True},
        [1.0, 0.0, 0.0, 0.5],
        trainable=[1, 1, 1, 0],
    )
    of(
        68,
        "teacher-in-leave-one-out",
        "a teacher that is in the mean is among the others",
        {**loo, "teacher_in_mean": True},
        [1.0, 0.0, 0.25, 0.5, 0.0],
        source=taught,
    )
    of(
        69,
        "untrainable-member/leave-one-out",
        "a member without a trainable token is among the others",
        {**loo, "untrainable_in_mean": True},
        [1.0, 0.0, 0.0, 0.5],
        trainable=[1, 1, 1, 0],
    )
    of(
        68,
        "teacher-out-std/several",
        "two teachers of one group, one without success, beside a group of a teacher alone and an untrainable rollout",
        {**outside, "untrainable_in_mean": False},
        [0.25, 1.0, 0.0, 0.5, 1.0, 1.0, 0.75],
        group=[0, 0, 0, 0, 0, 1, 0],
        source=["policy", "teacher", "teacher", *["policy"] * 2, "teacher", "policy"],
        trainable=[1, 1, 1, 1, 1, 1, 0],
    )


def other_deviations() -> Json:
    return {
        f"n{'-1' if ddof else ''}, epsilon {epsilon:g}": {"std": {"ddof": ddof, "epsilon": epsilon}}
        for ddof in (1, 0)
        for epsilon in (0.0, 1e-9, 1e-8, 1e-6, 1e-4)
        if (ddof, epsilon) != (1, 1e-6)
    }


# ---------------------------------------------------------------- files


def plain(it: Any) -> Any:
    """Lists, numbers and strings alone; JSON's missing numbers as strings."""
    if isinstance(it, dict):
        return {key: plain(value) for key, value in it.items()}
    if isinstance(it, (list, tuple)):
        return [plain(value) for value in it]
    if isinstance(it, np.ndarray):
        return plain(it.tolist())
    if isinstance(it, (np.floating, np.integer)):
        return plain(it.item())
    if isinstance(it, float) and not math.isfinite(it):
        return "nan" if math.isnan(it) else ("inf" if it > 0 else "-inf")
    return it


def dumps(record: Json) -> str:
    """Sorted keys, a line for each innermost list."""

    def write(it: Any, indent: str) -> str:
        if isinstance(it, dict) and it:
            rows = (f"{indent} {json.dumps(key)}: {write(it[key], indent + ' ')}" for key in sorted(it))
            return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
        if isinstance(it, list) and any(isinstance(part, list) for part in it) and depth(it) < 4:
            rows = (f"{indent} {write(part, indent + ' ')}" for part in it)
            return "[\n" + ",\n".join(rows) + f"\n{indent}]"
        return json.dumps(it, ensure_ascii=False)

    return write(record, "") + "\n"


def depth(it: Any) -> int:
    return 1 + max((depth(part) for part in it), default=0) if isinstance(it, list) else 0


def main() -> int:
    for make in (core6, small5, switch9, micro8, logits4, far6):
        make()
    for make in (surrogates, corrections, divergences, laws, teachers, supervised, advantage_cases):
        make()
    for make in (newer_surrogates, products, places, rules, more_advantages):
        make()
    for name, record in BATCHES.items():
        FILES[f"batches/{name}.json"] = dumps(record)
    if "--check" in sys.argv[1:]:
        return check()
    for folder in ("cases", "batches"):
        for path in (HERE / folder).rglob("*.json"):
            if str(path.relative_to(HERE)) not in FILES:
                path.unlink()
    for name, text in FILES.items():
        path = HERE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    print(f"{len(FILES)} files, {sum(map(len, FILES.values())) / 1e3:.0f} kB")
    return 0


def check() -> int:
    """Everything but the last digits of floating-point numbers must be as written."""
    stale = [name for name, text in FILES.items() if not same(HERE / name, text)]
    folders = ("cases", "batches")
    extra = [p for f in folders for p in (HERE / f).rglob("*.json") if str(p.relative_to(HERE)) not in FILES]
    for name in [*stale, *extra]:
        print(f"stale: {name}")
    return 1 if stale or extra else 0


def same(path: Path, text: str) -> bool:
    return path.is_file() and close(json.loads(path.read_text()), json.loads(text))


def close(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(close(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(close(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= 1e-13 * max(1.0, abs(b))
    return bool(a == b)


if __name__ == "__main__":
    sys.exit(main())
