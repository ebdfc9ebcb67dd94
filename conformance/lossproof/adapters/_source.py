"""Engines whose package cannot be imported whole: empty modules in place of what is missing, and single functions."""

from __future__ import annotations

import ast
import sys
import types
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any


class _Absent(MetaPathFinder, Loader):
    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        absent = any(name == it or name.startswith(f"{it}.") for it in self.names)
        return ModuleSpec(name, self, is_package=True) if absent else None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        module.__getattr__ = _nothing  # type: ignore[method-assign]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


class Nothing:
    """Stands for every name of an absent module."""

    def __class_getitem__(cls, _: Any) -> type:
        return cls


def _nothing(attribute: str) -> Any:
    if attribute.startswith("__"):
        raise AttributeError(attribute)
    return Nothing


def absent(*names: str) -> None:
    """Imports of these modules, and of all below them, give an empty module whose names are all `Nothing`. They need a
    GPU or are not installed, and no function that is called uses them."""
    sys.meta_path.insert(0, _Absent(names))


def function_of(path: str, name: str, names: dict[str, Any]) -> Any:
    """A function compiled from its file, where its package cannot be imported on this machine."""
    tree = ast.parse(Path(path).read_text(), path)
    tree.body = [it for it in tree.body if isinstance(it, ast.FunctionDef) and it.name == name]
    exec(compile(tree, path, "exec", flags=annotations.compiler_flag), names)
    return names[name]


def commit_of(file: str) -> str:
    """The commit of a source: the end of the folder's name that `.ci/engines` gave it."""
    return next(it.rpartition("@")[2] for it in Path(file).parts if "@" in it)
