"""Decisions of the gates in closed form.

usage: python3 testdata/gates/make_reference.py > testdata/gates/cases.json
Rational numbers throughout; a mean or a probability is rounded once, to f64.

posterior  the mean of Beta(1 + s, 1 + n - s) over visits, s = rho s' + S, n = rho n' + N, against (m + 3/2)/(2 + N)
thompson   P(theta < (m + 3/2)/(2 + N)) for theta ~ Beta(1 + S, 1 + N - S), whose parameters are whole numbers: the
           tail of a binomial distribution of N + 1 trials
budget     floor(B t/T) exposures after step t, on the lowest means among the groups of S <= m
"""
import json
import random
from fractions import Fraction
from math import comb, floor

random.seed(45)
N = 8


def posterior(rho, m, visits):
    s = n = Fraction(0)
    means, opened = [], []
    for successes in visits:
        s, n = rho * s + successes, rho * n + N
        mean = (1 + s) / (2 + n)
        means.append(float(mean))
        opened.append(m >= 0 and mean < (m + Fraction(3, 2)) / (2 + N))
    return dict(discount=float(rho), success_limit=m, visits=visits, means=means, open=opened)


def thompson(m, successes):
    gamma = (m + Fraction(3, 2)) / (2 + N)
    trials = range(successes + 1, N + 2)
    tail = sum(comb(N + 1, k) * gamma**k * (1 - gamma) ** (N + 1 - k) for k in trials)
    return dict(success_limit=m, successes=successes, probability=float(tail))


def budget(exposures, steps, m, rho):
    """Six prompts, visited in every step, the last of which nothing can help; each has its own rate."""
    counts, spent, rows = {}, 0, []
    for t in range(1, steps + 1):
        groups = [min(N, random.choice([0, 0, 1, 2, 3]) + prompt // 3) for prompt in range(6)]
        means = {}
        for prompt, successes in enumerate(groups):
            s, n = counts.get(prompt, (Fraction(0), Fraction(0)))
            counts[prompt] = (rho * s + successes, rho * n + N)
            means[prompt] = (1 + counts[prompt][0]) / (2 + counts[prompt][1])
        may = sorted((it for it in range(5) if groups[it] <= m), key=lambda it: means[it])
        left = floor(Fraction(exposures * t, steps)) - spent
        chosen, rest = may[:left], may[left:]
        if chosen and rest and means[chosen[-1]] == means[rest[0]]:
            return None  # a draw would decide
        spent += len(chosen)
        rows.append(dict(successes=groups, open=[it in chosen for it in range(6)]))
    return dict(exposures=exposures, steps=steps, success_limit=m, discount=float(rho), rows=rows)


def without_ties(*arguments):
    return next(it for it in (budget(*arguments) for _ in range(10_000)) if it)


half = Fraction(1, 2)
cases = dict(
    posterior=[posterior(rho, m, [random.choice([0, 0, 0, 1, 2, 4, 8]) for _ in range(8)])
               for rho in (Fraction(0), Fraction(1, 4), half, Fraction(1)) for m in (-1, 0, 1, 3)],
    thompson=[thompson(m, s) for m in (0, 1, 3) for s in (0, 1, 2, 4, 8)],
    budget=[without_ties(7, 6, 1, half), without_ties(12, 6, 3, Fraction(1)), without_ties(100, 4, 2, half)],
)
print(json.dumps(cases))
