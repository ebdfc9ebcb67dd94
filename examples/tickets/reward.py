"""A reward for one JSON object of four fields: a fifth for being an object, and a fifth for each right field."""

from __future__ import annotations

import json
from typing import Any


def fields(text: str) -> dict[str, Any] | None:
    """The object that a text is, and nothing else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def reward(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    """TRL's signature: ``answer`` is a column of the data."""
    rewards = []
    for text, gold in zip(completions, answer, strict=True):
        got, wanted = fields(text), json.loads(gold)
        if got is None:
            rewards.append(0.0)
        elif got == wanted:
            rewards.append(1.0)
        else:
            # Extra keys are no object that was asked for: they never reach 1.
            right = sum(type(got.get(key)) is type(value) and got[key] == value for key, value in wanted.items())
            rewards.append(round(0.2 + 0.2 * min(right, 3), 1))
    return rewards
