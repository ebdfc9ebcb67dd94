"""The problems of the planted runs: linear equations as the built-in model knows them, and its teacher's steps."""

from __future__ import annotations

import random
from typing import TypedDict


class Problem(TypedDict):
    problem: str
    answer: str
    teacher: str


def long_division(number: int, divisor: int) -> str:
    """The built-in task's own steps of a division that leaves nothing, digit by digit."""
    steps, rest = [], 0
    for digit in str(number):
        value = 10 * rest + int(digit)
        steps.append(f"{rest}{digit}/{divisor}:{value // divisor}r{value % divisor}")
        rest = value % divisor
    return ",".join(steps)


def equations(count: int, digits: int, seed: int) -> list[Problem]:
    """Different equations a*x+b=c whose x has so many digits."""
    draw = random.Random(seed)
    rows: dict[str, Problem] = {}
    while len(rows) < count:
        a, b, x = draw.randint(2, 9), draw.randint(1, 9), draw.randint(10 ** (digits - 1), 10**digits - 1)
        c = a * x + b
        problem = f"{a}*x+{b}={c};x=?"
        teacher = f"{c}-{b}:{c - b},{long_division(c - b, a)},\\boxed{{{x}}}"
        rows[problem] = {"problem": problem, "answer": str(x), "teacher": teacher}
    return list(rows.values())
