"""Runs of recipes, from Python."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hapo import _hapo
from hapo._errors import Error
from hapo._method import Gated, Method, code_file, named
from hapo._progress import OnStep, Progress
from hapo._reward_call import Reward
from hapo._rewards import in_process, name_of
from hapo._rows import write_rows
from hapo._run import Run

Recipe = str | os.PathLike[str] | Mapping[str, Any]


@dataclass
class _Request:
    """What the engine is asked for; its fields are those of the extension module's."""

    recipe: str | None
    set: list[tuple[str, str]]
    unset: list[str]
    run_dir: Path | None
    resume: str
    threads: int | None
    device: str
    reward: Any
    method: Any
    observer: Progress


def train(
    recipe: Recipe | None = None,
    *,
    model: str | Mapping[str, Any] | None = None,
    data: Any = None,
    reward: str | Reward | None = None,
    method: str | Method | type[Method] | Gated | None = None,
    run_dir: str | os.PathLike[str] | None = None,
    resume: bool | Literal["force"] = True,
    on_step: OnStep | None = None,
    threads: int | None = None,
    device: str = "cpu",
    quiet: bool = False,
    **keys: Any,
) -> Run:
    """Trains by a recipe in this process, as ``hapo train`` does and to the same bits, and gives the run.

    ``recipe`` is a file, a run's folder, ``"builtin:NAME"``, or a dictionary of sections; further keywords are keys of
    the recipe, as in ``steps=16, optim={"lr": 1e-4}``, laid on it. None takes a key out.

    * ``model``: a folder, a name of the hub or ``"builtin:base"``; a dictionary is ``[model]``'s.
    * ``data``: a file, or rows in any layout of docs/data.md: dictionaries, a frame of pandas or polars, a
      ``datasets.Dataset``. Rows are kept in the run's folder.
    * ``reward``: a grader's name, ``"command:…"``, an address, or a function: ``f(completions, rows) -> list[float]``,
      one of TRL's, ``f(prompts, completions, **columns) -> list[float]``, or one of verl's, ``f(data_source,
      solution_str, ground_truth, extra_info) -> float``. It is called with one completion at a time; what it raises
      stops the run with everything saved, or is worth ``reward.wrong`` with ``reward.on_failure = "wrong"``.
    * ``method``: a method's name, or one in Python, a class or an object with ``credit(group)``; ``hapo.Gated`` puts
      one behind HAPO's gate (docs/guides/your-method-in-python.md).
    * ``run_dir``: the folder of the run, by default ``runs/NAME``.
    * ``resume``: True continues what the folder holds, if it is the same run; False refuses a folder that holds one;
      ``"force"`` continues with a changed recipe or changed data.
    * ``on_step``: called as ``on_step(step, metrics)`` after each step; the run is saved and ends where it returns
      True.

    Ctrl-C ends the run after its step, with a checkpoint. Other threads of Python go on meanwhile. Raises
    ``hapo.Error``.
    """
    if resume not in (True, False, "force"):
        raise Error(f'resume: expected True, False or "force", got {resume!r}')
    given: dict[str, Any] = {}
    path = None
    if isinstance(recipe, Mapping):
        given = {str(key): it for key, it in recipe.items()}
    elif recipe is not None:
        path = os.fspath(recipe)
    _lay(given, keys)
    if model is not None:
        _lay(given, {"model": model if isinstance(model, Mapping) else {"path": model}})
    brought = None
    if isinstance(method, Gated):
        _lay(given, {"hapo": dict(method.hapo)})
        method = method.method
    if method is not None:
        if not isinstance(method, str):
            brought = named(method)
        _lay(given, {"method": method if brought is None else brought[0]})
    folder = None if run_dir is None else Path(run_dir)
    if isinstance(data, str | os.PathLike):
        _lay(given, {"data": {"train": os.fspath(data)}})
    elif data is not None:
        if folder is None:
            raise Error("run_dir: expected the folder that keeps the rows, got None", 'pass run_dir="runs/mine"')
        _lay(given, {"data": {"train": str(write_rows(data, folder))}})
    answer = None
    if isinstance(reward, str):
        _lay(given, {"data": {"grader": reward}})
    elif reward is not None:
        answer = in_process(reward)
        _lay(given, {"data": {"grader": name_of(reward)}})
    values, unset = [], []
    for key, it in _leaves(given):
        if it is None:
            unset.append(key)
        else:
            values.append((key, _json(key, it)))
    observer = Progress(on_step, quiet)
    if brought is not None and code_file(method) is None:  # type: ignore[arg-type]
        observer.note(f"warning: the code of `{brought[0]}` is in no file: a resume does not see that it changed")
    how = "force" if resume == "force" else "resume" if resume else "fresh"
    request = _Request(path, values, unset, folder, how, threads, device, answer, brought, observer)
    done, outcome = _hapo.train(request)
    return Run(done, json.loads(outcome))


def _lay(on: dict[str, Any], keys: Mapping[str, Any]) -> None:
    """Lays keys on others, section by section. ``{"a.b": 1}`` is ``{"a": {"b": 1}}``."""
    for key, it in keys.items():
        first, _, rest = key.partition(".")
        value = {rest: it} if rest else it
        if isinstance(value, Mapping):
            below = on.get(first)
            section = dict(below) if isinstance(below, Mapping) else {}
            _lay(section, value)
            on[first] = section
        else:
            on[first] = value


def _leaves(keys: Mapping[str, Any], section: str = "") -> Iterator[tuple[str, Any]]:
    for key, it in keys.items():
        if isinstance(it, Mapping) and it:
            yield from _leaves(it, f"{section}{key}.")
        else:
            yield f"{section}{key}", it


def _json(key: str, value: Any) -> str:
    try:
        return json.dumps(os.fspath(value) if isinstance(value, os.PathLike) else value, allow_nan=False)
    except (TypeError, ValueError) as problem:
        raise Error(f"{key}: expected a value of a recipe, got {value!r}: {problem}", key=key) from None
