"""Runs an adapter over cases and writes down what came."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from lossproof.cases import Case, Cut, NotApplicable, Refused, calls, load_all
from lossproof.verdict import EQUAL, Comparison, compare, flat, of_case

Step = Callable[[Case, "Cut | None"], dict[str, Any]]
UNCUT: Cut = {"name": "-", "steps": []}


def run(step: Step, cases: Iterable[Case] | None = None) -> list[dict[str, Any]]:
    """One record for each case: verdict, the numbers of every cut, and the seconds it took. Planted cases are left
    out: they hold what a broken engine would answer, for the suite's own tests."""
    chosen = load_all() if cases is None else cases
    return [judge(step, case) for case in chosen if "planted" not in case]


def judge(step: Step, case: Case) -> dict[str, Any]:
    """The record of one case."""
    begun = time.perf_counter()
    results: dict[str, Comparison] = {}
    variants: dict[str, dict[str, Comparison]] = {name: {} for name in case.get("variants", {})}
    refused: list[str] = []
    missing: list[str] = []
    errors: list[str] = []
    for cut in cuts_of(case):
        try:
            main, others = compare_call(step, case, cut)
        except Refused as error:
            refused.append(f"{cut['name']}: {error}")
            continue
        except NotApplicable as error:
            missing.append(f"{cut['name']}: {error}")
            continue
        except Exception as error:
            errors.append(f"{cut['name']}: {type(error).__name__}: {error}")
            continue
        results[cut["name"]] = main
        for name, comparison in others.items():
            variants[name][cut["name"]] = comparison
    verdict, because = _verdict(case, results, variants, (refused, missing, errors))
    return {
        "id": case["id"],
        "number": case["number"],
        "verdict": verdict,
        "because": because,
        "passed": passes(case, verdict),
        "cuts": {name: it.as_record() for name, it in results.items()},
        "skipped": missing,
        "refused": refused,
        "errors": errors,
        "seconds": round(time.perf_counter() - begun, 4),
    }


def _verdict(
    case: Case,
    results: dict[str, Comparison],
    variants: dict[str, dict[str, Comparison]],
    failures: tuple[list[str], list[str], list[str]],
) -> tuple[str, str]:
    refused, missing, errors = failures
    if errors:
        return "different", errors[0]
    if not results and refused:
        return "refused", refused[0].partition(": ")[2]
    if not results:
        return "n/a", missing[0].partition(": ")[2] if missing else ""
    verdict, because = _of_answers(case, results, variants)
    if refused and passes(case, verdict):
        # Right answers to the other cuts say nothing about this one; wrong ones weigh more than a refusal.
        return "refused", refused[0]
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


def passes(case: Case, verdict: str) -> bool:
    """Whether a verdict is as it should be; a definition that the case registers is no failure."""
    if verdict == "refused":
        return bool(case.get("expect", {}).get("refused")) or bool(case.get("may_refuse"))
    return verdict in ("exact", "equal", "other definition", "n/a")


def cuts_of(case: Case) -> list[Cut]:
    """The cuts of a case; one without sequences to cut has one that says nothing."""
    return [{"name": name, "steps": steps} for name, steps in case.get("cuts", {}).items()] or [UNCUT]


def compare_call(step: Step, case: Case, cut: Cut) -> tuple[Comparison, dict[str, Comparison]]:
    """The comparison under one cut: with the answer, or of the two calls that a law compares."""
    answers = [step(c, where) for c, where in calls(case, cut)]
    if "pair" in case:
        return _compare_pair(case, answers), {}
    answer = answers[0]
    if "sum_to_zero" in case:
        return _sums_to_zero(case, answer), {}
    expect = case["expect"]
    main = Comparison(float("inf"), float("nan"), float("inf")) if expect.get("refused") else _compare(answer, expect)
    return main, {name: _compare(answer, variant["expect"]) for name, variant in case.get("variants", {}).items()}


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
    key = "advantage" if case["kind"] == "advantage" else "grad"
    back = second[key]
    if "select" in pair:
        back = [np.zeros_like(flat(it)) for it in first[key]]
        for j, i in enumerate(pair["select"]):
            back[i] = back[i] + flat(second[key][j])
        back = [it.tolist() for it in back]
    loss = (second.get("loss"), first.get("loss"))
    result = compare(back, first[key], loss)
    if loss[0] is not None and not np.isfinite(loss[0]):
        return Comparison(float("nan"), float("nan"), float("nan"), result.loss_error)
    return result


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


__all__ = ["EQUAL", "adapter", "compare_call", "cuts_of", "judge", "passes", "run", "worst"]
