"""A grader of mathematical answers that cannot hang, never raises because of a completion, and says why.

>>> from hapo_verify import verify
>>> verify("7", "The answer is 7 or 8").reason
'more than one answer, or none, is announced'
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import NamedTuple

from ._native import __version__, judge_all, parse_one

__all__ = ["POLICIES", "Answer", "Policy", "Verdict", "__version__", "grade_batch", "parse", "verify"]


class Policy(NamedTuple):
    """What a verdict is paid for."""

    grader: str
    extraction: str = "any"
    """What the grader takes for an answer."""


POLICIES = {
    "training": Policy("training"),
    "benchmark": Policy("benchmark"),
    "math-verify": Policy("math"),
    "math": Policy("math"),
    "oat": Policy("oat"),
    "boxed": Policy("benchmark", "boxed"),
    "gsm8k": Policy("benchmark", "announced"),
    "last-number": Policy("last-number"),
}


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """What a policy says of one answer. True where it is correct; equal to a verdict of ``hapo.verify``."""

    correct: bool
    """Whether the answer means the gold answer."""
    name: str
    """"correct", "wrong" or "unparsable"."""
    reason: str
    """The rule that decided, or why there is no answer to judge."""
    gold: str
    """The gold answer as it was read."""
    answer: str
    """The answer as it was read; empty if it was not."""
    extracted_from: tuple[int, int] | None
    """Where the answer stands in the completion, in characters, if it stands there as it was read."""

    @property
    def reward(self) -> float:
        """1.0 where it is correct, else 0.0."""
        return float(self.correct)

    def __bool__(self) -> bool:
        return self.correct

    def __eq__(self, other: object) -> bool:
        if type(other).__qualname__ != "Verdict":
            return NotImplemented
        return all(getattr(self, it) == getattr(other, it, None) for it in self.__slots__)

    def __hash__(self) -> int:
        return hash(astuple(self))


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a text."""

    normal: str
    """Its normal form, which equal answers mostly share."""
    latex: str
    """The answer as it is written."""
    found: str
    """"boxed", "announced", or "whole" where the text is taken for the answer."""


def verify(
    gold: str | Sequence[str], answer: str, *, policy: str = "training", extraction: str | None = None
) -> Verdict:
    """Judges the answer of a completion against a gold answer, or against several of which any counts.

    ``extraction`` is "boxed", "announced", "whole" (the text is the answer) or "any"; by default the policy's."""
    return Verdict(*judge_all([gold], [answer], _policy(policy, extraction), 1)[0])


def grade_batch(
    golds: Sequence[str | Sequence[str]],
    answers: Sequence[str],
    *,
    policy: str = "training",
    extraction: str | None = None,
    threads: int | None = None,
) -> list[Verdict]:
    """Judges many completions, in order, on ``threads`` threads, by default as many as there are cores."""
    return [Verdict(*it) for it in judge_all(golds, answers, _policy(policy, extraction), threads)]


def parse(text: str) -> Answer | None:
    """The answer that a text gives; None where nothing in it can be read."""
    found = parse_one(text)
    return None if found is None else Answer(*found)


def _policy(policy: str, extraction: str | None = None) -> Policy:
    if policy not in POLICIES:
        raise ValueError(f"policy: expected one of {', '.join(POLICIES)}, got {policy!r}")
    found = POLICIES[policy]
    return found if extraction is None else Policy(found.grader, extraction)
