"""Cases as data: loading, and the calls that a case asks an adapter to make."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

Case = dict[str, Any]
Cut = dict[str, Any]

# Fields of a batch that have one entry for each sequence.
PER_SEQUENCE = (
    "tokens",
    "logits",
    "old_logits",
    "logp",
    "old_logp",
    "ref_logp",
    "sampler_logp",
    "entropy",
    "mask",
    "advantage",
    "reward",
    "group",
    "source",
    "prefix",
    "trainable",
)


class Refused(Exception):
    """The engine raised an error that names the cause."""


class NotApplicable(Exception):
    """The engine has no such loss, or cannot be given such a cut."""


def root() -> Path:
    """The folder with `cases/` and `batches/`: inside an installed package, or above it in the repository."""
    package = Path(__file__).resolve().parent
    return package if (package / "cases").is_dir() else package.parent


def load_all(folder: Path | None = None) -> list[Case]:
    """Every case, sorted by id, with its batch filled in."""
    folder = folder or root()
    paths = sorted((folder / "cases").rglob("*.json"))
    if not paths:
        raise FileNotFoundError(f"no cases in {folder / 'cases'}")
    return sorted((_resolve(_read(path), folder) for path in paths), key=lambda case: str(case["id"]))


def load(name: str, folder: Path | None = None) -> Case:
    """The case of this id."""
    folder = folder or root()
    path = folder / "cases" / f"{name}.json"
    if not path.is_file():
        near = [it["id"] for it in load_all(folder) if str(it["id"]).startswith(name.rpartition("/")[0])]
        raise KeyError(f"no case {name!r}; near it: {', '.join(near[:12]) or 'none'}; `lossproof list` has all")
    return _resolve(_read(path), folder)


def micro_batches(cut: Cut) -> list[list[int]]:
    """The micro-batches of a cut with one optimiser step on one rank.

    Raises NotApplicable for the other cuts, so an adapter that knows neither ranks nor windows starts with this call.
    """
    if len(cut["steps"]) != 1:
        raise NotApplicable("several optimiser steps")
    if len(cut["steps"][0]) != 1:
        raise NotApplicable("several ranks")
    return list(cut["steps"][0][0])


def calls(case: Case, cut: Cut) -> list[tuple[Case, Cut]]:
    """What the adapter is called with: one call, or the two whose answers a law compares."""
    pair = case.get("pair")
    if pair is None:
        return [(case, cut)]
    other = {**case, "batch": paired_batch(case), "layout": pair.get("layout", case.get("layout", {}))}
    first = cut
    if "cut" in pair:  # The law compares cuts: the first call is uncut.
        return [(case, pair["cut"]), (other, cut)]
    second = {"name": cut["name"], "steps": pair["steps"]} if "steps" in pair else cut
    return [(case, first), (other, second)]


def paired_batch(case: Case) -> dict[str, Any]:
    """The batch of a law's second call."""
    pair = case["pair"]
    batch = dict(case["batch"])
    if "select" in pair:
        for name in PER_SEQUENCE:
            if name in batch:
                batch[name] = [batch[name][i] for i in pair["select"]]
    batch.update(pair.get("with", {}))
    return batch


def _read(path: Path) -> Case:
    case: Case = numbers(json.loads(path.read_text()))
    return case


def _resolve(case: Case, folder: Path) -> Case:
    batch = dict(_batch(folder, case["batch"])) if isinstance(case["batch"], str) else case["batch"]
    return {**case, "batch_name": case["batch"] if isinstance(case["batch"], str) else "inline",
            "batch": batch | case.get("with", {})}  # fmt: skip


@cache
def _batch(folder: Path, name: str) -> dict[str, Any]:
    return _read(folder / "batches" / f"{name}.json")


def numbers(it: Any) -> Any:
    """JSON has no infinity: "inf", "-inf" and "nan" stand for it."""
    if isinstance(it, dict):
        return {key: numbers(value) for key, value in it.items()}
    if isinstance(it, list):
        return [numbers(value) for value in it]
    return {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}.get(it, it) if isinstance(it, str) else it
