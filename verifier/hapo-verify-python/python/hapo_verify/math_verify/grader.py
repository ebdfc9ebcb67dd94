"""Math-Verify's ``verify``."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

from .._native import same_answer
from .errors import TimeoutException
from .parser import Expression, parse
from .utils import timeout

__all__ = ["TimeoutException", "sympy_expr_eq", "timeout", "verify"]


@dataclass(frozen=True, slots=True)
class Rules:
    """How two values are compared, as the extension module reads it."""

    float_rounding: int
    strict: bool
    allow_set_relation_comp: bool


def verify(
    gold: Any,
    target: Any,
    float_rounding: int = 6,
    numeric_precision: int = 15,
    strict: bool = True,
    allow_set_relation_comp: bool = False,
    timeout_seconds: int | None = 5,
    raise_on_error: bool = False,
) -> bool:
    """Whether any value or text of ``target`` means any of ``gold``; both as ``parse`` returns them.

    SymPy's objects and Python's numbers may stand for values. ``numeric_precision`` and ``timeout_seconds`` have no
    effect: values are compared exactly or to 50 digits, and work is bounded. What goes wrong, such as an object that
    has no LaTeX, is False unless ``raise_on_error``.
    """
    golds = gold if isinstance(gold, list) else [gold]
    targets = target if isinstance(target, list) else [target]
    settings = (float_rounding, numeric_precision, allow_set_relation_comp, strict)

    def meets(one: Any, other: Any) -> bool:
        if isinstance(one, str) and isinstance(other, str):
            return one.strip() == other.strip() != ""
        try:
            return sympy_expr_eq(one, other, *settings)
        except Exception:
            if raise_on_error:
                raise
            return False

    return any(meets(one, other) for one, other in product(golds, targets))


def sympy_expr_eq(
    gold: Any,
    pred: Any,
    float_rounding: int,
    numeric_precision: int,
    allow_set_relation_comp: bool = False,
    strict: bool = True,
) -> bool:
    """Whether two values mean the same."""
    one, other = _expression(gold), _expression(pred)
    if one is None or other is None:
        return False
    return same_answer(one.source, other.source, Rules(float_rounding, strict, allow_set_relation_comp))


def _expression(value: Any) -> Expression | None:
    """The value as this package reads it; None for a text, and for what cannot be read."""
    if isinstance(value, Expression):
        return value
    if value is None or isinstance(value, str):
        return None
    if hasattr(value, "_repr_latex_"):
        from sympy import latex

        value = latex(value)
    found = parse(f"${value}$", fallback_mode="no_fallback")
    return found[0] if found else None
