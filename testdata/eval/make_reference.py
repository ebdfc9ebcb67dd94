"""Reference values for the statistics of `hapo eval`: pass@k, maj@k and the bootstrap interval.

    pip install scipy==1.17.1 && python testdata/eval/make_reference.py > testdata/eval/reference.json

Independent of the program: pass@k is a hypergeometric tail of scipy, the intervals are those of `scipy.stats.bootstrap`
(percentile method), the majority is counted by enumeration. Only the resampled indices are the program's own: draw i of
resample r is made of the words of numpy's Philox4x64 with counter (r, 0, 0, 0) and key (seed, 7 + block * 2^32), mapped to
0..n by Lemire's multiplication and rejection.
"""

import itertools
import json
import random

import numpy as np
from scipy import stats

RESAMPLES, BOOTSTRAP = 2000, 7


def words(seed, resample):
    for block in itertools.count():
        counter = (resample - 1) % 2**256  # numpy counts up before it draws
        counter = [counter >> (64 * i) & (2**64 - 1) for i in range(4)]
        key = np.array([seed, BOOTSTRAP | block << 32], dtype=np.uint64)
        generator = np.random.Philox(counter=np.array(counter, dtype=np.uint64), key=key)
        yield from map(int, generator.random_raw(4))


def indices(seed, n):
    rows = []
    for resample in range(RESAMPLES):
        source, row = words(seed, resample), []
        while len(row) < n:
            product = next(source) * n
            if product % 2**64 >= 2**64 % n:
                row.append(product >> 64)
        rows.append(row)
    return np.array(rows)


class Recorded(np.random.Generator):
    """A generator that hands out indices that were drawn before."""

    def __init__(self, rows):
        super().__init__(np.random.PCG64(0))
        self.rows = rows

    def integers(self, low, high=None, size=None, dtype=np.int64, endpoint=False):
        assert (low, high, tuple(size)) == (0, self.rows.shape[1], self.rows.shape)
        return self.rows


def interval(values, seed):
    rng = Recorded(indices(seed, len(values)))
    it = stats.bootstrap((np.array(values),), np.mean, n_resamples=RESAMPLES, confidence_level=0.95, method="percentile", rng=rng)
    return [float(np.mean(values)), float(it.confidence_interval.low), float(it.confidence_interval.high)]


def majority(votes, correct):
    """Mean score of the winner over all ways to break a tie; votes of -1 are no votes."""
    cast = [it for it in votes if it >= 0]
    if not cast:
        return 0.0
    most = max(cast.count(it) for it in cast)
    winners = {it for it in cast if cast.count(it) == most}
    return sum(it == correct for it in winners) / len(winners)


def main():
    draw = random.Random(0)
    pass_at_k = [
        [n, c, k, float(stats.hypergeom(n, c, k).sf(0))]
        for n in (1, 2, 7, 32, 64, 256)
        for c in sorted({0, 1, n // 3, n // 2, n - 1, n})
        for k in sorted({1, 2, 8, 16, 32, n})
        if k <= n
    ]
    votes = []
    for _ in range(60):
        cast = [draw.randrange(-1, 4) for _ in range(draw.randrange(0, 12))]
        votes.append({"votes": cast, "score": majority(cast, 0)})
    intervals = []
    for n, k, seed in ((2, 4, 1), (30, 32, 2), (83, 32, 3), (120, 1, 2**63 + 5)):
        hard = [draw.random() for _ in range(n)]
        a = [sum(draw.random() < it for _ in range(k)) / k for it in hard]
        b = [sum(draw.random() < it * 0.8 for _ in range(k)) / k for it in hard]
        paired = [x - y for x, y in zip(a, b)]
        intervals.append({"seed": seed, "values": a, "baseline": b, "single": interval(a, seed), "paired": interval(paired, seed)})
    print(json.dumps({"scipy": "1.17.1", "pass_at_k": pass_at_k, "majority": votes, "intervals": intervals}))


if __name__ == "__main__":
    main()
