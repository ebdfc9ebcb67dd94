"""The numbers of each call, and one verdict for each case.

With g the engine's gradient and g* the answer: the scale s = <g, g*>/<g*, g*>, the direction error
d = |g − s·g*|/|s·g*|, and the total error r = |g − g*|/|g*|. Where the answer is 0, r is the largest number of g.
The loss has an error of its own, |ℓ − ℓ*| over the larger of |ℓ*| and |g*|, or over 1 where both are 0.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

EXACT, EQUAL = 1e-12, 1e-6
# A verdict is one of these words; `run.passes` says which pass.
VERDICTS = (
    "exact",
    "equal",
    "scaled",
    "cut-dependent",
    "other definition",
    "different",
    "refused",
    "n/a",
)


@dataclass(frozen=True)
class Comparison:
    """How far an answer is from the expected one."""

    r: float
    s: float
    d: float
    loss_error: float | None = None
    """None where the engine gives no loss, or its value means nothing."""

    @property
    def exact(self) -> bool:
        return self.r <= EXACT and self.loss_within(EXACT)

    @property
    def equal(self) -> bool:
        return self.r <= EQUAL and self.loss_within(EQUAL)

    def loss_within(self, bound: float) -> bool:
        """Not so for a loss that is no number."""
        return self.loss_error is None or self.loss_error <= bound

    def as_record(self) -> dict[str, Any]:
        return {key: _json(value) for key, value in asdict(self).items()}


def compare(got: Any, expected: Any, loss: tuple[float | None, float | None] = (None, None)) -> Comparison:
    """Compares nested lists of numbers, and the losses where both are given."""
    g, answer = flat(got), flat(expected)
    if g.shape != answer.shape:
        raise ValueError(f"expected {len(answer)} numbers, got {len(g)}")
    norm = float(np.linalg.norm(answer))
    error = loss_error(loss[0], loss[1], norm)
    if not np.isfinite(g).all():
        return Comparison(math.nan, math.nan, math.nan, error)
    if norm == 0:
        largest = float(np.abs(g).max(initial=0.0))
        return Comparison(largest, 1.0, 0.0 if largest <= EXACT else math.inf, error)
    s = float(g @ answer / (answer @ answer))
    rest = float(np.linalg.norm(g - s * answer))
    d = rest / abs(s * norm) if s else math.inf
    return Comparison(float(np.linalg.norm(g - answer)) / norm, s, d, error)


def loss_error(got: float | None, expected: float | None, scale: float) -> float | None:
    """The error of a loss; a loss that is no number is wrong also where its value means nothing."""
    if got is None:
        return None
    if not math.isfinite(got):
        return math.nan
    if expected is None:
        return None
    return abs(got - expected) / (max(abs(expected), scale) or 1.0)


def flat(it: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The numbers of nested lists, in order."""
    if isinstance(it, (list, tuple)):
        parts = [flat(value) for value in it]
        return np.concatenate(parts) if parts else np.zeros(0)
    return np.atleast_1d(np.asarray(it, dtype=np.float64)).ravel()


def of_case(results: dict[str, Comparison], variants: dict[str, dict[str, Comparison]]) -> tuple[str, str]:
    """The verdict over all cuts, with what it rests on in a few words. The first cut is the uncut batch."""
    cuts = list(results.values())
    if all(it.exact for it in cuts):
        return "exact", ""
    if all(it.equal for it in cuts):
        return "equal", ""
    by_name = {name: list(its.values()) for name, its in variants.items()}
    for name, its in by_name.items():
        if its and all(it.equal for it in its):
            return "other definition", name
    slopes_are_right = all(it.r <= EQUAL for it in cuts)
    if not slopes_are_right and all(it.d <= EQUAL and abs(it.s - cuts[0].s) <= EQUAL * abs(cuts[0].s) for it in cuts):
        return "scaled", f"s = {cuts[0].s:.6g}"
    about_loss = "the loss" if slopes_are_right else ""
    if cuts[0].equal and len(cuts) > 1:
        return "cut-dependent", about_loss
    for name, its in by_name.items():
        if its and its[0].equal and len(its) > 1:
            return "cut-dependent", f"uncut: {name}"
    return "different", "not a number" if any(math.isnan(it.r) for it in cuts) else about_loss


def _json(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value
