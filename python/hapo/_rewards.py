"""Reward functions: in the shapes that trainers call, and those that a run calls in this process."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hapo._errors import Error
from hapo._grade import grade, grade_many

Reward = Callable[..., Any]


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


_FORMS = (
    "f(completions, rows) -> list[float], TRL's f(prompts, completions, **columns) -> list[float], or "
    "verl's f(data_source, solution_str, ground_truth, extra_info) -> float"
)


def name_of(reward: Reward) -> str:
    """The function's name in a recipe."""
    of = reward if hasattr(reward, "__qualname__") else type(reward)
    return f"python:{of.__module__}.{of.__qualname__}"


def in_process(reward: Reward) -> Callable[[str], str]:
    """The function as the engine calls it: with a line of JSON about one completion, for the line that answers it."""
    call = _call_of(reward)

    def answer(line: str) -> str:
        about = json.loads(line)
        about["row"] = {"problem": about["prompt"], "answer": about["gold"], **(about["row"] or {})}
        try:
            return json.dumps(_answer(call(about)))
        except Exception as problem:
            row = about["row"].get("id") or _excerpt(about["prompt"])
            what = f"{type(problem).__name__}: {problem}" if str(problem) else type(problem).__name__
            raise Error(f"{what} (row {row!r}, completion {_excerpt(about['completion'])!r})") from problem

    return answer


def _call_of(reward: Reward) -> Callable[[dict[str, Any]], Any]:
    """The call of a function by the names of its parameters."""
    if not callable(reward):
        raise Error(f"reward: expected a grader's name or a function, got {type(reward).__name__}")
    parameters = inspect.signature(reward).parameters
    takes_all = any(it.kind is it.VAR_KEYWORD for it in parameters.values())
    own = {"completions", "rows"} <= parameters.keys()
    trl = "completions" in parameters and (takes_all or "prompts" in parameters)
    verl = {"solution_str", "ground_truth"} <= parameters.keys()
    if own + trl + verl != 1:
        name = getattr(reward, "__name__", type(reward).__name__)
        raise Error(f"reward: {name}({', '.join(parameters)}): expected {_FORMS}")

    def columns(about: dict[str, Any]) -> dict[str, Any]:
        if own:
            return {"completions": [about["completion"]], "rows": [about["row"]]}
        if trl:
            of_row = {name: [it] for name, it in about["row"].items()}
            return {**of_row, "prompts": [about["prompt"]], "completions": [about["completion"]]}
        return {
            "data_source": about["row"].get("data_source", about["row"].get("source", "")),
            "solution_str": about["completion"],
            "ground_truth": about["gold"],
            "extra_info": about["row"].get("extra_info"),
        }

    def call(about: dict[str, Any]) -> Any:
        given = columns(about)
        answer = reward(**(given if takes_all else {name: given[name] for name in parameters if name in given}))
        if verl:
            return answer
        if not isinstance(answer, Sequence) and not hasattr(answer, "__len__"):
            raise TypeError(f"expected a list of one reward, got {_kind(answer)}")
        if len(answer) != 1:
            raise ValueError(f"expected a list of one reward, got {len(answer)}")
        return answer[0]

    return call


def _answer(reward: Any) -> Any:
    """A reward as the engine reads it: a number, or verl's dictionary with its other numbers as parts."""
    if isinstance(reward, Mapping):
        key = "score" if "score" in reward else "reward"
        if key not in reward:
            raise ValueError(f"expected `score` or `reward`, got {sorted(reward)}")
        others = {str(name): it for name, it in reward.items() if name != key}
        parts = {name: _number(it) for name, it in others.items() if isinstance(it, int | float)}
        return {"reward": _number(reward[key]), "parts": parts}
    return _number(reward)


def _number(it: Any) -> float:
    if isinstance(it, str | bytes) or it is None or not hasattr(it, "__float__"):
        raise TypeError(f"expected a number, got {_kind(it)}")
    return float(it)


def _kind(it: Any) -> str:
    return "None" if it is None else type(it).__name__


def _excerpt(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:40]}…{text[-39:]}"
