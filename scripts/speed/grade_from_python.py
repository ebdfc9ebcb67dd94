#!/usr/bin/env python3
"""Speed of `hapo.grade` against Math-Verify, both called from Python, on the same pairs, in one run, call by call.

Times are CPU time: what else the machine does matters little.

    python scripts/speed/grade_from_python.py PAIRS.jsonl [--repeat 5] [--json OUT.json]

In an environment with the wheel and math-verify[antlr4_13_2]==0.9.0. PAIRS.jsonl and the classes of cases are those of
verify_side_by_side.py. Math-Verify is called as the trainers call it. Last come 100,000 pairs in one call of
`hapo.grade_many`, on one thread: the rate of Rust beside it is what the example `bench` of hapo-verify prints as
batch_per_second for the same pairs.
"""

import argparse
import json
import logging
import statistics
import time

from verify_side_by_side import kind

import hapo


def timed(judge, cases, repeat):
    """Median time of each case in microseconds, and how many are correct."""
    times, correct = [], 0
    for case in cases:
        taken = []
        for _ in range(repeat):
            start = time.process_time_ns()
            verdict = judge(case)
            taken.append((time.process_time_ns() - start) / 1e3)
        times.append(statistics.median(taken))
        correct += bool(verdict)
    return times, correct


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("pairs")
    arguments.add_argument("--repeat", type=int, default=5)
    arguments.add_argument("--json")
    args = arguments.parse_args()
    logging.disable(logging.CRITICAL)
    from math_verify import parse, verify

    cases = []
    with open(args.pairs) as lines:
        for line in lines:
            it = json.loads(line)
            if "completion" not in it:
                it["completion"] = it["pred"] if it.get("form") == "completion" else f"\\boxed{{{it['pred']}}}"
            cases.append(it)

    def peer(case):
        try:
            return verify(parse("$" + case["gold"] + "$"), parse(case["completion"]))
        except Exception:
            return False

    def ours(case):
        return hapo.grade(case["gold"], case["completion"])

    table = {}
    for name in sorted({kind(it) for it in cases}):
        some = [it for it in cases if kind(it) == name]
        timed(ours, some[:20], 1)
        timed(peer, some[:5], 1)
        (mine, mine_correct), (theirs, theirs_correct) = timed(ours, some, args.repeat), timed(peer, some, 1)
        means = statistics.fmean(mine), statistics.fmean(theirs)
        table[name] = {"n": len(some), "hapo_us": means[0], "math_verify_us": means[1], "ratio": means[1] / means[0]}
        print(
            f"{name}: {len(some)} pairs, hapo {means[0]:.1f} µs ({mine_correct} correct), "
            f"Math-Verify {means[1]:.0f} µs ({theirs_correct} correct), ratio {means[1] / means[0]:.0f}"
        )
    many = (cases * (100_000 // len(cases) + 1))[:100_000]
    golds, completions = [it["gold"] for it in many], [it["completion"] for it in many]
    rates = []
    for _ in range(5):
        start = time.process_time()
        hapo.grade_many(golds, completions, threads=1)
        rates.append(len(many) / (time.process_time() - start))
    rate = max(rates)
    print(f"grade_many: {rate:,.0f} pairs a second on one thread")
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"classes": table, "grade_many_per_second": rate}, file, indent=1)


if __name__ == "__main__":
    main()
