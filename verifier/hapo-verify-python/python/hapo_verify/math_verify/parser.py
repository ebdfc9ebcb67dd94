"""Math-Verify's ``parse`` and the settings of what it looks for."""

from __future__ import annotations

import ast
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from numbers import Number
from typing import Any, Literal

from .._native import read_answer
from .errors import TimeoutException
from .utils import timeout

__all__ = [
    "DEFAULT_TARGETS",
    "ExprExtractionConfig",
    "Expression",
    "ExtractionTarget",
    "LatexExtractionConfig",
    "NormalizationConfig",
    "StringExtractionConfig",
    "TimeoutException",
    "parse",
    "timeout",
]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class NormalizationConfig:
    """What is cleaned up before a formula is read, as in ``latex2sympy2_extended``, whose objects do as well."""

    basic_latex: bool = True
    units: bool = False
    malformed_operators: bool = False
    nits: bool = False
    boxed: Literal["all", "last", "none"] = "all"
    equations: bool = False
    """Without effect: equations are split when they are read."""


@dataclass(frozen=True)
class LatexExtractionConfig:
    """Look for formulas."""

    try_extract_without_anchor: bool = True
    """Whether formulas without words such as "answer" before them count."""
    boxed_match_priority: int = 50
    """0 looks for boxes first, 50 after "final answer is", -1 never."""
    normalization_config: Any = field(
        default_factory=lambda: NormalizationConfig(units=True, malformed_operators=True, nits=True)
    )


@dataclass(frozen=True)
class ExprExtractionConfig:
    """Look for plain numbers and arithmetic."""

    try_extract_without_anchor: bool = True


@dataclass(frozen=True)
class StringExtractionConfig:
    """Look for literal strings, such as the letters of a multiple choice."""

    strings: tuple[str, ...] = ("A", "B", "C", "D")
    try_extract_without_anchor: bool = True
    lowercase: bool = True


ExtractionTarget = LatexExtractionConfig | ExprExtractionConfig | StringExtractionConfig
DEFAULT_TARGETS: Sequence[ExtractionTarget] = (LatexExtractionConfig(), ExprExtractionConfig())


@dataclass(frozen=True, slots=True)
class Request:
    """All settings of one call of ``parse``, as the extension module reads them."""

    latex: bool | None
    boxed_priority: int | None
    boxes: str | None
    basic_latex: bool
    units: bool
    nits: bool
    malformed_operators: bool
    expressions: bool | None
    strings: tuple[str, ...]
    strings_anywhere: bool
    only_first: bool


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Expression:
    """A value that was read. It prints as SymPy's object of Math-Verify does, and ``sympy.sympify`` takes it.

    A value that is a number equals that number: ``parse("so 1/2")[0] == 0.5``.
    """

    shown: str
    source: tuple[str, Request]

    def __repr__(self) -> str:
        return self.shown

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Expression):
            one, two = _number(self.shown), _number(other.shown)
            return self.shown == other.shown if one is None or two is None else one == two
        number = _number(self.shown)
        if number is None or not isinstance(other, Number):
            return NotImplemented
        # A float is compared with the nearest one, as 0.1 and 1/3 have no exact double.
        return float(number) == other if isinstance(other, float) else bool(number == other)

    def __hash__(self) -> int:
        number = _number(self.shown)
        return hash(self.shown if number is None else number)

    def __float__(self) -> float:
        number = _number(self.shown)
        if number is not None:
            return float(number)
        from sympy import sympify

        return float(sympify(self.shown))

    def _sympy_(self) -> Any:
        from sympy import sympify

        return sympify(self.shown)


def _number(shown: str) -> Fraction | None:
    """The rational number that a printed value is, or None where it is something else."""
    if len(shown) > 200:
        return None
    try:
        return _rational(ast.parse(shown, mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, OverflowError):
        return None


def _rational(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int() | float()) if not isinstance(node.value, bool):
            return Fraction(str(node.value))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_rational(operand)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _rational(left) + _rational(right)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _rational(left) - _rational(right)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _rational(left) * _rational(right)
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return _rational(left) / _rational(right)
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int(power))) if power <= 64:
            return _rational(left) ** power
    raise ValueError("not a rational number")


def _request(targets: Sequence[ExtractionTarget], only_first: bool) -> tuple[Request, bool]:
    """The settings, and whether strings become lower case."""
    latex = next((it for it in targets if isinstance(it, LatexExtractionConfig)), None)
    expr = next((it for it in targets if isinstance(it, ExprExtractionConfig)), None)
    string = next((it for it in targets if isinstance(it, StringExtractionConfig)), None)
    clean_up = latex.normalization_config if latex else NormalizationConfig()
    priority = latex.boxed_match_priority if latex else -1
    request = Request(
        latex=latex.try_extract_without_anchor if latex else None,
        boxed_priority=priority if priority >= 0 else None,
        boxes=clean_up.boxed if clean_up.boxed in ("all", "last") else None,
        basic_latex=clean_up.basic_latex,
        units=clean_up.units,
        nits=clean_up.nits,
        malformed_operators=clean_up.malformed_operators,
        expressions=expr.try_extract_without_anchor if expr else None,
        strings=string.strings if string else (),
        strings_anywhere=string is None or string.try_extract_without_anchor,
        only_first=only_first,
    )
    return request, string is None or string.lowercase


def parse(
    pred: str,
    extraction_config: Sequence[ExtractionTarget] = DEFAULT_TARGETS,
    fallback_mode: Literal["no_fallback", "first_match"] = "first_match",
    extraction_mode: Literal["first_match", "any_match"] = "any_match",
    parsing_timeout: int | None = 5,
    raise_on_error: bool = False,
) -> list[Any]:
    """The answer of a text: its value, where one can be read, then its normalised text; an empty list without one.

    ``parsing_timeout`` has no effect: work is bounded. With ``raise_on_error``, an answer beyond the bounds raises
    :class:`~hapo_verify.math_verify.errors.TimeoutException`, and anything but a text ``TypeError``.
    """
    request, lowercase = _request(extraction_config, extraction_mode == "first_match")
    try:
        shown, word, text, is_too_large = read_answer(pred, request)
    except TypeError:
        if raise_on_error:
            raise
        logger.debug("Not a text: %r", pred)
        return []
    if is_too_large and shown is None:
        if raise_on_error:
            raise TimeoutException(f"An answer exceeds the bounds: {pred[:200]}")
        logger.warning("An answer exceeds the bounds: %s", pred[:200])
    found: list[Any] = []
    if shown is not None:
        found.append(Expression(shown, (pred, request)))
    elif word is not None:
        found.append(word.lower() if lowercase else word)
    if text and fallback_mode == "first_match":
        found.append(text)
    return found
