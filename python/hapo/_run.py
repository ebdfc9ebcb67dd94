"""Finished and running runs, by the reader of the command ``hapo``."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hapo import _hapo


class Run:
    """A run folder. Everything is read anew when it is asked for, so a running run may be watched.

    ``outcome`` is how the call of ``hapo.train`` that gave it ended, None for a folder that was opened: ``steps`` done
    in all, ``steps_now`` by the call, the last ``checkpoint``, whether it is ``finished`` or was ``interrupted``, and
    why it was ``stopped_early`` or ``stopped_by`` the guard.
    """

    def __init__(self, path: str | os.PathLike[str], outcome: dict[str, Any] | None = None) -> None:
        self.path = Path(path)
        self.outcome = outcome
        if not _hapo.folder(self.path)[4]:
            raise FileNotFoundError(f"path: expected the folder of a run, got {self.path}")

    @property
    def metrics(self) -> dict[str, NDArray[np.float64]]:
        """Every metric by its name, ``step`` first; NaN where a step has none."""
        return dict(_hapo.columns(self.path)[0])

    @property
    def notes(self) -> list[str]:
        """What is wrong with the metrics' file."""
        return _hapo.columns(self.path)[1]

    def frame(self) -> Any:
        """The metrics as a data frame of pandas or else polars, one row for each step."""
        try:
            import pandas
        except ImportError:
            try:
                import polars
            except ImportError:
                raise ImportError("frame: expected pandas or polars to be installed, found neither") from None
            return polars.DataFrame(self.metrics)
        return pandas.DataFrame(self.metrics).set_index("step")

    @property
    def steps(self) -> list[int]:
        """Steps whose rollouts are stored."""
        return _hapo.folder(self.path)[0]

    def rollouts(self, step: int | None = None) -> Iterator[dict[str, Any]]:
        """The stored rollouts of one step or of all, in order, each as a dict."""
        for it in self.steps if step is None else [step]:
            for line in _hapo.rollouts(self.path, it):
                yield json.loads(line)

    @property
    def checkpoints(self) -> dict[int, Path]:
        """The folders of the checkpoints by their steps, in order."""
        return {step: Path(path) for step, path in _hapo.folder(self.path)[1]}

    @property
    def recipe(self) -> str:
        """The resolved recipe as TOML."""
        return Path(_hapo.folder(self.path)[2]).read_text(encoding="utf-8")

    @property
    def gate(self) -> dict[str, Any] | None:
        """The gate's table, as ``Schedule.table`` gives it; None for a method without HAPO's gate."""
        path = Path(_hapo.folder(self.path)[3])
        if not path.exists():
            return None
        return cast("dict[str, Any]", json.loads(path.read_text(encoding="utf-8")))

    def __repr__(self) -> str:
        if self.outcome is None:
            return f"Run({str(self.path)!r})"
        ended = "finished" if self.outcome["finished"] else "stopped"
        return f"Run({str(self.path)!r}, {ended} after step {self.outcome['steps']})"

    def _repr_html_(self) -> str:
        """The run's curves, small."""
        metrics = self.metrics
        shown = [it for it in ("reward/policy_only", "loss", "eval/avg@k", "gate/beta") if it in metrics]
        curves = "".join(f"<td>{html.escape(it)}<br>{_curve(metrics[it])}</td>" for it in shown)
        return f"<b>{html.escape(repr(self))}</b><table><tr>{curves}</tr></table>"


def _curve(values: NDArray[np.float64]) -> str:
    """A line of the numbers that are there, as SVG, with the last of them."""
    at = np.flatnonzero(np.isfinite(values))
    if len(at) == 0:
        return "no numbers"
    low, high = values[at].min(), values[at].max()
    x = 160 * at / max(len(values) - 1, 1)
    y = 40 - 38 * (values[at] - low) / (high - low or 1)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    line = f'<polyline points="{points}" fill="none" stroke="currentColor"/>'
    return f'<svg width="160" height="42">{line}</svg><br>{values[at[-1]]:.4g}'
