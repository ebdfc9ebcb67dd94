"""A reward of two parts: a tenth for saying what the answer is, the rest for how near it is.

The parts become the metrics reward/parts/format and reward/parts/answer. A run that counts half-right answers as
successes of a group says so: reward.success_at = 0.5.
"""

import json
import sys


def number(text: str | None) -> float | None:
    """The number in a text, or nothing."""
    try:
        return float((text or "").replace(",", "").replace("$", "").strip())
    except ValueError:
        return None


def nearness(answer: str | None, gold: str) -> float:
    """1 for the gold answer, 0.5 within a tenth of it, else 0."""
    if answer is None:
        return 0.0
    if answer.strip() == gold.strip():
        return 1.0
    a, b = number(answer), number(gold)
    if a is None or b is None:
        return 0.0
    if a == b:
        return 1.0
    return 0.5 if abs(a - b) <= 0.1 * abs(b) else 0.0


for line in sys.stdin:
    it = json.loads(line)
    said, near = float(it["answer"] is not None), nearness(it["answer"], it["gold"])
    reward = round(0.1 * said + 0.9 * near, 6)
    # The id says which line this answers: an answer to another one would be found out.
    print(json.dumps({"id": it["id"], "reward": reward, "parts": {"format": said, "answer": near}}))
