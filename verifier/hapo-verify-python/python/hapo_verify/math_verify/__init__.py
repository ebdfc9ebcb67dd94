"""Math-Verify's interface on this package's verifier: change the import, keep the calls.

``from hapo_verify.math_verify import parse, verify`` takes the place of ``from math_verify import parse, verify``. The
verdicts are those of Math-Verify 0.9.0 with few exceptions, all listed in ``docs/verifier-differences.md``. Nothing can
hang, so the timeouts are accepted and never run: it works in threads and where there are no signals.

Where the import stands in somebody else's code, :func:`install` puts this package in Math-Verify's place.
"""

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

from . import errors, grader, metric, parser, utils
from .errors import TimeoutException
from .grader import verify
from .metric import math_metric
from .parser import (
    Expression,
    ExprExtractionConfig,
    LatexExtractionConfig,
    NormalizationConfig,
    StringExtractionConfig,
    parse,
)

LatexNormalizationConfig = NormalizationConfig


def install() -> None:
    """Registers this package as ``math_verify``, for imports that come after it in this process.

    ``math_verify.errors``, ``.grader``, ``.metric``, ``.parser`` and ``.utils`` are registered too, also where
    Math-Verify is installed or was imported. Where ``latex2sympy2_extended`` is not installed, its
    ``NormalizationConfig``, which goes into a call of ``parse``, can be imported as well. What is left out is listed in
    ``docs/verifier-differences.md``.
    """
    here = sys.modules[__name__]
    for name in [it for it in sys.modules if it == "math_verify" or it.startswith("math_verify.")]:
        del sys.modules[name]
    sys.modules["math_verify"] = here
    sys.modules.update({f"math_verify.{it.__name__.rpartition('.')[2]}": it for it in _SUBMODULES})
    if "latex2sympy2_extended" in sys.modules or find_spec("latex2sympy2_extended") is not None:
        return
    for part in ("", ".latex2sympy2", ".math_normalization"):
        name = f"latex2sympy2_extended{part}"
        module = ModuleType(name, "The configuration of latex2sympy2_extended that Math-Verify's `parse` takes.")
        module.__spec__ = ModuleSpec(name, None, is_package=not part)
        module.NormalizationConfig = NormalizationConfig  # type: ignore[attr-defined]
        sys.modules[name] = module


_SUBMODULES = (errors, grader, metric, parser, utils)

__all__ = [
    "ExprExtractionConfig",
    "Expression",
    "LatexExtractionConfig",
    "LatexNormalizationConfig",
    "NormalizationConfig",
    "StringExtractionConfig",
    "TimeoutException",
    "errors",
    "grader",
    "install",
    "math_metric",
    "metric",
    "parse",
    "parser",
    "utils",
    "verify",
]
