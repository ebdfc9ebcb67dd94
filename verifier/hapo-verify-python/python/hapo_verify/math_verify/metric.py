"""Math-Verify's ``math_metric``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from .errors import TimeoutException
from .grader import verify
from .parser import ExprExtractionConfig, ExtractionTarget, parse
from .utils import timeout

__all__ = ["ExprExtractionConfig", "ExtractionTarget", "TimeoutException", "math_metric", "parse", "timeout", "verify"]

logger = logging.getLogger(__name__)

DEFAULT_TARGETS: Sequence[ExtractionTarget] = (ExprExtractionConfig(),)
Metric = Callable[[list[str], list[str]], tuple[float, tuple[list[str], list[str]] | None]]


def math_metric(
    gold_extraction_target: Sequence[ExtractionTarget] = DEFAULT_TARGETS,
    pred_extraction_target: Sequence[ExtractionTarget] = DEFAULT_TARGETS,
    aggregation_function: Callable[[list[float]], float] = max,
    precision: int = 6,
) -> Metric:
    """A function of gold answers and predictions: the score, and both sides as they were read.

    Raises ``ValueError`` where a gold answer holds nothing to compare with, as Math-Verify does.
    """

    def sample_level(golds: list[str], predictions: list[str]) -> tuple[float, tuple[list[str], list[str]] | None]:
        read_golds = [parse(it, gold_extraction_target) for it in golds]
        read = [parse(it, pred_extraction_target) for it in predictions]
        if not all(read_golds):
            raise ValueError(f"No gold targets found for at least one gold. Gold: {golds}, Pred: {predictions}")
        if not any(read):
            logger.warning("No answer found. Gold: %s, Pred: %s", golds, predictions)
        scores = [float(any(verify(gold, it, precision) for gold in read_golds)) for it in read]
        shown = ([str(it) for all_ in read_golds for it in all_], [str(it) for all_ in read for it in all_])
        return aggregation_function(scores), shown

    return sample_level
