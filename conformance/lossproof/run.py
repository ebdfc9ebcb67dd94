"""Runs an adapter over cases and writes down what came."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from lossproof.cases import Case, Cut, NotApplicable, Refused, calls, load_all
from lossproof.verdict import EQUAL, Comparison, compare, flat, loss_error, of_case

Step = Callable[[Case, "Cut | None"], dict[str, Any]]
OnError = Callable[[Case, Cut, Exception], None]
UNCUT: Cut = {"name": "-", "steps": []}


@dataclass(frozen=True)
class Declared:
    """What an adapter says of itself beside its answers."""

    definitions: dict[str, str] = field(default_factory=dict)
    """Id, or prefix of ids, to the registered variant that the engine means."""
    covers: tuple[str, ...] = ()
    """Prefixes of the ids that it answers: "n/a" fails there."""
    expected_failures: dict[str, dict[str, str]] = field(default_factory=dict)
    """Id to the link of a known failure, and the date until which it is known."""

    @classmethod
    def of(cls, module: Any) -> Declared:
        """The declarations of an adapter's module."""
        names = ("definitions", "covers", "expected_failures")
        return cls.read({name: getattr(module, name) for name in names if hasattr(module, name)})

    @classmethod
    def read(cls, given: dict[str, Any]) -> Declared:
        """The declarations by name."""
        covers = tuple(given.get("covers", ()))
        return cls(dict(given.get("definitions", {})), covers, dict(given.get("expected_failures", {})))

    def definition(self, case: Case) -> str | None:
        """The variant that is meant: by the id, or by its longest prefix of which the case has the variant."""
        name = case["id"]
        if name in self.definitions:
            return self.definitions[name]
        registered = case.get("variants", {})
        found = [
            it for it, to in self.definitions.items() if name.startswith(it.rstrip("/") + "/") and to in registered
        ]
        return self.definitions[max(found, key=len)] if found else None

    def known_failure(self, name: str) -> dict[str, str] | None:
        """The link and the date of a failure that is known today."""
        known = self.expected_failures.get(name)
        return known if known and known["until"] >= date.today().isoformat() else None


def run(
    step: Step,
    cases: Iterable[Case] | None = None,
    declared: Declared | None = None,
    on_error: OnError | None = None,
) -> list[dict[str, Any]]:
    """One record for each case: verdict, the numbers of every cut, and the seconds it took. Planted cases are left
    out: they hold what a broken engine would answer, for the suite's own tests."""
    chosen = load_all() if cases is None else cases
    return [judge(step, case, declared, on_error) for case in chosen if "planted" not in case]


@dataclass
class _Found:
    """What came under each cut."""

    results: dict[str, Comparison] = field(default_factory=dict)
    variants: dict[str, dict[str, Comparison]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)


def judge(step: Step, case: Case, declared: Declared | None = None, on_error: OnError | None = None) -> dict[str, Any]:
    """The record of one case, the same for `lossproof run` and for pytest."""
    begun = time.perf_counter()
    declared = declared or Declared()
    meant = declared.definition(case)
    found = _ask(step, case, on_error)
    if meant in found.variants:  # Of variants that agree, the declared one is named.
        found.variants = {meant: found.variants[meant], **found.variants}
    verdict, because = _verdict(case, found)
    fault = _fault(case, verdict, because, declared, found)
    return {
        "id": case["id"],
        "number": case["number"],
        "verdict": verdict,
        "because": fault or because,
        "passed": fault is None,
        "failed": [] if fault is None else _at_fault(case, found, meant),
        "cuts": {name: it.as_record() for name, it in found.results.items()},
        "skipped": [f"{name}: {why}" for name, why in found.missing.items()],
        "refused": [f"{name}: {why}" for name, why in found.refused.items()],
        "errors": [f"{name}: {why}" for name, why in found.errors.items()],
        "seconds": round(time.perf_counter() - begun, 4),
    }


def _at_fault(case: Case, found: _Found, meant: str | None) -> list[str]:
    """The cuts that a failure rests on; all of them where each is right by itself."""
    answers = found.variants.get(meant or "", found.results)
    names = [cut["name"] for cut in cuts_of(case)]
    bad = [name for name in names if name in found.refused or name in found.errors]
    bad += [name for name, it in answers.items() if not it.equal]
    return [name for name in names if name in bad] or names


def _ask(step: Step, case: Case, on_error: OnError | None) -> _Found:
    """Calls the adapter with every cut."""
    found = _Found(variants={name: {} for name in case.get("variants", {})})
    losses: list[float] = []
    for cut in cuts_of(case):
        name = cut["name"]
        try:
            main, variants, loss = compare_call(step, case, cut)
        except Refused as error:
            found.refused[name] = str(error)
            continue
        except NotApplicable as error:
            found.missing[name] = str(error)
            continue
        except Exception as error:
            found.errors[name] = f"{type(error).__name__}: {error}{_place(error)}"
            if on_error is not None:
                on_error(case, cut, error)
            continue
        if loss is not None and case.get("expect", {}).get("loss", 0) is None:
            # A value that means nothing is still the same under every cut.
            losses.append(loss)
            error_of_loss = loss_error(loss, losses[0], case["expect"].get("grad_l2", 0.0))
            main = replace(main, loss_error=error_of_loss)
            variants = {key: replace(it, loss_error=error_of_loss) for key, it in variants.items()}
        found.results[name] = main
        for key, comparison in variants.items():
            found.variants[key][name] = comparison
    return found


def _place(error: Exception) -> str:
    """File and line where an error was raised, outside this package."""
    frames = [
        it for it in traceback.extract_tb(error.__traceback__) if Path(it.filename).parent != Path(__file__).parent
    ]
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""


def _verdict(case: Case, found: _Found) -> tuple[str, str]:
    if found.errors:
        return "different", next(iter(found.errors.values()))
    if not found.results and found.refused:
        return "refused", next(iter(found.refused.values()))
    if not found.results:
        return "n/a", next(iter(found.missing.values()), "")
    verdict, because = _of_answers(case, found.results, found.variants)
    if found.refused and verdict in ("exact", "equal", "other definition"):
        # Right answers to the other cuts say nothing about this one; wrong ones weigh more than a refusal.
        name, why = next(iter(found.refused.items()))
        return "refused", f"{name}: {why}"
    return verdict, because


def _of_answers(
    case: Case, results: dict[str, Comparison], variants: dict[str, dict[str, Comparison]]
) -> tuple[str, str]:
    if case.get("expect", {}).get("refused"):
        for name, its in variants.items():
            if all(it.equal for it in its.values()):
                return "other definition", name
        return "different", "expected a refusal"
    verdict, because = of_case(results, variants)
    if "cut" in case.get("pair", {}) and verdict in ("scaled", "different") and not because.startswith("not"):
        return "cut-dependent", because
    return verdict, because


def _fault(case: Case, verdict: str, because: str, declared: Declared, found: _Found) -> str | None:
    """Why a verdict fails, or None where it is as it should be."""
    meant = declared.definition(case)
    if meant is not None and meant not in found.variants:
        return f"no registered variant {meant!r}; there are {', '.join(found.variants) or 'none'}"
    if verdict == "n/a":
        return f"`covers` has it, yet: {because}" if case["id"].startswith(declared.covers) else None
    if verdict == "refused":
        may_be = case.get("expect", {}).get("refused") or case.get("may_refuse")
        return None if may_be else because
    if verdict == "other definition":
        return None if because == meant else f"{because}; declare it in `definitions`"
    if verdict not in ("exact", "equal"):
        return because
    if meant is not None and not all(it.equal for it in found.variants[meant].values()):
        return f"`definitions` says {meant!r}"
    return None


def cuts_of(case: Case) -> list[Cut]:
    """The cuts of a case; one without sequences to cut has one that says nothing."""
    return [{"name": name, "steps": steps} for name, steps in case.get("cuts", {}).items()] or [UNCUT]


def compare_call(step: Step, case: Case, cut: Cut) -> tuple[Comparison, dict[str, Comparison], float | None]:
    """The comparison under one cut, with the answer or of the two calls that a law compares; those with the registered
    variants; and the loss that was given."""
    answers = [step(c, where) for c, where in calls(case, cut)]
    for it in answers:
        if flat(it.get("padded") or []).any():  # NaN counts.
            raise ValueError("padded: expected a slope of 0 in every place without a token")
    if "pair" in case:
        return _compare_pair(case, answers), {}, None
    answer = answers[0]
    if "sum_to_zero" in case:
        return _sums_to_zero(case, answer), {}, None
    expect = case["expect"]
    main = Comparison(float("inf"), float("nan"), float("inf")) if expect.get("refused") else _compare(answer, expect)
    variants = {name: _compare(answer, variant["expect"]) for name, variant in case.get("variants", {}).items()}
    return main, variants, answer.get("loss")


KEYS = ("grad", "grad_entropy", "advantage", "reward", "value")


def _compare(answer: dict[str, Any], expect: dict[str, Any]) -> Comparison:
    keys = [key for key in KEYS if key in expect]
    lacking = [key for key in keys if answer.get(key) is None]
    if lacking:
        raise NotApplicable(f"the adapter gives no {lacking[0]}")
    loss = (answer.get("loss"), expect.get("loss"))
    return compare([answer[key] for key in keys], [expect[key] for key in keys], loss)


def _compare_pair(case: Case, answers: list[dict[str, Any]]) -> Comparison:
    """The second call's gradient, carried back to the sequences of the first."""
    first, second = answers
    pair = case["pair"]
    keys = ["advantage"] if case["kind"] == "advantage" else ["grad"]
    if "entropy_coef" in case["hyper"]:
        keys.append("grad_entropy")
    carried = []
    for key in keys:
        back = second[key]
        if "select" in pair:
            back = [np.zeros_like(flat(it)) for it in first[key]]
            for j, i in enumerate(pair["select"]):
                back[i] = back[i] + flat(second[key][j])
            back = [it.tolist() for it in back]
        carried.append(back)
    return compare(carried, [first[key] for key in keys], (second.get("loss"), first.get("loss")))


def _sums_to_zero(case: Case, answer: dict[str, Any]) -> Comparison:
    values, groups = flat(answer["advantage"]), np.array(case["batch"]["group"])
    worst = max(abs(values[groups == g].sum()) for g in set(groups.tolist()))
    return Comparison(float(worst) / max(float(np.abs(values).max()), 1e-300), 1.0, float(worst))


def adapter(name: str) -> tuple[ModuleType, Step]:
    """`module:function`; the function is `step` where none is named, and a bare word is an adapter of this package."""
    module_name, _, function = name.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    if "." not in module_name and not _exists(module_name):
        module_name = f"lossproof.adapters.{module_name}"
    module = importlib.import_module(module_name)
    step = getattr(module, function or "step", None)
    if step is None:
        raise AttributeError(f"{module_name} has no function {function or 'step'!r}")
    return module, step


def _exists(module: str) -> bool:
    """Whether a module of this name lies in the current folder or is installed; an engine's own name does not count."""
    if module in {path.stem for path in (Path(__file__).parent / "adapters").glob("*.py")}:
        return False
    return importlib.util.find_spec(module) is not None


def worst(record: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """The cut with the largest r, and its numbers."""
    cuts = record["cuts"]
    if not cuts:
        return None
    name = max(cuts, key=lambda cut: float("inf") if isinstance(cuts[cut]["r"], str) else cuts[cut]["r"])
    return name, cuts[name]


__all__ = ["EQUAL", "Declared", "adapter", "compare_call", "cuts_of", "judge", "run", "worst"]
