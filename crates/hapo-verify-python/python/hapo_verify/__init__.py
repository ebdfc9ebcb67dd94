"""A grader of mathematical answers that cannot hang, never raises because of a completion, and says why.

>>> from hapo_verify import verify
>>> verify("7", "The answer is 7 or 8").reason
'more than one answer, or none, is announced'
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from hapo_verify._native import __version__, judge_all, parse_one

__all__ = ["POLICIES", "Answer", "Verdict", "__version__", "grade_batch", "parse", "verify"]

POLICIES = ("training", "benchmark", "math-verify", "math", "oat", "boxed", "gsm8k", "last-number")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a policy says of one answer. True where it is correct."""

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

    def __bool__(self) -> bool:
        return self.correct


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a text."""

    normal: str
    """Its normal form, which equal answers mostly share."""
    latex: str
    """The answer as it is written."""
    found: str
    """"boxed", "announced", or "whole" where the text is taken for the answer."""


def verify(gold: str | Sequence[str], answer: str, *, policy: str = "training") -> Verdict:
    """Judges the answer of a completion against a gold answer, or against several of which any counts."""
    return Verdict(*judge_all([_golds(gold)], [_text(answer)], policy, 1)[0])


def grade_batch(
    golds: Sequence[str | Sequence[str]],
    answers: Sequence[str],
    *,
    policy: str = "training",
    threads: int | None = None,
) -> list[Verdict]:
    """Judges many completions, in order, on ``threads`` threads, by default as many as there are cores."""
    if threads is not None and threads < 1:
        raise ValueError(f"threads: expected at least 1, got {threads}")
    rows = judge_all(
        [_golds(it) for it in golds], [_text(it) for it in answers], policy, threads or os.cpu_count() or 1
    )
    return [Verdict(*it) for it in rows]


def parse(text: str) -> Answer | None:
    """The answer that a text gives; None where nothing in it can be read."""
    found = parse_one(_text(text))
    return None if found is None else Answer(*found)


def _text(text: str) -> str:
    """The text; a lone surrogate becomes the replacement character, since model output is data."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _golds(gold: str | Sequence[str]) -> list[str]:
    return [_text(gold)] if isinstance(gold, str) else [_text(it) for it in gold]
