"""Reward functions: in the shapes that trainers call, and those that a run calls in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hapo._errors import Error
from hapo._grade import grade, grade_many
from hapo._reward_call import Reward, answers_of


def reward_trl(
    completions: Sequence[str | Sequence[Mapping[str, Any]]],
    answer: Sequence[str | Sequence[str]],
    *,
    grader: str = "math",
    extraction: str = "announced",
    **_: Any,
) -> list[float]:
    """1.0 for each completion whose answer means the gold answer, else 0.0: a reward function for TRL.

    The data set's column ``answer`` holds the gold answers. Completions may be texts or conversations. ``extraction``
    says what counts as an answer, by default as in training: a closed box or an announced answer. Truncation is not
    seen here: ``hapo.trl`` takes the reward of truncated responses away, TRL's own trainer does not.
    """
    texts = [_text(it) for it in completions]
    return [it.reward for it in grade_many(list(answer), texts, grader, extraction=extraction)]


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str | Sequence[str],
    extra_info: Mapping[str, Any] | None = None,
    *,
    grader: str = "math",
    extraction: str = "announced",
    **_: Any,
) -> float:
    """1.0 if the solution's answer means the ground truth, else 0.0: a reward function for verl.

    In verl's configuration: ``reward.custom_reward_function.path=pkg://hapo`` and ``.name=compute_score``.
    """
    return grade(_gold(ground_truth), solution_str, grader, extraction=extraction).reward


def _text(completion: str | Sequence[Mapping[str, Any]]) -> str:
    """The text of a completion, or of the last turn of a conversation."""
    if isinstance(completion, str):
        return completion
    content = completion[-1].get("content") if completion else ""
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


def _gold(gold: Any) -> str | list[str]:
    if isinstance(gold, str):
        return gold
    if isinstance(gold, int | float):
        return str(gold)
    return [str(it) for it in gold]


def name_of(reward: Reward) -> str:
    """The function's name in a recipe."""
    of = reward if hasattr(reward, "__qualname__") else type(reward)
    return f"python:{of.__module__}.{of.__qualname__}"


def in_process(reward: Reward) -> Callable[[str], str]:
    """The function as the engine calls it: with a line of JSON about one completion, for the line that answers it."""
    if not callable(reward):
        raise Error(f"reward: expected a grader's name or a function, got {type(reward).__name__}")
    try:
        call = answers_of(reward)
    except TypeError as problem:
        raise Error(f"reward: {problem}") from None

    def answer(line: str) -> str:
        try:
            return json.dumps(call(json.loads(line)))
        except ValueError as problem:
            raise Error(str(problem)) from problem.__cause__

    return answer
