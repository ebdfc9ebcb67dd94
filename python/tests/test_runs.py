"""A run's folder as Python sees it, and what the package is made of."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import types

import numpy as np
import pytest

import hapo
from conftest import ROOT
from hapo._writer import RunWriter, Sampled, rollout_lines


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
        it = getattr(hapo, name)
        # A type's alias has no documentation.
        assert not (inspect.isclass(it) or inspect.isroutine(it)) or it.__doc__, name


def test_a_run_of_another_engine_is_written_as_the_commands(binary, tmp_path) -> None:
    method = hapo.Method("luffy", 2, schedule=hapo.Schedule(2, 1, turn_off_epoch=9))
    decision = hapo.decide(
        [1.0, 0.0, 0.0, 0.0, 9.0], ["a", "a", "b", "b", None], [2, 3, 2, 2, 1], [False] * 5,
        [False, False, True, True, False], 1, method=method, teacher_lengths=[0, 0, 4, 4, 0],
    )  # fmt: skip
    rows = [
        Sampled(
            f"{uid}\ud83d\n", f"answer {row}", [row], True, log_probs=[float("nan")], teacher="so", teacher_tokens=[7]
        )
        for row, uid in enumerate("aabbc")
    ]
    writer = RunWriter(tmp_path / "run")
    writer.begin({"method": "luffy", "steps": 2, "trl": {"name": 'a "b"\x7f\n', "rate": float("inf"), "on": True}})
    writer.log(1, {"loss": 0.5, "grad_norm": float("nan")})
    lines = rollout_lines(rows, decision)
    writer.rollouts(1, lines)
    run = hapo.Run(tmp_path / "run")
    assert run.metrics["loss"].tolist() == [0.5]
    assert np.isnan(run.metrics["grad_norm"]).tolist() == [True]
    found = [(it["slot"], it["role"], it["verdict"], it.get("advantage")) for it in run.rollouts(1)]
    assert found == [
        (0, "policy", "correct", 0.5), (1, "policy", "wrong", -0.5),
        (0, "replaced", "wrong", None), (0, "teacher", "correct", None), (1, "policy", "wrong", -0.5),
    ]  # fmt: skip
    first = next(run.rollouts(1))
    assert (first["problem"], first["log_probs"]) == ("a\ufffd\n", [])
    told = subprocess.run([binary, "report", str(run.path), "-o", str(tmp_path / "p.html")], capture_output=True)
    assert told.returncode == 0, told.stderr
    with pytest.raises(ValueError, match=r"lines: row 1: unknown variant `judge`"):
        writer.rollouts(2, [lines[0], {**lines[0], "role": "judge"}])
    assert run.steps == [1]
    writer.log(2, {"loss": 0.25})
    (run.path / "metrics.jsonl").open("a").write('{"step": 3, "lo')
    writer.begin({"method": "luffy"}, after=1)
    assert run.metrics["step"].tolist() == [1]
