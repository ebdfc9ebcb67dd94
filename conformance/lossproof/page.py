"""The page of results, made from the records alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lossproof.run import worst

ORDER = ("exact", "equal", "scaled", "cut-dependent", "other definition", "different", "refused", "n/a")
# Columns: a heading and the ids that belong to it.
FAMILIES = (
    ("token mean", ("agg/token-mean",)),
    ("sequence mean", ("agg/seq-mean-token-mean", "agg/seq-mean/", "agg/seq-mean-token-sum/")),
    ("constant", ("agg/seq-mean-token-sum-norm",)),
    ("GSPO, GMPO, SAPO", ("agg/gspo", "agg/gmpo", "agg/sapo")),
    ("CISPO, REINFORCE, DPPO", ("agg/cispo", "agg/reinforce", "agg/dppo")),
    ("TIS", ("tis/",)),
    ("KL", ("kl/",)),
    ("entropy, temperature", ("entropy/", "temperature/")),
    ("ranks, windows", ("law/ranks", "law/window")),
    ("padding", ("law/padding", "law/width")),
    ("dead and empty", ("law/masked", "law/empty", "law/dead", "law/truncated")),
    ("other laws", ("law/permutation", "law/micro", "law/accumulation", "law/twice", "law/teacher")),
    ("teachers", ("teacher/",)),
    ("SFT", ("sft/",)),
    ("advantages", ("adv/std", "adv/mean", "adv/leave", "adv/sum", "adv/shift", "adv/teacher", "adv/untrain")),
    ("constant group, NaN", ("adv/constant", "adv/group-of-one", "adv/nan", "adv/identical")),
)
DEFINITIONS = """\
| difference | status |
|---|---|
| token mean, sequence mean, constant: which is the default | definition |
| sum in place of mean, constant L, factor that no cut changes | definition (`scaled`) |
| `bnpo`: local mean is its documented meaning | definition when named so; cut-dependent is still shown |
| does a masked sequence count in B; do dead groups count in N | definition, if cut and uncut agree |
| ε 1e-4, 1e-6, 1e-9; n or n−1 | definition; a constant group that is not 0 is not |
| GSPO terms by token mean | definition, registered; the paper has the sequence mean |
| CISPO's bounds, clipped below or not | definition |
| KL with the score term, straight-through | definition |
| dual clip on by default at c = 3 | definition; must be in `hyper`, or case 1 reads as different |
| clamp of Δ at ±10, ±20 | definition |
| 1e-8 in a denominator | equal |
| f32 inside | equal |
| the step's gradient depends on the cut | not a definition, unless the manual says so where the option is described |
| s equal to the number of micro-batches | not a definition |
| function alone fails, trainer repairs it | two rows, `function` and `trainer` |
"""


def page(folder: Path) -> str:
    """The text of the page: definitions, one row for each record, and what each deviation is."""
    files = sorted(folder.rglob("*.json"), key=lambda it: (it.stem.lower(), str(it)))
    if not files:
        raise FileNotFoundError(f"no records in {folder}")
    results = [(path, json.loads(path.read_text())) for path in files]
    parts = [
        "# Results",
        "",
        "Made by `lossproof page` from the records in `results/`. Rows are sorted by name; there is no rank and no total, "
        "since a sum over cases has no meaning. A cell has the verdicts of its cases with their counts; the deviations are "
        "listed below with the largest r, the scale s and the cut.",
        "",
        "These cases show what is computed. They do not show that a difference matters for a trained model.",
        "",
        "## Definition or bug",
        "",
        DEFINITIONS,
        "## Rows",
        "",
        "| engine | " + " | ".join(name for name, _ in FAMILIES) + " |",
        "|---|" + "---|" * len(FAMILIES),
    ]
    parts += [row(record) for _, record in results]
    parts += [
        "",
        "## How each row was made",
        "",
        "| engine | date | suite | Python | torch | CPU seconds | command |",
        "|---|---|---|---|---|---|---|",
    ]
    parts += [origin(record) for _, record in results]
    for _, record in results:
        parts += ["", *deviations(record)]
    return "\n".join(parts) + "\n"


def label(record: dict[str, Any]) -> str:
    return f"{record['engine']} {record['engine_version']}, {record['tier']}".replace(" ,", ",")


def row(record: dict[str, Any]) -> str:
    cells = []
    for _, prefixes in FAMILIES:
        verdicts = [
            it["verdict"] for it in record["records"] if it["id"].startswith(prefixes) and it["verdict"] != "n/a"
        ]
        counted = [(word, verdicts.count(word)) for word in ORDER if word in verdicts]
        cells.append(", ".join(f"{word} {count}" for word, count in counted) or "n/a")
    return f"| {label(record)} | " + " | ".join(cells) + " |"


def origin(record: dict[str, Any]) -> str:
    keys = ("date", "suite", "python", "torch", "cpu_seconds")
    return (
        f"| {label(record)} | " + " | ".join(str(record.get(key, "")) for key in keys) + f" | `{record['command']}` |"
    )


def deviations(record: dict[str, Any]) -> list[str]:
    """The cases that are neither exact nor equal nor rightly refused, with their numbers."""
    shown = [
        it
        for it in record["records"]
        if it["verdict"] not in ("exact", "equal", "n/a") and not (it["verdict"] == "refused" and it["passed"])
    ]
    missing = sum(it["verdict"] == "n/a" for it in record["records"])
    lines = [f"### {label(record)}", ""]
    if record["about"]:
        lines += [record["about"], ""]
    lines += [f"{len(record['records']) - missing} cases called, {missing} not applicable.", ""]
    if not shown:
        return [*lines, "Every case that was called is exact, equal or refused as it should be."]
    lines += ["| case | verdict | largest r | s | cut | |", "|---|---|---|---|---|---|"]
    for it in shown:
        found = worst(it)
        numbers = ("", "", "") if found is None else (_short(found[1]["r"]), _short(found[1]["s"]), found[0])
        because = it["because"].replace("|", "\\|").replace("\n", " ")[:120]
        lines.append(f"| {it['id']} | {it['verdict']} | {numbers[0]} | {numbers[1]} | {numbers[2]} | {because} |")
    return lines


def _short(it: Any) -> str:
    return it if isinstance(it, str) else f"{it:.3g}"
