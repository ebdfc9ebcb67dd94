"""``python -m hapo_verify FILE --gold answer --answer completion``: a verdict for each row of a JSONL or CSV file."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

from . import POLICIES, grade_batch

BATCH = 4096
TRUE = {"1", "1.0", "true", "correct", "yes"}


def rows_of(path: str) -> Iterator[dict[str, Any]]:
    """The rows of a file, by the end of its name."""
    with open(path, encoding="utf-8", newline="") as file:
        if path.endswith(".csv"):
            yield from csv.DictReader(file)
        else:
            yield from (json.loads(line) for line in file if line.strip())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m hapo_verify", description=__doc__)
    parser.add_argument("file", help="rows as .jsonl or .csv")
    parser.add_argument("--gold", default="gold", help="column of the gold answer")
    parser.add_argument("--answer", default="answer", help="column of the completion")
    parser.add_argument("--label", help="column of a label, for a confusion table")
    parser.add_argument("--policy", default="training", choices=POLICIES)
    parser.add_argument("--json", action="store_true", help="print the summary as JSON instead of rows")
    args = parser.parse_args()
    counts: Counter[str] = Counter()
    table: Counter[tuple[bool, bool]] = Counter()
    disagreements: list[dict[str, Any]] = []
    batch: list[dict[str, Any]] = []

    def grade() -> None:
        verdicts = grade_batch([it[args.gold] for it in batch], [it[args.answer] for it in batch], policy=args.policy)
        for row, verdict in zip(batch, verdicts, strict=True):
            counts[verdict.name] += 1
            if not args.json:
                print(json.dumps({**row, "verdict": verdict.name, "reason": verdict.reason}, ensure_ascii=False))
            if args.label:
                label = str(row[args.label]).strip().lower() in TRUE
                table[label, verdict.correct] += 1
                if label != verdict.correct:
                    disagreements.append({"gold": row[args.gold], "label": label, "reason": verdict.reason})
        print(f"\r{counts.total()} rows", end="", file=sys.stderr)
        batch.clear()

    for number, row in enumerate(rows_of(args.file), 1):
        for key in (args.gold, args.answer):
            if not isinstance(row.get(key), str):
                parser.exit(2, f"{args.file}: row {number}: expected a text in `{key}`\n")
        if args.label and args.label not in row:
            parser.exit(2, f"{args.file}: row {number}: expected the column `{args.label}`\n")
        batch.append(row)
        if len(batch) == BATCH:
            grade()
    grade()
    print(file=sys.stderr)
    summary: dict[str, Any] = dict(counts)
    if args.label:
        words = {True: "correct", False: "wrong"}
        summary["confusion"] = {f"label {words[a]}, verdict {words[b]}": n for (a, b), n in sorted(table.items())}
        summary["disagreements"] = disagreements
    print(json.dumps(summary, ensure_ascii=False, indent=1), file=sys.stdout if args.json else sys.stderr)
    return 0


sys.exit(main())
