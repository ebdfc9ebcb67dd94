"""Rows of data from whatever holds them."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hapo._errors import Error


def rows_of(data: Any) -> Iterable[Any]:
    """The rows of a list, of a frame of pandas or polars, or of a ``datasets.Dataset``."""
    if hasattr(data, "to_dicts"):
        return data.to_dicts()  # type: ignore[no-any-return]
    if hasattr(data, "iterrows"):
        return data.to_dict("records")  # type: ignore[no-any-return]
    if isinstance(data, Mapping | str | bytes) or not isinstance(data, Iterable):
        kind = type(data).__name__
        hint = {"DatasetDict": 'name a split, as in data=dataset["train"]', "LazyFrame": "call its collect() first"}
        raise Error(
            f"data: expected a file, rows, a frame of pandas or polars, or a Dataset, got {kind}",
            hint.get(kind, 'for example data=[{"problem": "1 + 1 = ?", "answer": "2"}]'),
        )
    return data


def lines_of(data: Any) -> list[str]:
    """Rows as lines of JSON."""
    lines = []
    for number, row in enumerate(rows_of(data), 1):
        if not isinstance(row, Mapping):
            raise Error(f"data: row {number}: expected a dictionary, got {type(row).__name__}")
        fields = []
        for name, it in row.items():
            if _missing(it):
                continue
            try:
                written = json.dumps(it, ensure_ascii=False, default=_plain, allow_nan=False)
            except (TypeError, ValueError) as problem:
                what = f"data: row {number}: {name}: expected texts, numbers and lists of them: {problem}"
                raise Error(what) from None
            fields.append(f"{json.dumps(str(name), ensure_ascii=False)}: {written}")
        lines.append(f"{{{', '.join(fields)}}}")
    if not lines:
        raise Error("data: expected at least one row, got none")
    return lines


def write_rows(data: Any, folder: Path) -> Path:
    """Writes rows as JSON lines into a file of the folder that their hash names, and gives its path."""
    text = ("\n".join(lines_of(data)) + "\n").encode("utf-8", "replace")
    path = folder / f"data-{hashlib.sha256(text).hexdigest()[:16]}.jsonl"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(".tmp")
        beside.write_bytes(text)
        beside.replace(path)
    return path


def _missing(it: Any) -> bool:
    """None, NaN, or what pandas writes where a cell is empty."""
    return it is None or (isinstance(it, float) and math.isnan(it)) or type(it).__name__ in ("NAType", "NaTType")


def _plain(it: Any) -> Any:
    """A number or an array of NumPy's as Python has it."""
    if hasattr(it, "tolist"):
        return it.tolist()
    raise TypeError(f"got {type(it).__name__}")
