"""Writes philox4x64.json: blocks of numpy's Philox (4x64, 10 rounds) for counters and keys of all sizes.

numpy increments the counter before its first block, so the generator is started one below.
Run: python make_philox_vectors.py > philox4x64.json      (made with numpy 2.4.6)
"""

import json
import random

import numpy as np

rng = random.Random(20260101)
word = 2**64 - 1
cases = [([0] * 4, [0] * 2), ([word] * 4, [word] * 2), ([1, 2, 3, 4], [5, 6])]
cases += [([rng.getrandbits(64) for _ in range(4)], [rng.getrandbits(64) for _ in range(2)]) for _ in range(30)]
# The shape of this project's keys: small seed and purpose, small counters, and a later block.
cases += [([t, 412, 7, t % 80], [0, 1 + t % 8 + (t % 3 << 32)]) for t in range(1, 30)]


def block(counter, key):
    whole = sum(c << (64 * i) for i, c in enumerate(counter))
    before = (whole - 1) % 2**256
    start = np.array([(before >> (64 * i)) & word for i in range(4)], dtype=np.uint64)
    raw = np.random.Philox(counter=start, key=np.array(key, dtype=np.uint64)).random_raw(4)
    return [f"{int(it):016x}" for it in raw]


rows = [
    {"counter": [f"{it:016x}" for it in c], "key": [f"{it:016x}" for it in k], "output": block(c, k)} for c, k in cases
]
print("[\n" + ",\n".join(json.dumps(it) for it in rows) + "\n]")
