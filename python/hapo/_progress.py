"""What a run says while it goes: a line that is written again in a terminal and in a notebook, else some lines."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from hapo._reward_call import end_copy

OnStep = Callable[[int, Mapping[str, float]], object]


class Progress:
    """Follows a run, and hands each step to ``on_step``."""

    def __init__(self, on_step: OnStep | None, quiet: bool) -> None:
        self._on_step = on_step
        self._quiet = quiet
        self._handle = None if quiet else _notebook_handle()
        self._rewrites = self._handle is not None or sys.stderr.isatty()
        self._name, self._steps, self._begun, self._last = "run", 1, time.monotonic(), ""

    def begin(self, name: str, steps: int) -> None:
        self._name, self._steps, self._begun, self._last = name, steps, time.monotonic(), ""

    def step(self, step: int, text: str) -> bool:
        metrics: dict[str, float] = json.loads(text)
        reward, loss = metrics.get("reward/policy_only"), metrics.get("loss", float("nan"))
        seconds = time.monotonic() - self._begun
        found = f"loss {loss:.4f}" if reward is None else f"reward {reward:.3f}"
        self._last = f"{self._name} {step}/{self._steps} {found}, {seconds:.0f} s"
        due = step == self._steps or step % max(self._steps // 10, 1) == 0
        if self._rewrites or due:
            self._show(self._last, end=step == self._steps)
        if self._on_step is None:
            return False
        process = os.getpid()
        try:
            return self._on_step(step, metrics) is True
        finally:
            end_copy(process, "on_step")

    def within(self, doing: str, share: float) -> None:
        if self._rewrites:
            self._show(f"{self._last or self._name}  {doing} {share:.0%}", end=False)

    def note(self, text: str) -> None:
        if not self._quiet:
            start = "\r\x1b[K" if self._rewrites and self._handle is None else ""
            print(f"{start}{text}", file=sys.stderr, flush=True)

    def _show(self, text: str, end: bool) -> None:
        if self._quiet:
            return
        if self._handle is not None:
            self._handle.update({"text/plain": text}, raw=True)
        elif self._rewrites:
            print(f"\r\x1b[K{text}", end="\n" if end else "", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)


def _notebook_handle() -> Any:
    """A line of a notebook's cell that can be written again; None outside a notebook."""
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    display = sys.modules["IPython"].display.display

    return display({"text/plain": ""}, raw=True, display_id=True)
