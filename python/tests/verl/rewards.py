"""Reward functions of the tests, by verl's names of the arguments."""

from __future__ import annotations

import hashlib


def nothing(data_source, solution_str, ground_truth, extra_info=None, **_) -> float:
    """Nothing is right."""
    return 0.0


def some(data_source, solution_str, ground_truth, extra_info=None, **_) -> float:
    """Prompts of even answers fail; of the others half the texts are right, and some a little."""
    if int(ground_truth) % 4 == 0:
        return 0.0
    digest = hashlib.sha256(solution_str.encode()).digest()[0]
    return 1.0 if digest % 2 else 0.25 * (digest % 4 == 0)


def nearly(data_source, solution_str, ground_truth, extra_info=None, **_) -> float:
    """Everything is nearly right."""
    return 0.9
