"""Writes the run folder of another engine's run as the command does, for ``hapo report``."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hapo import _hapo
from hapo._decide import Decision


@dataclass
class Sampled:
    """A row of a step as it was sampled, and its prompt's teacher."""

    problem: str
    completion: str
    tokens: list[int]
    ended: bool
    answer: str = ""
    id: str = ""
    rendered: str = ""
    prompt_tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    teacher: str = ""
    teacher_tokens: list[int] = field(default_factory=list)


class RunWriter:
    """The files of a run: recipe, gate, numbers, rollouts."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def begin(self, recipe: Mapping[str, Any], gate: Mapping[str, Any] | None = None, *, after: int = 0) -> None:
        """Writes recipe and gate, and cuts off what a killed run wrote after the step from which it continues."""
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / "recipe.toml").write_text(_toml(recipe), encoding="utf-8", errors="replace")
        if gate is not None:
            (self.path / "gate.json").write_text(json.dumps(gate), encoding="utf-8")
        metrics = self.path / "metrics.jsonl"
        lines = metrics.read_text(encoding="utf-8").splitlines() if metrics.exists() else []
        metrics.write_text("".join(it + "\n" for it in lines if _step_of(it) <= after), encoding="utf-8")
        for step in _hapo.folder(self.path)[0]:
            if step > after:
                (self.path / "rollouts" / f"step-{step:06}.jsonl.zst").unlink()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Appends the numbers of a step; what is no number is null."""
        plain = {key: float(value) for key, value in metrics.items()}
        finite = {key: value if math.isfinite(value) else None for key, value in plain.items()}
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, "time/unix": time.time(), **finite}) + "\n")

    def rollouts(self, step: int, lines: Iterable[Mapping[str, Any]]) -> None:
        """Stores the rollouts of a step, lines as ``rollout_lines`` gives them."""
        _hapo.write_rollouts(self.path, step, [_json({**it, "step": step}) for it in lines])


def rollout_lines(rows: Sequence[Sampled], decision: Decision, *, success_at: float = 1.0) -> list[dict[str, Any]]:
    """The lines of a step by groups. A row is correct if its reward is a success's, whoever gave it."""
    lines: list[dict[str, Any]] = []
    for group in range(len(decision.uids)):
        members = [it for it in range(len(rows)) if decision.groups[it] == group]
        # A prompt's number is its text's, so that it is the same in every step.
        prompt = _prompt_number(rows[members[0]])
        for slot, row in enumerate(members):
            it = rows[row]
            replaced = bool(decision.replaced[row])
            common = {
                "prompt_id": prompt,
                "id": it.id,
                "problem": it.problem,
                "prompt_tokens": it.prompt_tokens,
                "answer": it.answer,
                "slot": slot,
                "injected": bool(decision.injected[group]),
            }
            sampled = {
                **common,
                "role": "replaced" if replaced else "policy",
                "completion": it.completion,
                "tokens": it.tokens,
                # An engine may say NaN for a token that it could not score.
                "log_probs": it.log_probs if all(math.isfinite(lp) for lp in it.log_probs) else [],
                "ended": it.ended,
                "verdict": "correct" if decision.rewards[row] >= success_at else "wrong",
            }
            if slot == 0:
                sampled["rendered"] = it.rendered
            if not replaced and decision.trained[row]:
                sampled["advantage"] = float(decision.advantages[row])
            lines.append(sampled)
            if replaced:
                teacher = {"completion": it.teacher, "tokens": it.teacher_tokens, "log_probs": [], "ended": True}
                lines.append({**common, "role": "teacher", **teacher, "verdict": "correct"})
    return lines


def _prompt_number(row: Sampled) -> int:
    """48 bits: a page's numbers are exact up to 53."""
    return int.from_bytes(hashlib.blake2b(row.problem.encode("utf-8", "replace"), digest_size=6).digest(), "little")


def _json(line: Mapping[str, Any]) -> str:
    """A line of JSON; half a surrogate pair becomes the replacement character."""
    return json.dumps(line, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _step_of(line: str) -> float:
    """The step of a line of metrics; a line that was cut off is later than all."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf


def _toml(recipe: Mapping[str, Any]) -> str:
    """Words and numbers, and tables of them."""
    tables = {key: value for key, value in recipe.items() if isinstance(value, Mapping)}
    lines = [_key(key, value) for key, value in recipe.items() if key not in tables]
    for name, table in tables.items():
        lines += ["", f"[{name}]", *(_key(key, value) for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _key(key: str, value: str | float) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f"{key} = {value}"
    return f"{key} = {json.dumps(value, ensure_ascii=False)}".replace("\x7f", "\\u007F")
