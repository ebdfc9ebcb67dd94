"""A run's folder as Python sees it, and what the package is made of."""

from __future__ import annotations

import json
import subprocess
import sys
import types

import numpy as np
import pytest

import hapo
from conftest import ROOT


@pytest.fixture(scope="module")
def run(binary, tmp_path_factory) -> hapo.Run:
    path = tmp_path_factory.mktemp("runs") / "run"
    told = subprocess.run(
        [binary, "train", str(ROOT / "recipes/smoke.toml"), "--run-dir", str(path), "--quiet"],
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    return hapo.Run(path)


def test_a_run_is_read(run: hapo.Run) -> None:
    lines = [json.loads(it) for it in (run.path / "metrics.jsonl").read_text().splitlines()]
    metrics = run.metrics
    assert metrics["step"].tolist() == [it["step"] for it in lines]
    np.testing.assert_array_equal(metrics["reward/mean"], [it["reward/mean"] for it in lines])
    assert run.notes == []
    assert len(run.checkpoints) >= 1
    assert all((it / "model.safetensors").exists() for it in run.checkpoints.values())
    assert "steps" in run.recipe
    if run.steps:
        first = next(run.rollouts(run.steps[0]))
        assert {"problem", "completion", "verdict", "role"} <= set(first)
        assert len(list(run.rollouts())) >= len(list(run.rollouts(run.steps[0])))


def test_a_folder_without_a_run_is_refused(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match="path: expected the folder of a run"):
        hapo.Run(tmp_path)


def test_a_frame_needs_a_library(run: hapo.Run, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ImportError, match="frame: expected pandas or polars to be installed"):
        run.frame()
    table = types.SimpleNamespace(DataFrame=dict)
    monkeypatch.setitem(sys.modules, "polars", table)
    assert list(run.frame()) == list(run.metrics)


def test_the_package_imports_no_framework() -> None:
    code = "import sys, hapo; print(any(it in sys.modules for it in ('torch', 'trl', 'transformers', 'pandas')))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"


def test_everything_exported_is_there_and_documented() -> None:
    for name in hapo.__all__:
        assert name == "__version__" or getattr(hapo, name).__doc__, name
