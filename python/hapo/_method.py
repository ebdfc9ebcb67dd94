"""Methods in Python: what a researcher writes, and the calls of the engine."""

from __future__ import annotations

import hashlib
import inspect
import itertools
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hapo import _hapo
from hapo._errors import Error
from hapo._hapo import Group, Sampled
from hapo._reward_call import end_copy

Ratio = Literal["recorded", "rescored", "one"]


@dataclass(frozen=True, eq=False)
class Policy:
    """The clipped surrogate of the engine's loss on tokens that the policy wrote."""

    advantage: float | ArrayLike
    """A of all tokens, or one number for each."""
    tokens: tuple[int, int] | None = None
    """First and last + 1; by default all that the policy wrote."""
    ratio: Ratio = "recorded"
    """Below the line of the importance ratio: what was recorded while sampling, the weights before the step's first
    update, or the weights being trained."""
    entropy_exponent: float = 0.0
    """k: A is multiplied by exp(k·H) with H the mean entropy of the tokens, in nats."""


@dataclass(frozen=True, eq=False)
class Teacher:
    """λ·F on given tokens: a teacher's trajectory, or the prefix that a rollout continues."""

    weight: float
    """λ, from 0."""
    operator: str = "srft"
    """F: one of ``hapo.operators()``; "srft" is log π."""
    d: float = 0.1
    """The operator's d, in (0, 1)."""
    tokens: tuple[int, int] | None = None
    """First and last + 1; by default all."""
    entropy_exponent: float = 0.0
    """As that of ``Policy``."""


Span = Policy | Teacher
Credit = ArrayLike | Sequence[float | ArrayLike | Span | Sequence[Span] | None]
"""One entry for each member, in order: an advantage, one for each token that the policy wrote, a span, several, or None
for a member without a term. A member without a term counts in the normaliser."""


@dataclass(frozen=True)
class Part:
    """Rollouts of a group that are sampled next."""

    rollouts: int
    """How many."""
    teacher_prefix: int = 0
    """They begin with so many tokens of the teacher's trajectory, its end token never among them."""
    own_prefix: tuple[int, int] | None = None
    """They begin with the first tokens of a rollout of the group: its number, and how many."""
    hint: int | None = None
    """They are sampled behind the prompt with this hint, from 0."""
    response: int | None = None
    """They are sampled behind the prompt with this rollout's response as a solution."""


@dataclass(frozen=True, eq=False)
class Entry:
    """Something that enters a group: the prompt's teacher of that number, or a trace of an earlier step."""

    slot: int | None
    """The member whose place it takes; None puts it in front."""
    teacher: int | None = None
    tokens: ArrayLike | None = None
    log_probs: ArrayLike | None = None
    """Of all tokens, by the weights that sampled them, natural logarithm."""
    reward: float = 1.0
    step: int = 0


@dataclass(frozen=True)
class Plan:
    """Where the teacher is in the groups of a method without ``mix``."""

    gate: Literal["never", "always", "failed"] = "never"
    """When the teacher enters: in no group, in every one, in those without a success."""
    slot: Literal["fixed", "lowest-reward", "first", "longest", "random"] = "lowest-reward"
    """Whose place it takes; in a fixed one, the first, a rollout fewer is sampled."""
    can_be_gated: bool = False
    """HAPO's gate may decide instead: ``credit`` gives the teacher's member a term."""
    teacher_apart: bool = False
    """The teacher's term is a mean over its own tokens, apart from the rollouts' normaliser."""


@dataclass(frozen=True)
class Needs:
    """What a method asks of a run."""

    parts: int = 1
    """Most parts that a group is sampled in."""
    prefixes: bool = False
    """``grow`` gives prefixes."""
    hints: bool = False
    """``grow`` gives hints."""
    reference: bool = False
    """``group.reference``: the second model's log-probabilities (``reference.path``)."""
    memory: bool = False
    """``group.memory``; set by a method with ``remember``."""
    traces: int = 1
    """Most verified trajectories of a prompt that it looks at."""
    entropies: bool = False
    """``group.entropies``; costs a forward pass over the group."""


@runtime_checkable
class Method(Protocol):
    """What every method has.

    Optional: ``plan`` (a ``Plan``), ``needs`` (a ``Needs``), ``grow(group) -> Part | None``, ``mix(group)``, which
    gives a list of ``Entry``, and ``remember(memory, groups, step)``, which gives the next memory: dictionaries, lists,
    numbers and texts.
    """

    def credit(self, group: Group) -> Credit: ...


@dataclass(frozen=True)
class Gated:
    """A method behind HAPO's gate, with the keys of a recipe's ``[hapo]``."""

    method: Method | type[Method]
    hapo: Mapping[str, Any]

    def __init__(self, method: Method | type[Method], **hapo: Any) -> None:
        object.__setattr__(self, "method", method)
        object.__setattr__(self, "hapo", {"gate": "confidence", **hapo})


@dataclass(frozen=True)
class _Built:
    """What the extension module reads of a method; its fields are that module's."""

    object: Method
    plan: tuple[str, str, bool, bool]
    needs: Needs
    hooks: tuple[bool, bool, bool]
    code_hash: str | None


C = TypeVar("C", bound=type[Any])


def method(name: str, *, settings: Mapping[str, Any] | None = None) -> Callable[[C], C]:
    """Registers a class as a method for recipes: ``method = "NAME"``, with the table ``[NAME]`` for its settings.

    ``settings`` are the keys with their defaults; the class is made with them as keywords.
    """

    def register(cls: C) -> C:
        _hapo.register_method(name, _factory(name, cls, dict(settings or {})))
        cls.hapo_name, cls.hapo_settings = name, dict(settings or {})
        return cls

    return register


def named(it: Method | type[Method]) -> tuple[str, Callable[[str], _Built]]:
    """The name of a method in recipes, and what builds it."""
    cls = it if isinstance(it, type) else type(it)
    if not callable(getattr(it, "credit", None)):
        raise Error(
            f"method: expected a name, or a class or an object with `credit(group)`, got {cls.__name__}",
            "docs/guides/your-method-in-python.md has one to begin with",
        )
    own: str | None = cls.__dict__.get("hapo_name")
    name = own or "".join(f"-{it.lower()}" if it.isupper() else it for it in cls.__name__).strip("-_")
    settings: dict[str, Any] = getattr(cls, "hapo_settings", {}) if own and isinstance(it, type) else {}
    return name, _factory(name, it, settings)


def code_file(it: Method | type[Method]) -> Path | None:
    """The file of a method's code, None for a cell of a notebook."""
    try:
        found = inspect.getsourcefile(it if isinstance(it, type) else type(it))
    except TypeError:
        return None
    return Path(found) if found and Path(found).is_file() else None


def _factory(name: str, it: Any, defaults: dict[str, Any]) -> Callable[[str], _Built]:
    def build(table: str) -> _Built:
        given = json.loads(table)
        for key, value in given.items():
            if key not in defaults:
                known = ", ".join(f"`{it}`" for it in defaults) or "none"
                raise Error(f"unknown key `{key}`, expected one of {known}", key=key)
            default = defaults[key]
            fits = isinstance(value, type(default)) or (isinstance(default, float) and type(value) is int)
            if default is not None and (not fits or isinstance(default, bool) != isinstance(value, bool)):
                raise Error(f"expected a {type(default).__name__} like {default!r}, got {value!r}", key=key)
        try:
            made: Method = it(**{**defaults, **given}) if isinstance(it, type) else it
        except Error:
            raise
        except Exception as problem:
            raise Error(f"{name}: {type(problem).__name__}: {problem}") from problem
        plan, needs = getattr(made, "plan", Plan()), getattr(made, "needs", Needs())
        for what, kind in ((plan, Plan), (needs, Needs)):
            if not isinstance(what, kind):
                raise Error(f"{kind.__name__.lower()}: expected a hapo.{kind.__name__}, got {type(what).__name__}")
        hooks = tuple(callable(getattr(made, hook, None)) for hook in ("grow", "mix", "remember"))
        memory = needs.memory or hooks[2]
        if memory and plan.can_be_gated:
            raise Error("plan: expected can_be_gated = False of a method that remembers")
        file = code_file(made)
        return _Built(
            object=made,
            plan=(plan.gate, plan.slot, plan.can_be_gated, plan.teacher_apart),
            needs=replace(needs, memory=memory),
            hooks=(hooks[0], hooks[1], hooks[2]),
            code_hash=hashlib.sha256(file.read_bytes()).hexdigest() if file else None,
        )

    return build


# The calls of the engine. What they give is checked here, so that nothing wrong reaches it.

_forks = 0


def _forked() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_parent=_forked)


@contextmanager
def _watched() -> Iterator[None]:
    """Runs a method's function: what it raises says its kind, and it may leave no process and no thread behind."""
    process, forks, threads = os.getpid(), _forks, threading.active_count()
    try:
        yield
    except Error:
        raise
    except Exception as problem:
        said = f"{type(problem).__name__}: {problem}" if str(problem) else type(problem).__name__
        raise Error(said) from problem
    finally:
        end_copy(process, "the method")
    if _forks != forks:
        raise Error("it forked: expected numbers of the group alone")
    if threading.active_count() > threads:
        raise Error("it left a thread running: expected none")


_Raw = tuple[int, int, float, NDArray[np.float32] | None, str, float, float]


def credit(of: Method, group: Group) -> list[list[_Raw]]:
    """The spans of each member as the engine takes them."""
    with _watched():
        given = of.credit(group)
    return spans_of(given, group)


def spans_of(given: Any, group: Group) -> list[list[_Raw]]:
    """Credit as the engine takes it."""
    n = len(group)
    if given is None:
        raise Error(f"expected credit for {n} members, got None")
    if isinstance(given, np.ndarray) and given.ndim != 1:
        raise Error(f"expected one advantage for each of {n} members, got an array of shape {given.shape}")
    if not hasattr(given, "__len__") or isinstance(given, str | bytes | Mapping):
        raise Error(f"expected credit for {n} members, got {type(given).__name__}")
    if len(given) != n:
        raise Error(f"expected credit for {n} members, got {len(given)}")
    lengths, recorded, roles = group.lengths, group.recorded, group.roles
    all_spans = []
    for index, entry in enumerate(given):
        about = _Member(index, roles[index], int(lengths[index]), int(recorded[index]))
        several = isinstance(entry, list | tuple) and all(isinstance(it, Policy | Teacher) for it in entry)
        entries = entry if several else [entry]
        spans = [about.span(it) for it in entries if it is not None]
        spans.sort(key=lambda it: it[0])
        for before, after in itertools.pairwise(spans):
            if after[0] < before[1]:
                raise Error(f"member {index}: expected spans apart, got tokens {before[:2]} and {after[:2]}")
        all_spans.append(spans)
    return all_spans


@dataclass(frozen=True)
class _Member:
    index: int
    role: str
    length: int
    recorded: int

    def span(self, it: Any) -> _Raw:
        if isinstance(it, Teacher):
            return self._teacher(it)
        return self._policy(it if isinstance(it, Policy) else Policy(it))

    def _tokens(self, tokens: tuple[int, int] | None, first: int) -> tuple[int, int]:
        start, stop = (first, self.length) if tokens is None else tokens
        if not 0 <= start <= stop <= self.length:
            raise Error(f"member {self.index}: expected tokens within 0 and {self.length}, got {start} to {stop}")
        return int(start), int(stop)

    def _number(self, name: str, it: Any) -> float:
        try:
            number = float(it)
        except (TypeError, ValueError):
            raise Error(f"member {self.index}: {name}: expected a number, got {type(it).__name__}") from None
        if not np.isfinite(number):
            raise Error(f"member {self.index}: {name}: expected a finite number, got {number}")
        return number

    def _policy(self, it: Policy) -> _Raw:
        if it.ratio not in ("recorded", "rescored", "one"):
            raise Error(f"member {self.index}: ratio: expected recorded, rescored or one, got {it.ratio!r}")
        if self.role == "teacher" and it.ratio == "recorded":
            raise Error(f"member {self.index} is the teacher's: expected hapo.Teacher or None, got an advantage")
        written = self.length - self.recorded
        start, stop = self._tokens(it.tokens, written)
        if it.ratio == "recorded" and start < written:
            raise Error(f"member {self.index}: expected tokens from {written}, which the policy wrote, got {start}")
        k = self._number("entropy_exponent", it.entropy_exponent)
        if np.ndim(it.advantage) == 0:
            return start, stop, self._number("advantage", it.advantage), None, it.ratio, 0.1, k
        try:
            values = np.ascontiguousarray(it.advantage, np.float32)
        except (TypeError, ValueError):
            raise Error(
                f"member {self.index}: advantage: expected numbers, got {type(it.advantage).__name__}"
            ) from None
        if values.shape != (stop - start,):
            raise Error(
                f"member {self.index}: expected one advantage for each of {stop - start} tokens, got {values.shape}"
            )
        if not np.isfinite(values).all():
            raise Error(
                f"member {self.index}: advantage: expected finite numbers, got {values[~np.isfinite(values)][0]}"
            )
        return start, stop, 0.0, values, it.ratio, 0.1, k

    def _teacher(self, it: Teacher) -> _Raw:
        weight, d = self._number("weight", it.weight), self._number("d", it.d)
        known = [name for name, _ in _hapo.operators()]
        if it.operator not in known:
            raise Error(f"member {self.index}: operator: expected one of {', '.join(known)}, got {it.operator!r}")
        if weight < 0:
            raise Error(f"member {self.index}: weight: expected a number from 0, got {weight}")
        if not 0 < d < 1:
            raise Error(f"member {self.index}: d: expected a number in (0, 1), got {d}")
        start, stop = self._tokens(it.tokens, 0)
        return start, stop, weight, None, it.operator, d, self._number("entropy_exponent", it.entropy_exponent)


def grow(of: Any, group: Sampled) -> tuple[int, int, tuple[int, int] | None, int | None, int | None] | None:
    """The next part of a group as the engine takes it; None where it is complete."""
    with _watched():
        it = of.grow(group)
    if it is None:
        return None
    if not isinstance(it, Part):
        raise Error(f"expected a hapo.Part or None, got {type(it).__name__}")
    needs: Needs = getattr(of, "needs", Needs())
    if it.rollouts < 1:
        raise Error(f"rollouts: expected at least 1, got {it.rollouts}")
    if (it.teacher_prefix or it.own_prefix) and not needs.prefixes:
        raise Error("expected no prefix of a method whose needs name none: needs = hapo.Needs(prefixes=True)")
    if it.teacher_prefix < 0 or (it.teacher_prefix and not group.teachers):
        raise Error(f"teacher_prefix: expected a prompt with a teacher, got {it.teacher_prefix} tokens of none")
    if it.hint is not None and not (needs.hints and 0 <= it.hint < group.hints):
        raise Error(f"hint: expected one of {group.hints}, and needs = hapo.Needs(hints=True), got {it.hint}")
    for name, rollout in (("own_prefix", it.own_prefix and it.own_prefix[0]), ("response", it.response)):
        if rollout is not None and not 0 <= rollout < len(group):
            raise Error(f"{name}: expected a rollout of {len(group)}, got {rollout}")
    return it.rollouts, it.teacher_prefix, it.own_prefix, it.hint, it.response


_Trace = tuple[list[int], list[float], float, int]


def mix(of: Any, group: Sampled) -> list[tuple[int | None, int | None, _Trace | None]]:
    """What enters a group as the engine takes it."""
    with _watched():
        given = of.mix(group)
    if given is None or not isinstance(given, Sequence):
        raise Error(f"expected a list of hapo.Entry, got {'None' if given is None else type(given).__name__}")
    entries: list[tuple[int | None, int | None, _Trace | None]] = []
    for it in given:
        if not isinstance(it, Entry):
            raise Error(f"expected a hapo.Entry, got {type(it).__name__}")
        if it.slot is not None and not 0 <= it.slot < len(group):
            raise Error(f"slot: expected one of {len(group)} members, got {it.slot}")
        if it.teacher is not None:
            if not 0 <= it.teacher < len(group.teachers):
                raise Error(f"teacher: expected one of {len(group.teachers)}, got {it.teacher}")
            entries.append((it.slot, it.teacher, None))
            continue
        tokens, log_probs = np.asarray(it.tokens), np.asarray(it.log_probs, np.float32)
        if tokens.ndim != 1 or tokens.dtype.kind not in "iu" or len(tokens) == 0 or tokens.min() < 0:
            raise Error("tokens: expected a list of token numbers")
        if log_probs.shape != tokens.shape or not np.isfinite(log_probs).all():
            raise Error(f"log_probs: expected {len(tokens)} finite numbers")
        if not np.isfinite(it.reward):
            raise Error(f"reward: expected a finite number, got {it.reward}")
        entries.append((it.slot, None, (tokens.tolist(), log_probs.tolist(), float(it.reward), it.step)))
    return entries


def recalled(notes: str) -> Any:
    """The memory that the engine has kept; an empty dictionary at first."""
    return json.loads(notes) if notes else {}


def remember(of: Any, notes: str, groups: list[Group], step: int) -> str:
    """The memory after a step, as the engine keeps it."""
    with _watched():
        memory = of.remember(recalled(notes), groups, step)
    if memory is None:
        raise Error("expected a memory of dictionaries, lists, numbers and texts, got None")
    try:
        kept = json.dumps(memory, allow_nan=False, sort_keys=True, separators=(",", ":"), default=_plain)
    except (TypeError, ValueError) as problem:
        raise Error(f"expected a memory of dictionaries, lists, numbers and texts: {problem}") from None
    return kept


def _plain(it: Any) -> Any:
    if isinstance(it, np.ndarray | np.generic):
        return it.tolist()
    raise TypeError(f"got {type(it).__name__}")


def check_method(it: Method | type[Method], *, group_size: int = 6) -> bool:
    """Tries a method on groups of many kinds and prints which laws hold; False where one does not.

    * ``shape``: its credit is such that the engine takes it.
    * ``repeats``: the same group has the same credit again, also from a new object and after other groups.
    * ``permutation``: the order of the rollouts does not change what each is worth.
    * ``slope``: the derivative of the loss by each log-probability is its finite difference.
    """
    _, factory = named(it)
    of, fresh = factory("{}").object, factory("{}").object
    failures: dict[str, str] = {}
    cases: list[tuple[Group, Group, list[list[_Raw]]]] = []

    def law(name: str, holds: bool, group: Group, said: str) -> None:
        if not holds:
            failures.setdefault(name, f"{group!r}: {said}")

    try:
        for group, other in _hapo.trial_groups(factory, group_size):
            cases.append((group, other, credit(of, group)))
        for group, other, first in reversed(cases):
            law("repeats", _same(first, credit(of, group)), group, "another credit the second time")
            law("repeats", _same(first, credit(fresh, group)), group, "another credit from a new object")
            by_tokens = {it.tobytes(): spans for it, spans in zip(other.tokens, credit(of, other), strict=True)}
            moved = [by_tokens.get(it.tobytes(), []) for it in group.tokens]
            law("permutation", _close(first, moved), group, "another order of the rollouts changes their credit")
            worst = _slope_error(group, first)
            law("slope", worst < 2e-2, group, f"the derivative differs from the finite difference by {worst:.3g}")
    except (Error, ValueError) as problem:
        failures["shape"] = str(problem)
    for name in ("shape", "repeats", "permutation", "slope"):
        print(f"{name:12} {failures.get(name, 'not reached' if 'shape' in failures else 'holds')}")
    return not failures


def _same(a: list[list[_Raw]], b: list[list[_Raw]]) -> bool:
    return _differences(a, b) == 0.0


def _close(a: list[list[_Raw]], b: list[list[_Raw]]) -> bool:
    return _differences(a, b) < 1e-9


def _differences(a: list[list[_Raw]], b: list[list[_Raw]]) -> float:
    """The largest difference of two credits; infinite where spans differ in kind."""
    worst = 0.0
    if [[(it[0], it[1], it[4]) for it in spans] for spans in a] != [
        [(it[0], it[1], it[4]) for it in spans] for spans in b
    ]:
        return float("inf")
    for one, two in zip((it for spans in a for it in spans), (it for spans in b for it in spans), strict=True):
        values = [np.subtract(one[2], two[2]), np.subtract(one[5], two[5]), np.subtract(one[6], two[6])]
        if one[3] is not None and two[3] is not None:
            values.append(np.abs(one[3] - two[3]).max(initial=0.0))
        worst = max(worst, *(float(np.abs(it)) for it in values))
    return worst


def _slope_error(group: Group, spans: list[list[_Raw]]) -> float:
    """The largest error of a derivative, on log-probabilities beside the recorded ones."""
    # At a ratio of 1 that moves with the weights the value stays where it is.
    spans = [[it for it in of_member if it[4] != "one"] for of_member in spans]
    log_probs = [
        np.full(length, -1.0, np.float32) if len(known) < length else known + np.float32(0.05)
        for known, length in zip(group.log_probs, group.lengths, strict=True)
    ]
    slopes = _hapo.span_loss(group, spans, log_probs)[1]
    worst, step = 0.0, np.float32(2.0**-7)
    for member, token in ((m, t) for m, of_member in enumerate(log_probs) for t in (0, len(of_member) - 1)):
        losses = []
        for sign in (1, -1):
            moved = [it.copy() for it in log_probs]
            moved[member][token] += sign * step
            losses.append(_hapo.span_loss(group, spans, moved)[0])
        by_difference = (losses[0] - losses[1]) / (2 * float(step))
        scale = max(abs(by_difference), 1.0)
        worst = max(worst, abs(by_difference - float(slopes[member][token])) / scale)
    return worst
