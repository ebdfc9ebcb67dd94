"""Decisions of a training step for a trainer of any kind: rows in any order in, what becomes of each row out."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hapo import _hapo
from hapo._hapo import Method


def number_or_word(it: object) -> str | float:
    """An option that is a number or a word, as a configuration has it."""
    try:
        return float(it)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return str(it)


@dataclass(frozen=True, eq=False)
class Decision:
    """What becomes of the rows of a step. Arrays have one entry for each row, or for each group where said."""

    replaced: NDArray[np.bool_]
    """The row's slot is the teacher's."""
    trained: NDArray[np.bool_]
    """The row has a term in the loss."""
    counted: NDArray[np.bool_]
    """The row counts in the normaliser: no padding, not masked, not of a dropped group."""
    advantages: NDArray[np.float64]
    """A of the policy's rows; 0 on the teacher's."""
    teacher_weights: NDArray[np.float64]
    """λ of the teacher's rows; 0 on the policy's."""
    entropy_exponents: NDArray[np.float64]
    """k: the row's factor, A or λ, is multiplied by exp(k·H) with H the mean entropy of its tokens. 0 leaves it."""
    rewards: NDArray[np.float64]
    """The rewards of the sampled rows after the rule for truncated responses."""
    groups: NDArray[np.int64]
    """The row's group, an index into what follows; -1 for padding."""
    uids: tuple[Hashable, ...]
    """The uid of each group, in the order of their first rows."""
    successes: NDArray[np.int64]
    """S of each group, before injection."""
    n_eff: NDArray[np.int64]
    """Rows of each group that count: without the free slot of a fixed rule."""
    confidence: NDArray[np.float64]
    """c of each group, before injection."""
    injected: NDArray[np.bool_]
    """Whether the teacher is in the group."""
    dropped: NDArray[np.bool_]
    """Groups of which fewer than two rows came back."""
    operator: str | None
    """The operator on the teacher's tokens; None where no teacher entered."""
    d: float
    """The operator's d."""
    metrics: dict[str, float]
    """The numbers of the step by the names of a run's metrics."""


def decide(
    rewards: ArrayLike,
    uids: Sequence[Hashable],
    lengths: ArrayLike,
    is_truncated: ArrayLike,
    has_teacher: ArrayLike,
    step: int,
    *,
    method: Method,
    teacher_lengths: ArrayLike | None = None,
    teacher_rewards: ArrayLike | None = None,
    truncated: str = "wrong",
    success_at: float = 1.0,
    wrong: float = 0.0,
    seed: int = 0,
) -> Decision:
    """Decides which row of which group the teacher replaces in this step, and what every row is worth.

    Rows with the same uid are a group, wherever they stand; a row whose uid is None is padding. The first row of a
    group is its slot 0. ``lengths`` are response lengths in tokens. ``is_truncated`` rows lack their end token: their
    reward is ``wrong``, or the lowest of their group's others where that is lower, and they are no success. With
    ``truncated`` "mask" they leave the loss and its normaliser too; with "grade" their reward stands.
    ``has_teacher``, ``teacher_lengths`` and ``teacher_rewards`` are those of the row's prompt. Steps count from 1.
    """
    scores = _column("rewards", rewards, np.float64)
    n = len(scores)
    cut = _column("is_truncated", is_truncated, np.bool_, n)
    with_teacher = _column("has_teacher", has_teacher, np.bool_, n)
    tokens = _column("lengths", lengths, np.int64, n)
    teacher_tokens = np.ones(n, np.int64)
    if teacher_lengths is not None:
        teacher_tokens = _column("teacher_lengths", teacher_lengths, np.int64, n)
    teacher_scores = np.full(n, max(success_at, 1.0))
    if teacher_rewards is not None:
        teacher_scores = _column("teacher_rewards", teacher_rewards, np.float64, n)
    groups, names, first = _groups(uids, n)
    present = groups >= 0
    if np.any(with_teacher[present] != with_teacher[first][groups[present]]):
        raise ValueError("has_teacher: expected one value for all rows of a uid, got both")
    decided: dict[str, Any] = _hapo.decide(
        method,
        scores,
        groups,
        tokens,
        cut,
        np.array([_prompt(it) for it in names], np.uint64),
        np.where(with_teacher[first], np.maximum(teacher_tokens[first], 1), 0),
        teacher_scores[first],
        step,
        success_at=success_at,
        wrong=wrong,
        seed=seed,
        truncated=truncated,
    )
    return Decision(
        replaced=decided["replaced"],
        trained=decided["trained"],
        counted=decided["counted"],
        advantages=decided["advantage"],
        teacher_weights=decided["teacher_weight"],
        entropy_exponents=decided["entropy_exponent"],
        rewards=decided["reward"],
        groups=groups,
        uids=tuple(names),
        successes=decided["successes"],
        n_eff=decided["n_eff"],
        confidence=decided["confidence"],
        injected=decided["injected"],
        dropped=decided["dropped"],
        operator=decided["operator"],
        d=method.d,
        metrics=decided["metrics"],
    )


def in_f32(success_at: float) -> float:
    """``success_at`` as rewards of 32 bits hold it: TRL's and verl's 0.9 is 0.89999998, and a success at 0.9."""
    return float(np.float32(success_at))


def advantages(rewards: ArrayLike, uids: Sequence[Hashable] | None = None, *, std: bool = False) -> NDArray[np.float64]:
    """Advantages without a teacher: each reward less the mean of its group, over its standard deviation if ``std``.

    Without ``uids`` all rewards are one group. A uid of None is padding and has advantage 0.
    """
    scores = _column("rewards", rewards, np.float64)
    groups = np.zeros(len(scores), np.int64) if uids is None else _groups(uids, len(scores))[0]
    return _hapo.advantages(scores, groups, std=std)


def _column(name: str, it: ArrayLike, dtype: type[Any], length: int | None = None) -> NDArray[Any]:
    """One-dimensional numbers of that type, or what is wrong with them."""
    try:
        array = np.asarray(it)
    except (TypeError, ValueError) as problem:
        raise TypeError(f"{name}: expected a list of numbers, got {type(it).__name__}: {problem}") from None
    wanted = np.dtype(dtype)
    if array.size == 0:
        array = array.astype(wanted)
    kinds = {"f": "fiub", "i": "iu", "b": "b"}[wanted.kind]
    if array.dtype.kind not in kinds:
        raise TypeError(f"{name}: expected numbers that fit {wanted}, got {array.dtype}")
    if array.ndim != 1:
        raise ValueError(f"{name}: expected one dimension, got {array.ndim}")
    if length is not None and len(array) != length:
        raise ValueError(f"{name}: expected the {length} entries of rewards, got {len(array)}")
    return np.ascontiguousarray(array, wanted)


def _groups(uids: Sequence[Hashable], n: int) -> tuple[NDArray[np.int64], list[Hashable], NDArray[np.int64]]:
    """The group of each row, the uid of each group, and its first row."""
    if isinstance(uids, str | bytes):
        raise TypeError(f"uids: expected a list, got {type(uids).__name__}")
    all_uids: list[Hashable] = uids.tolist() if isinstance(uids, np.ndarray) else list(uids)
    if len(all_uids) != n:
        raise ValueError(f"uids: expected the {n} entries of rewards, got {len(all_uids)}")
    number: dict[Hashable, int] = {}
    first: list[int] = []
    groups = np.full(n, -1, np.int64)
    for row, uid in enumerate(all_uids):
        if uid is None:
            continue
        if uid not in number:
            number[uid] = len(number)
            first.append(row)
        groups[row] = number[uid]
    return groups, list(number), np.array(first, np.int64)


def _prompt(uid: Hashable) -> int:
    """The key of a prompt's random draws: the uid if it is a number, else a hash that no process changes."""
    if isinstance(uid, int) and 0 <= uid < 1 << 64:
        return uid
    return int.from_bytes(hashlib.blake2b(str(uid).encode(), digest_size=8).digest(), "little")
