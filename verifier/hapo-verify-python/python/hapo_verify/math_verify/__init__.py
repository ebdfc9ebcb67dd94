"""Math-Verify's interface on this package's verifier: change the import, keep the calls.

``from hapo_verify.math_verify import parse, verify`` takes the place of ``from math_verify import parse, verify``. The
verdicts are those of Math-Verify 0.9.0 with few exceptions, all listed in ``docs/verifier-differences.md``. Nothing can
hang, so the timeouts are accepted and never run: it works in threads and where there are no signals.
"""

from . import errors, grader, metric, parser
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
    "math_metric",
    "metric",
    "parse",
    "parser",
    "verify",
]
