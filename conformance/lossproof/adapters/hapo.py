"""hapo's Python package (MIT OR Apache-2.0): its losses with the divisor of the whole optimiser step.

`hapo.divisor` is called once for a step, `policy_terms` and `teacher_terms` once for each micro-batch; both write the
derivative in f32. `divisor` and `terms` are what `hapo.torch.policy_loss` calls, here without torch.
"""

from __future__ import annotations

from typing import Any

import hapo
import numpy as np
from hapo import _hapo
from numpy.typing import NDArray

from lossproof.cases import Case, Cut, NotApplicable, Refused

engine = "hapo, wheel"
licence = "MIT OR Apache-2.0"
adapter_version = "1"
about = "hapo.divisor with policy_terms and teacher_terms of the extension module; hapo.advantages."
KNOWN = {"surrogate", "clip_low", "clip_high", "aggregate", "length", "teacher", "d", "mu"}
Array = NDArray[Any]


def engine_version() -> str:
    return str(hapo.__version__)


def step(case: Case, cut: Cut | None) -> dict[str, Any]:
    if case["kind"] == "advantage":
        return {"advantage": advantages(case)}
    if case["kind"] not in ("loss", "law") or cut is None:
        raise NotApplicable(f"no {case['kind']} in the package")
    if missing := sorted(set(case["hyper"]) - KNOWN):
        raise NotApplicable(f"no {', '.join(missing)}")
    total, grad = 0.0, [np.zeros(len(row)) for row in case["batch"]["logp"]]
    for ranks in cut["steps"]:
        rows = [i for rank in ranks for micro in rank for i in micro]
        for rank in ranks:
            for micro in rank:
                total += micro_batch(case, rows, micro, grad)
    return {"loss": total, "grad": [it.tolist() for it in grad]}


def micro_batch(case: Case, step_rows: list[int], micro: list[int], grad: list[Array]) -> float:
    """Adds the slopes of one micro-batch and returns its loss."""
    sources = case["batch"].get("source")
    total = 0.0
    for teacher in (False, True):
        rows = [
            i for i in micro if (bool(sources) and sources[i] == "teacher" and "teacher" in case["hyper"]) == teacher
        ]
        if rows:
            total += terms(case, step_rows, rows, grad, teacher)
    return total


def terms(case: Case, step_rows: list[int], rows: list[int], grad: list[Array], teacher: bool) -> float:
    hyper, batch = case["hyper"], case["batch"]
    normaliser, divisor = divisor_of(case, step_rows, teacher)
    logp, mask = padded(case, "logp", rows), padded(case, "mask", rows).astype(bool)
    slopes = np.empty(logp.shape, np.float32)
    factor = share(hyper, teacher)
    if teacher or hyper["surrogate"] == "nll":
        operator, weights = teacher_operator(case, rows, teacher)
        loss, *_ = _hapo.teacher_terms(
            logp,
            mask,
            factor * weights,
            divisor,
            slopes,
            operator=operator,
            d=hyper.get("d", 0.1),
            normaliser=normaliser,
        )
    else:
        level = {"ppo": "token", "gspo": "sequence"}.get(hyper["surrogate"])
        if level is None:
            raise NotApplicable(f"no {hyper['surrogate']}")
        loss, *_ = _hapo.policy_terms(
            logp,
            padded(case, "old_logp", rows),
            mask,
            factor * np.array([batch["advantage"][i] for i in rows], np.float64),
            divisor,
            slopes,
            clip_low=hyper.get("clip_low", np.inf),
            clip_high=hyper.get("clip_high", np.inf),
            importance_ratio_level=level,
            normaliser=normaliser,
        )
    for at, i in enumerate(rows):
        grad[i] += place(case, slopes[at], len(grad[i]))
    return float(loss)


def divisor_of(case: Case, rows: list[int], teacher: bool) -> tuple[str, float]:
    """The name of the normaliser and its number for the optimiser step."""
    hyper, batch = case["hyper"], case["batch"]
    lengths = {i: tokens(batch, i) for i in rows}
    if hyper.get("teacher") in ("chord-mu", "chord-phi", "hpt"):
        taught = {i: n for i, n in lengths.items() if batch["source"][i] == "teacher"}
        if teacher:
            return "token-mean", hapo.divisor("token-mean", list(taught.values()))
        if hyper["teacher"] == "hpt":
            return "length", hapo.divisor("length", list(lengths.values()), hyper["length"])
        lengths = {i: n for i, n in lengths.items() if i not in taught}
        return "token-mean", hapo.divisor("token-mean", list(lengths.values()))
    names = {
        "token-mean": ("token-mean", None),
        "seq-mean-token-mean": ("sequence-mean", None),
        "seq-mean-token-sum-norm": ("constant", hyper.get("length", 12)),
        "seq-mean-token-sum": ("constant", 1),
    }
    if hyper["aggregate"] not in names:
        raise NotApplicable(f"no {hyper['aggregate']}")
    name, longest = names[hyper["aggregate"]]
    return name, hapo.divisor(name, list(lengths.values()), longest)


def teacher_operator(case: Case, rows: list[int], teacher: bool) -> tuple[str, Array]:
    batch = case["batch"]
    ones = np.ones(len(rows))
    if not teacher:
        return "srft", ones
    match case["hyper"]["teacher"]:
        case "luffy":
            return "luffy", np.array([batch["advantage"][i] for i in rows], np.float64)
        case "hpt" | "chord-mu":
            return "srft", ones
        case "chord-phi":
            return "chord", ones
        case other:
            raise NotApplicable(f"{other} in the command alone")


def share(hyper: dict[str, Any], teacher: bool) -> float:
    mu = hyper.get("mu")
    if mu is None:
        return 1.0
    return float(mu) if teacher else 1.0 - float(mu)


def tokens(batch: dict[str, Any], i: int) -> int:
    return int(sum(batch["mask"][i])) if "mask" in batch else len(batch["logp"][i])


def padded(case: Case, name: str, rows: list[int]) -> Array:
    """Rows of one width, with the layout's padding and what lies in it."""
    batch, layout = case["batch"], case.get("layout", {})
    if layout.get("pad") == "packed":
        raise NotApplicable("takes padded rows")
    width = max(map(len, batch["logp"])) + layout.get("extra", 0)
    values = batch.get(name) or [[1] * len(it) for it in batch["logp"]]
    result = np.full((len(rows), width), layout.get("fill", {}).get(name, 0.0), np.float32)
    for at, i in enumerate(rows):
        start = width - len(values[i]) if layout.get("pad") == "left" else 0
        result[at, start : start + len(values[i])] = values[i]
    if name == "mask":
        return result
    return np.ascontiguousarray(result)


def place(case: Case, slopes: Array, n: int) -> Array:
    start = len(slopes) - n if case.get("layout", {}).get("pad") == "left" else 0
    return slopes[start : start + n].astype(np.float64)


def advantages(case: Case) -> list[float]:
    batch, hyper = case["batch"], case["hyper"]
    if hyper["baseline"] != "mean" or "source" in batch or hyper.get("untrainable_in_mean") is False:
        raise NotApplicable("the mean of the group alone")
    try:
        result = hapo.advantages(batch["reward"], [str(it) for it in batch["group"]], std=bool(hyper.get("std")))
    except ValueError as error:
        raise Refused(str(error)) from error
    return [float(it) for it in result]
