"""The tasks of reasoning-gym as rows of data, judged by the tasks themselves: ``pip install "hapo[gym]"``.

A row has what its task's ``score_answer`` asks for, so that a file of rows is graded in another process. The price is
that the row holds its metadata twice where JSON has no word for them, for most tasks because of tuples.

>>> import hapo.tasks
>>> rows, reward = hapo.tasks.reasoning_gym("gsm_symbolic", 640, seed=0)       # doctest: +SKIP
>>> hapo.train("recipe.toml", data=rows, reward=reward, run_dir="runs/gym")   # doctest: +SKIP

The command ``hapo data make gym:NAME`` writes the same rows, and ``command:python3 -m hapo.tasks grade`` grades them.
"""

from __future__ import annotations

import argparse
import ast
import functools
import json
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from hapo._errors import Error
from hapo._reward_call import answer_lines

__all__ = ["UNUSABLE", "reasoning_gym", "reward", "score"]

#: Tasks of reasoning-gym 0.1.25 that make no rows, and why.
UNUSABLE = {
    "boxnet": "it has no answer of its own",
    "composite": "it is made of other tasks: take those",
    "game_of_life_halting": "it takes any text that is not empty for True",
    "puzzle24": "it takes any expression worth 24, whatever its numbers",
    "rush_hour": "it has no answer of its own",
}

#: Tasks that take many answers and give none; where their metadata have one.
_EXAMPLES = {
    "graph_color": "possible_answer",
    "propositional_logic": "example_answer",
    "rubiks_cube": "example_correct_answer",
}

Row = dict[str, Any]
Grader = Callable[[Sequence[str], Sequence[Mapping[str, Any]], Sequence[str | None]], list[float]]


def reasoning_gym(name: str, count: int, seed: int, **config: Any) -> tuple[list[Row], Grader]:
    """``count`` rows of a task of reasoning-gym, and the function that grades answers to them, `reward`.

    A row has ``problem``, ``answer``, ``solution`` where the task writes one out, ``metadata`` and ``template`` (the
    task's own number of it, to hold templates out). Other keywords are the task's configuration. Four tasks draw from
    sets of texts and give the same rows for the same ``PYTHONHASHSEED`` only: ``isomorphic_strings``,
    ``polynomial_multiplication``, ``ransom_note`` and ``word_ladder``.

    A row whose own answer the task does not accept is left out, with a warning: GSM-Symbolic reads no sign.

    Raises ``hapo.Error``: for a task that is unknown or in `UNUSABLE`, a configuration that it does not take, and where
    no row is left.
    """
    if count < 1:
        raise Error(f"gym:{name}: expected a count of at least 1, got {count}")
    if name in UNUSABLE:
        raise Error(f"gym:{name} makes no rows: {UNUSABLE[name]}", "take another task")
    try:
        written = json.dumps(config, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as problem:
        raise Error(f"gym:{name}: expected a configuration of JSON values: {problem}") from None
    dataset = _dataset(name, written, count, seed)
    made = (_row(name, json.loads(written), dataset, seed, index) for index in range(count))
    rows = [row for row in made if _score(row, row["answer"]) >= 1.0]
    why = "the task does not accept its own answer"
    if not rows:
        raise Error(f"gym:{name}: no row is left of {count}: {why}")
    if len(rows) < count:
        warnings.warn(f"gym:{name}: {count - len(rows)} of {count} rows left out: {why}", stacklevel=2)
    return rows, reward


def score(completions: Sequence[str], rows: Sequence[Mapping[str, Any]], answers: Sequence[str | None]) -> list[float]:
    """The tasks' own scores of extracted answers, which may pay for part of an answer and .01 for a wrong one."""
    return [_score(row, answer) for _, row, answer in zip(completions, rows, answers, strict=True)]


def reward(completions: Sequence[str], rows: Sequence[Mapping[str, Any]], answers: Sequence[str | None]) -> list[float]:
    """1.0 for each extracted answer that its task accepts in full, else 0.0."""
    return [float(it >= 1.0) for it in score(completions, rows, answers)]


def _package() -> Any:
    try:
        import reasoning_gym as package
    except ImportError as problem:
        raise Error(f"reasoning-gym cannot be imported: {problem}", 'pip install "hapo[gym]"') from None
    return package


def _dataset(name: str, config: str, size: int, seed: int) -> Any:
    package = _package()
    known = package.factory.DATASETS
    if name not in known:
        raise Error(f"gym:{name}: reasoning-gym has no task of this name", f"tasks are {', '.join(sorted(known))}")
    try:
        return package.create_dataset(name, size=size, seed=seed, **json.loads(config))
    except Exception as problem:
        what = f"{type(problem).__name__}: {problem}"
        raise Error(f"gym:{name}: the task does not take {config} with {size} rows: {what}") from problem


@functools.cache
def _judge(name: str, config: str) -> Any:
    return _dataset(name, config, 1, 0)


def _row(name: str, config: Row, dataset: Any, seed: int, index: int) -> Row:
    entry = dataset[index]
    metadata = entry["metadata"]
    gold = entry["answer"]
    if gold is None and name in _EXAMPLES:
        gold = metadata[_EXAMPLES[name]]
        gold = gold if isinstance(gold, str) else json.dumps(gold)
    if not isinstance(gold, str):
        raise Error(f"gym:{name}: row {index + 1}: expected an answer as text, got {type(gold).__name__}")
    row: Row = {
        "id": f"{name}-{seed}-{index}",
        "problem": entry["question"],
        "answer": gold,
        "source": f"reasoning_gym/{name}",
    }
    if "answer_cot" in metadata:
        row["solution"] = f"{metadata['answer_cot'].partition('####')[0].rstrip()}\n\\boxed{{{gold}}}"
    if hasattr(dataset, "task_indices"):
        row["template"] = int(dataset.task_indices[index])
    row["metadata"] = json.loads(json.dumps(metadata, default=_plain))
    row["gym"] = {"task": name, "config": config}
    if row["metadata"] != metadata:
        row["gym"]["metadata"] = repr(metadata)
    return row


def _plain(it: Any) -> Any:
    if isinstance(it, set | frozenset):
        return sorted(it, key=str)
    return it.item() if hasattr(it, "item") else str(it)


def _entry(row: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The task that judges a row, and the row as it gave it."""
    about = row.get("gym")
    if not isinstance(about, Mapping) or "task" not in about:
        raise ValueError("expected a row of `hapo data make gym:NAME`, got one without the field `gym`")
    name = about["task"]
    try:
        metadata = ast.literal_eval(about["metadata"])
    except (KeyError, ValueError, SyntaxError):
        # JSON says the same, or Python's own writing of it cannot be read back.
        metadata = row["metadata"]
    answer = None if name in _EXAMPLES else row["answer"]
    judge = _judge(name, json.dumps(about.get("config", {}), sort_keys=True))
    return judge, {"question": row["problem"], "answer": answer, "metadata": metadata}


def _score(row: Mapping[str, Any], answer: str | None) -> float:
    judge, entry = _entry(row)
    if answer is None:
        return 0.0
    try:
        return float(judge.score_answer(answer, entry))
    except Exception:
        # Several tasks fail on what they cannot read. An answer is the model's and may be anything; a row may not.
        if answer == row["answer"]:
            raise
        return 0.0


def main(arguments: Sequence[str] | None = None) -> None:
    """``make NAME``: rows as JSON lines. ``grade``: rewards of the lines of a ``command:`` grader."""
    parser = argparse.ArgumentParser(prog="python3 -m hapo.tasks")
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("make", help="write rows of a task as JSON lines")
    make.add_argument("name")
    make.add_argument("--count", type=int, required=True)
    make.add_argument("--seed", type=int, required=True)
    make.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of the task's configuration")
    grade = commands.add_parser("grade", help="answer the lines of a grader `command:…`")
    grade.add_argument("--partial", action="store_true", help="give the tasks' own scores")
    given = parser.parse_args(arguments)
    if given.command == "grade":
        answer_lines(lambda: score if given.partial else reward)
        return
    # Tasks print.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        rows, _ = reasoning_gym(given.name, given.count, given.seed, **dict(map(_setting, given.set)))
    except Error as problem:
        _end(problem)
    for row in rows:
        replies.write(json.dumps(row, ensure_ascii=False) + "\n")
    replies.flush()


def _setting(text: str) -> tuple[str, Any]:
    key, _, value = text.partition("=")
    if key in ("", "size", "seed", "name", "count"):
        raise Error(f"--set {text}: expected a key of the task's configuration", "rows are asked for by count and seed")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _end(problem: Error) -> NoReturn:
    # The command `hapo` reads the last two lines.
    message = " ".join(problem.message.split())
    sys.stderr.write(f"{message}\n{problem.hint or 'take another task, or another configuration'}")
    sys.exit(2)


if __name__ == "__main__":
    main()
