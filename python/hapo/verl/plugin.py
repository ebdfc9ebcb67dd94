"""Registers the trainer in the processes of verl that import its trainers, and costs the others nothing.

verl loads this module by the entry point ``verl.plugins`` while it is itself being imported: too early for anything
that imports verl.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, then: Callable[[], object]) -> None:
        self.name, self.then = name, then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            spec = finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _Loader(spec.loader, self.then)
                return spec
        return None


class _Loader(importlib.abc.Loader):
    def __init__(self, inner: importlib.abc.Loader, then: Callable[[], object]) -> None:
        self.inner, self.then = inner, then

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.inner.exec_module(module)
        self.then()


def after(name: str, then: Callable[[], object]) -> None:
    """Does something once a module is imported; at once if it is."""
    if name in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _Finder(name, then))


def register() -> None:
    """Imports the trainer; without it verl runs as before, and this is said."""
    try:
        importlib.import_module("hapo.verl.trainer")
    except (ImportError, RuntimeError) as problem:
        warnings.warn(f"the trainer hapo_sync is not registered: {problem}", stacklevel=2)


after("verl.trainer.ppo.v1.trainer_sync", register)
