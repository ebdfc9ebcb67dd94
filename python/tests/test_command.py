"""The command is the extension module's: exit codes, signals and closed pipes are those of the binary."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import ROOT

HAPO = [sys.executable, "-m", "hapo"]


def told(*arguments: str, **how) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*HAPO, *arguments], capture_output=True, text=True, check=False, **how)


def test_exit_codes_and_streams_are_the_binarys(tmp_path: Path) -> None:
    version = told("--version")
    assert (version.returncode, version.stderr) == (0, "")
    assert version.stdout.startswith("hapo 0.")
    usage = told("train")
    assert (usage.returncode, usage.stdout) == (2, "")
    assert "Usage: hapo train" in usage.stderr
    missing = told("train", "absent.toml", cwd=tmp_path)
    assert missing.returncode == 2
    assert missing.stderr.startswith("error: cannot read absent.toml")
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"gold": "2", "pred": "\\\\boxed{2}"}\n')
    graded = told("grade", str(rows))
    assert (graded.returncode, json.loads(graded.stdout)["verdict"]) == (0, "correct")


def test_a_closed_pipe_is_no_error() -> None:
    closed = subprocess.run(
        f"{sys.executable} -m hapo list | head -1; echo ${{PIPESTATUS[0]}}",
        shell=True, executable="/bin/bash", capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert closed.stdout.splitlines()[-1] == "0"
    assert closed.stderr == ""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_a_second_ends_it(tmp_path: Path, number: int) -> None:
    run = tmp_path / "run"
    arguments = [
        "train",
        str(ROOT / "recipes/smoke.toml"),
        "--run-dir",
        str(run),
        "--no-preflight",
        "--set",
        "steps=99",
    ]
    child = subprocess.Popen([*HAPO, *arguments, "--log", "json"], stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    while '"event":"step"' not in child.stderr.readline():
        assert child.poll() is None
    child.send_signal(number)
    child.stderr.read()
    assert child.wait() == 0
    kept = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["step"]
    assert any((run / "checkpoints").glob(f"step-*{kept}"))
    child = subprocess.Popen([*HAPO, *arguments, "--resume", "--log", "json"], stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    while '"event":"step"' not in child.stderr.readline():
        assert child.poll() is None
    child.send_signal(number)
    time.sleep(0.05)
    child.send_signal(number)
    child.stderr.read()
    # A step may end between the two.
    assert child.wait() in (130, 0)


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_ctrl_c_ends_a_command_that_has_nothing_to_save(tmp_path: Path) -> None:
    child = subprocess.Popen([*HAPO, "grade"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    time.sleep(1.0)
    os.kill(child.pid, signal.SIGINT)
    assert child.wait(timeout=10) == -signal.SIGINT


def test_nvidias_packages_are_named_unless_the_environment_names_them(tmp_path: Path) -> None:
    folder = tmp_path / "nvidia" / "cublas" / "lib"
    folder.mkdir(parents=True)
    program = "import hapo, os; print(os.environ['HAPO_CUDA_LIBRARIES'])"
    outer = {name: value for name, value in os.environ.items() if name != "HAPO_CUDA_LIBRARIES"}
    for set_before, expected in [({}, str(folder)), ({"HAPO_CUDA_LIBRARIES": "own"}, "own")]:
        how = {**outer, "PYTHONPATH": str(tmp_path), **set_before}
        found = subprocess.run([sys.executable, "-c", program], env=how, capture_output=True, text=True, check=True)
        assert expected in found.stdout.strip().split(os.pathsep)
