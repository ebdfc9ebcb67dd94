"""The parts of a training step by hand: prompts, samples, groups, gradients, updates, files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hapo import _hapo
from hapo._hapo import Group, Method, Prompt, Rollout
from hapo._method import Credit, spans_of
from hapo._rows import lines_of


@dataclass(frozen=True)
class Loss:
    """How the terms of tokens become a loss, by the words of a recipe's ``[loss]``."""

    normaliser: Literal["constant", "token-mean", "sequence-mean", "length"] = "constant"
    max_response: int = 0
    """The longest response in tokens, which "constant" and "length" divide by."""
    clip_low: float = 0.2
    clip_high: float = 0.2
    importance_ratio_level: Literal["token", "sequence"] = "token"
    entropy_coef: float = 0.0
    entropy_over: Literal["policy", "response"] = "policy"
    """"policy": a sum over its own tokens; "response": a mean over all response tokens, the teacher's too."""
    teacher_apart: bool = False
    temperature: float = 1.0
    """The sampling temperature, at which the ratio is taken."""


@dataclass(frozen=True)
class Score:
    """A model's scores of the tokens of one response; arrays have an entry for each token."""

    log_probs: NDArray[np.float32]
    """log π at the temperature that was asked for, natural logarithm."""
    entropies: NDArray[np.float32]
    """Entropy of the distribution in the token's place at temperature 1, in nats."""
    top: list[list[tuple[int, float]]]
    """The likeliest tokens in each place with log π at temperature 1, best first; empty for ``top=0``."""


@dataclass(frozen=True)
class _Sampling:
    n: int
    temperature: float
    max_tokens: int
    seed: int
    step: int


@dataclass(frozen=True)
class _Update:
    lr: float
    betas: tuple[float, float]
    eps: float
    weight_decay: float
    max_norm: float


class Model:
    """Weights on the CPU with everything that a step does to them; ``hapo.load`` opens one."""

    def __init__(self, engine: _hapo.Engine, path: str) -> None:
        self._engine, self._path = engine, path

    def prompts(
        self, data: Any, *, grader: str = "math", max_prompt_tokens: int = 1024, max_tokens: int = 1024
    ) -> list[Prompt]:
        """Rows as prompts: rendered, tokenised, checked. ``data`` is as that of ``hapo.train``, without files.

        A teacher's solution that is wrong, or longer than ``max_tokens`` with its end token, is left out.
        """
        return self._engine.prompts("\n".join(lines_of(data)) + "\n", grader, max_prompt_tokens, max_tokens)

    def sample(
        self,
        prompts: Sequence[Prompt],
        n: int,
        *,
        temperature: float = 1.0,
        max_tokens: int = 1024,
        seed: int = 0,
        step: int = 1,
    ) -> list[list[Rollout]]:
        """``n`` responses to each prompt. A response depends on the prompt's number, the seed and the step alone."""
        return self._engine.sample(list(prompts), _Sampling(n, temperature, max_tokens, seed, step))

    def log_probs(
        self,
        prompts: Iterable[str | ArrayLike],
        responses: Iterable[str | ArrayLike],
        *,
        temperature: float = 1.0,
        top: int = 0,
    ) -> list[Score]:
        """Scores each response behind its prompt; both are texts, without a template, or tokens."""
        tokens = [[self._tokens(it) for it in pair] for pair in zip(prompts, responses, strict=True)]
        scored = self._engine.log_probs([(one, two) for one, two in tokens], temperature, top)
        return [Score(*it) for it in scored]

    def gradient(self, groups: Iterable[tuple[Prompt, Group, Credit]], loss: Loss) -> dict[str, float]:
        """Computes the loss of one update and its gradient, which ``update`` uses; numbers by the names of metrics.

        Each group comes with its prompt and its credit, as a method's ``credit`` gives it.
        """
        given = [(prompt, group, spans_of(credit, group)) for prompt, group, credit in groups]
        return dict(self._engine.gradient(given, loss))

    def update(
        self,
        lr: float,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        max_norm: float = 1.0,
    ) -> float:
        """One step of AdamW along the gradient, clipped to ``max_norm``; gives the norm before that."""
        return self._engine.update(_Update(lr, betas, eps, weight_decay, max_norm))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes a model folder in f32, which ``hapo.load`` and transformers read."""
        self._engine.save(Path(folder))

    def text(self, tokens: ArrayLike) -> str:
        """The text of tokens."""
        return self._engine.text(_ids(tokens))

    def _tokens(self, it: str | ArrayLike) -> list[int]:
        return _ids(self._engine.encode(it) if isinstance(it, str) else it)

    def __repr__(self) -> str:
        return f"Model({self._path!r})"


def _ids(tokens: ArrayLike) -> list[int]:
    ids = np.asarray(tokens)
    if ids.ndim != 1 or (ids.size and not np.issubdtype(ids.dtype, np.integer)):
        raise TypeError(f"tokens: expected a list of integers, got {ids.ndim} dimensions of {ids.dtype}")
    if ids.size and not 0 <= ids.min() <= ids.max() < 2**32:
        raise ValueError(f"tokens: expected ids from 0 to 4294967295, got {ids.min()} to {ids.max()}")
    return ids.tolist()  # type: ignore[no-any-return]


def load(
    path: str | os.PathLike[str],
    *,
    context: int = 2048,
    template: str | None = None,
    threads: int | None = None,
    micro_batch_tokens: int = 8192,
) -> Model:
    """Opens a model on the CPU: a Hugging Face folder, a name of the hub, or ``"builtin:base"``.

    ``context`` is the longest prompt with its response, in tokens; ``template`` that of prompts, by default the
    model's.
    """
    name = os.fspath(path)
    how: dict[str, Any] = {"template": template, "threads": threads, "micro_batch_tokens": micro_batch_tokens}
    return Model(_hapo.Engine(name, context=context, **how), name)


def group(
    method: Method,
    prompt: Prompt,
    rollouts: Sequence[Rollout],
    rewards: ArrayLike,
    *,
    step: int,
    seed: int = 0,
    success_at: float = 1.0,
) -> Group:
    """A prompt's rollouts with a reward for each, as the group after the method's gate: the teacher may be in."""
    values = np.asarray(rewards, np.float64).tolist()
    return _hapo.group(method, prompt, list(rollouts), values, step, seed=seed, success_at=success_at)


def task(
    levels: Mapping[str, int], count: int, *, seed: int = 0, teacher_coverage: float = 0.25
) -> list[dict[str, str]]:
    """Rows of the built-in task: ``count`` problems of these families and levels, some with a teacher's solution."""
    rows = _hapo.task_rows(list(levels.items()), count, seed, teacher_coverage)
    names = ("id", "problem", "answer", "teacher")
    return [{name: it for name, it in zip(names, row, strict=True) if it is not None} for row in rows]


def order(step: int, prompts: int, per_step: int, *, seed: int = 0) -> list[int]:
    """The prompts of a step, from 1: each epoch has an order of its own, as in a run."""
    return _hapo.order(step, prompts, per_step, seed)
