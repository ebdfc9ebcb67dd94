"""The random groups with cut responses of ``testdata/methods/cases.json``, as rows of a batch and decided."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import hapo


@dataclass
class Batch:
    """Rows, padded; the first of a group with a teacher is the teacher's."""

    case: dict
    lengths: list[int]
    log_probs: np.ndarray
    old_log_probs: np.ndarray
    gradient: np.ndarray
    """Of the loss by each log-probability, by PyTorch in f64."""
    decision: hapo.Decision


def batches(root: Path) -> Iterator[Batch]:
    """Those of every recorded case."""
    recorded = json.loads((root / "testdata/methods/cases.json").read_text())["cases"]
    for case in recorded:
        if case["name"].startswith("cut responses"):
            yield _batch(case)


def _batch(case: dict) -> Batch:
    rows, uids, taught = [], [], []
    for uid, group in enumerate(case["groups"]):
        members = [it for it in [group["teacher"], *group["rollouts"]] if it is not None]
        rows += members
        uids += [uid] * len(members)
        taught += [group["teacher"] is not None] * len(members)
    lengths = [len(it["log_probs"]) for it in rows]
    size = uids.count(0)
    decision = hapo.decide(
        [it["reward"] for it in rows],
        uids,
        lengths,
        [not it["ended"] for it in rows],
        taught,
        case["step"],
        method=hapo.Method(case["method"], size, advantage={"std": case["std"]}),
        truncated=case["truncated"],
        success_at=case["success_at"],
        wrong=case["wrong"],
    )

    def padded(name: str) -> np.ndarray:
        it = np.zeros((len(rows), max(lengths)), np.float32)
        for row, member in enumerate(rows):
            it[row, : len(member[name])] = member[name]
        return it

    return Batch(case, lengths, padded("log_probs"), padded("old_log_probs"), padded("gradient"), decision)
