"""A reward function called by the names of its parameters, and a program around it: a line in, a line out.

No import but the standard library's: the command `hapo` runs this file for `python:FILE.py:FUNCTION`, with any Python.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Reward = Callable[..., Any]

_FORMS = (
    "f(completions, rows) -> list[float], TRL's f(prompts, completions, **columns) -> list[float], or "
    "verl's f(data_source, solution_str, ground_truth, extra_info) -> float"
)


def answers_of(reward: Reward) -> Callable[[dict[str, Any]], Any]:
    """The function as the engine calls it: with what a line says of one completion, for a reward or a dictionary.

    Raises TypeError where the parameters fit none of the three forms, or several. The call raises whatever the function
    raises, with the row and the completion behind it.
    """
    call = _call_of(reward)

    def answer(about: dict[str, Any]) -> Any:
        process = os.getpid()
        about["row"] = {"problem": about["prompt"], "answer": about["gold"], **(about["row"] or {})}
        try:
            return _answer(call(about))
        except Exception as problem:
            row = about["row"].get("id") or _excerpt(about["prompt"])
            what = f"{type(problem).__name__}: {problem}" if str(problem) else type(problem).__name__
            raise ValueError(f"{what} (row {row!r}, completion {_excerpt(about['completion'])!r})") from problem
        finally:
            end_copy(process, "the reward function")

    return answer


def end_copy(process: int, what: str) -> None:
    """Ends this process if it is a copy of that one, made by a fork: the engine's threads are not in it."""
    if os.getpid() != process:
        os.write(2, f"hapo: {what} forked, and its copy came back: it ends here; call os._exit in it\n".encode())
        os._exit(70)


def main(file: str, name: str) -> None:
    """Answers lines by the function of that name in a file."""

    def load() -> Reward:
        sys.path.insert(0, os.path.dirname(os.path.abspath(file)))
        spec = importlib.util.spec_from_file_location(os.path.basename(file).removesuffix(".py"), file)
        if spec is None or spec.loader is None:
            sys.exit(f"{file} is no module of Python")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        if not hasattr(module, name):
            sys.exit(f"{file} has no function {name}")
        reward: Reward = getattr(module, name)
        try:
            _call_of(reward)
        except TypeError as problem:
            sys.exit(f"{file}: {problem}")
        return reward

    answer_lines(load)


def answer_lines(load: Callable[[], Reward]) -> None:
    """Answers lines of standard input on standard output; whatever the function prints goes to standard error.

    The function's standard input is empty: it and the programs that it starts would take the next question.
    """
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    lines = os.fdopen(os.dup(0), "rb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    answer = answers_of(load())
    for line in lines:
        about = json.loads(line)
        reply: dict[str, Any] = {"id": about["id"]}
        try:
            given = answer(about)
            reply.update(given if isinstance(given, dict) else {"reward": given})
        except ValueError as problem:
            reply.update({"verdict": None, "reason": str(problem)})
        # NaN and infinity are no JSON, and are refused by their name.
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def _call_of(reward: Reward) -> Callable[[dict[str, Any]], Any]:
    """The call of a function by the names of its parameters."""
    parameters = inspect.signature(reward).parameters
    takes_all = any(it.kind is it.VAR_KEYWORD for it in parameters.values())
    own = {"completions", "rows"} <= parameters.keys()
    trl = "completions" in parameters and (takes_all or "prompts" in parameters)
    verl = {"solution_str", "ground_truth"} <= parameters.keys()
    if own + trl + verl != 1:
        name = getattr(reward, "__name__", type(reward).__name__)
        raise TypeError(f"{name}({', '.join(parameters)}): expected {_FORMS}")

    def columns(about: dict[str, Any]) -> dict[str, Any]:
        # `hapo doctor` asks once more with other completions in front.
        completions = [*about["row"].pop("hapo.beside", []), about["completion"]]
        n = len(completions)
        if own:
            if "answers" in parameters and about.get("extraction") == "any":
                raise ValueError('answers: extraction "any" extracts none; expected "boxed", "announced" or "whole"')
            return {
                "completions": completions,
                "rows": [about["row"]] * n,
                "answers": [about.get("answer")] * n,
            }
        if trl:
            of_row = {name: [it] * n for name, it in about["row"].items()}
            texts = {"prompts": [about["prompt"]] * n, "completions": completions}
            # `hapo doctor` asks a function that takes no texts once more, as TRL does where prompts are conversations.
            if of_row.pop("hapo.conversation", [False])[0]:
                roles = {"prompts": "user", "completions": "assistant"}
                texts = {name: [[{"role": roles[name], "content": it}] for it in all] for name, all in texts.items()}
            return {**of_row, **texts}
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
        n = len(given["completions"])
        wanted = "one reward" if n == 1 else f"{n} rewards"
        if not isinstance(answer, Sequence) and not hasattr(answer, "__len__"):
            raise TypeError(f"expected a list of {wanted}, got {_kind(answer)}")
        if len(answer) != n:
            raise ValueError(f"expected a list of {wanted}, got {len(answer)}")
        return answer[-1]

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


if __name__ == "__main__":
    main(*sys.argv[1:])
