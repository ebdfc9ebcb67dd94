#!/usr/bin/env python3
"""Speed of hapo-verify against Math-Verify, on the same pairs, in one run, one core each, one call at a time.

    python scripts/speed/verify_side_by_side.py PAIRS.jsonl [--venv DIR] [--repeat 5] [--json OUT.json]

PAIRS.jsonl has one object a line: "gold", and either "completion", or "pred" with "form" ("completion", or else the
answer is put into a box). An optional "source" that mentions "real" makes a case `real`; a gold that is a plain number
or fraction makes it `numeric`; every other one is `structural`. Math-Verify is installed from PyPI into the virtual
environment (created if missing) and called as the trainers call it: verify(parse("$gold$"), parse(completion)).
The binary is built with `cargo build --release -p hapo-verify --example bench`.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import venv

MATH_VERIFY = "math-verify[antlr4_13_2]==0.9.0"
ROOT = pathlib.Path(__file__).resolve().parents[2]

PEER = r"""
import json, logging, sys, time
logging.disable(logging.CRITICAL)
from math_verify import parse, verify
parse("$1$"); verify(parse("$1$"), parse("$1$"))
times, correct = {}, 0
for line in open(sys.argv[1]):
    it = json.loads(line)
    start = time.perf_counter()
    try:
        label = verify(parse("$" + it["gold"] + "$"), parse(it["completion"]))
    except Exception:
        label = False
    times.setdefault(it["class"], []).append((time.perf_counter() - start) * 1e6)
    correct += bool(label)
json.dump({"times": times, "correct": correct}, sys.stdout)
"""


def kind(case):
    if "real" in str(case.get("source", "")):
        return "real"
    gold = case["gold"].strip().strip("$")
    number = r"-?(\d[\d,]*(\.\d+)?|\.\d+|\d+/\d+|\\[dt]?frac\{-?\d+\}\{-?\d+\})(\\?%)?"
    return "numeric" if re.fullmatch(number, gold) else "structural"


def summary(times):
    times = sorted(times)
    at = lambda q: times[int((len(times) - 1) * q)]
    return {
        "n": len(times),
        "mean_us": statistics.fmean(times),
        "p50_us": at(0.5),
        "p99_us": at(0.99),
        "p999_us": at(0.999),
        "max_us": times[-1],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs")
    parser.add_argument("--venv", default=os.path.join(tempfile.gettempdir(), "math-verify-venv"))
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json")
    args = parser.parse_args()

    cases = []
    with open(args.pairs) as lines:
        for line in lines:
            case = json.loads(line)
            if "completion" in case:
                completion = case["completion"]
            elif case.get("form") == "completion":
                completion = case["pred"]
            else:
                completion = "\\boxed{" + case["pred"] + "}"
            cases.append({"gold": case["gold"].strip(), "completion": completion, "class": kind(case)})

    python = os.path.join(args.venv, "bin", "python")
    if not os.path.exists(python):
        venv.create(args.venv, with_pip=True)
    if subprocess.run([python, "-c", "import math_verify"], capture_output=True).returncode:
        subprocess.run([python, "-m", "pip", "install", "--quiet", MATH_VERIFY], check=True)
    subprocess.run(
        ["cargo", "build", "--release", "--quiet", "-p", "hapo-verify", "--example", "bench"], check=True, cwd=ROOT
    )
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))

    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", delete=False) as file:
        for case in cases:
            file.write(json.dumps(case) + "\n")
    ours_command = [os.path.join(target, "release", "examples", "bench"), file.name, "--repeat", str(args.repeat)]
    # Before and after the peer, so that a busy machine shows.
    first = json.loads(subprocess.run(ours_command, check=True, capture_output=True, text=True).stdout)
    peer = json.loads(subprocess.run([python, "-c", PEER, file.name], check=True, capture_output=True, text=True).stdout)
    second = json.loads(subprocess.run(ours_command, check=True, capture_output=True, text=True).stdout)
    os.unlink(file.name)

    report = {}
    for name, times in sorted(peer["times"].items()):
        theirs = summary(times)
        ours = min(first[name], second[name], key=lambda it: it["mean_us"])
        report[name] = {"math_verify": theirs, "hapo": ours, "ratio_of_means": theirs["mean_us"] / ours["mean_us"]}
        print(
            f"{name:>10}: n {theirs['n']:>5}  Math-Verify mean {theirs['mean_us']:>10.1f} µs (p99.9 "
            f"{theirs['p999_us']:>11.1f})   hapo mean {ours['mean_us']:>7.2f} µs (p99.9 {ours['p999_us']:>7.1f}, max "
            f"{ours['max_us']:>7.1f})   {report[name]['ratio_of_means']:>7.0f}x"
        )
    print(f"correct: Math-Verify {peer['correct']}, hapo {first['correct']} of {len(cases)}")
    if args.json:
        with open(args.json, "w") as out:
            json.dump(report, out, indent=1)


if __name__ == "__main__":
    sys.exit(main())
