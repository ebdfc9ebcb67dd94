"""The numbers of lab/src/exact.rs: scipy 1.17.1 and lifelines 0.30.3, and exact tests by enumeration.

    pip install scipy==1.17.1 lifelines==0.30.3
    python lab/testdata/statistics.py > lab/testdata/statistics.json
"""

import itertools
import json

import numpy as np
from lifelines import KaplanMeierFitter
from lifelines.statistics import logrank_test
from scipy.stats import fisher_exact


def fisher(found_a: int, of_a: int, found_b: int, of_b: int) -> dict:
    table = [[found_a, of_a - found_a], [found_b, of_b - found_b]]
    return {"table": [found_a, of_a, found_b, of_b], "p": float(fisher_exact(table)[1])}


def statistic(a: list, b: list) -> float:
    if not any(happened for _, happened in a + b):
        return 0.0
    result = logrank_test([t for t, _ in a], [t for t, _ in b], [e for _, e in a], [e for _, e in b])
    value = float(result.test_statistic)
    return 0.0 if np.isnan(value) else value


def survival(a: list, b: list) -> dict:
    fit = KaplanMeierFitter().fit([t for t, _ in a], [e for _, e in a])
    events = sorted({t for t, happened in a if happened})
    curve = [[t, float(fit.survival_function_at_times(t).iloc[0])] for t in events]
    observed = statistic(a, b)
    pooled = a + b
    groups = list(itertools.combinations(range(len(pooled)), len(a)))
    as_large = sum(
        statistic([pooled[i] for i in group], [pooled[i] for i in range(len(pooled)) if i not in group])
        >= observed * (1 - 1e-9)
        for group in groups
    )
    median = fit.median_survival_time_
    return {
        "a": a,
        "b": b,
        "survival": curve,
        "median": None if np.isinf(median) else int(median),
        "chi2": observed,
        "p": as_large / len(groups),
    }


def flips(strata: list, margin: float) -> dict:
    weights = np.concatenate([[1 / (len(s) * len(strata))] * len(s) for s in strata])
    values = np.concatenate(strata)
    signs = np.array(list(itertools.product([1.0, -1.0], repeat=len(values)))) * weights

    def above(shift: float, side: float) -> float:
        pairs = side * (values - shift)
        return float(np.mean(signs @ pairs >= weights @ pairs - 1e-12))

    mean = float(weights @ values)
    grid = np.linspace(mean - 0.1, mean + 0.1, 2001)
    inside = [x for x in grid if above(x, 1.0) > 0.025 and above(x, -1.0) > 0.025]
    return {
        "strata": strata,
        "mean": mean,
        "p": min(1.0, 2 * min(above(0.0, 1.0), above(0.0, -1.0))),
        "equivalence": max(above(-margin, 1.0), above(margin, -1.0)),
        "interval": [float(inside[0]), float(inside[-1])],
    }


TABLES = [(5, 5, 0, 5), (5, 5, 3, 5), (3, 5, 3, 5), (5, 5, 5, 5), (0, 5, 0, 5), (20, 20, 12, 20)]
TABLES += [(1, 20, 9, 20), (4, 7, 11, 13), (0, 20, 5, 5), (17, 20, 2, 5), (10, 20, 10, 20), (2, 3, 1, 8)]
STRATA = [[0.013, -0.028, 0.013, -0.042], [-0.043, 0.021, 0.005, -0.017], [0.002, 0.011, -0.009, 0.03]]
print(
    json.dumps(
        {
            "fisher": [fisher(*table) for table in TABLES],
            "survival": [
                survival([[20, 1], [30, 1], [30, 1], [45, 1], [60, 0]], [[40, 1], [60, 0], [60, 0], [60, 0], [60, 0]]),
                survival([[10, 1], [20, 0], [30, 1], [30, 0]], [[10, 1], [10, 1], [20, 1], [25, 0]]),
                survival([[60, 0], [60, 0], [60, 0]], [[10, 1], [20, 1], [60, 0]]),
            ],
            "flips": flips(STRATA, 0.02),
        }
    )
)
