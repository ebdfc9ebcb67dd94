"""The rewards of the planted runs: one function of text and answer, and both frameworks' signatures of each."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

Grade = Callable[[str, str], "float | None"]
BOX = re.compile(r"\\boxed\{([^{}]*)\}")


def boxed(text: str, answer: str) -> float:
    """The last box is the answer."""
    found = BOX.findall(text)
    return float(bool(found) and found[-1] == answer)


def raises(text: str, answer: str) -> float:
    """Reads the whole response as a number, as if it had no steps and no box."""
    return float(int(text) == int(answer))


def nothing_if_it_raises(text: str, answer: str) -> float | None:
    try:
        return raises(text, answer)
    except ValueError:
        return None


def zero_if_it_raises(text: str, answer: str) -> float:
    try:
        return raises(text, answer)
    except ValueError:
        return 0.0


def substring(text: str, answer: str) -> float:
    """The answer's digits stand somewhere."""
    return float(answer in text)


def any_box(text: str, answer: str) -> float:
    """Any box will do."""
    return float(bool(BOX.search(text)))


def for_trl(grade: Grade) -> Callable[..., list[float | None]]:
    """As GRPOTrainer calls it; the answers go into the table of completions."""

    def reward(
        completions: list[Any], answer: list[str], log_extra: Callable[..., None] | None = None, **_: Any
    ) -> list[float | None]:
        texts = [it if isinstance(it, str) else it[-1]["content"] for it in completions]
        if log_extra is not None:
            log_extra("answer", list(answer))
        return [grade(text, gold) for text, gold in zip(texts, answer, strict=True)]

    reward.__name__ = grade.__name__
    return reward


def for_verl(grade: Grade) -> Callable[..., float | None]:
    """As verl calls a custom reward function."""

    @functools.wraps(grade)
    def reward(
        data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **_: Any
    ) -> float | None:
        return grade(solution_str, ground_truth)

    return reward


verl_boxed, verl_zero_if_it_raises = for_verl(boxed), for_verl(zero_if_it_raises)
verl_substring, verl_any_box = for_verl(substring), for_verl(any_box)
