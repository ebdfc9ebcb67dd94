"""What the tests share: the repository's files and its binary."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("HAPO_REPOSITORY") or Path(__file__).parents[2])

# A shell starts its background jobs with Ctrl-C ignored, and their children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def binary() -> str:
    """The command `hapo`: HAPO, or the one on the PATH, or the development build."""
    found = os.environ.get("HAPO") or shutil.which("hapo") or str(ROOT / "target/debug/hapo")
    assert Path(found).exists(), "expected the command hapo: set HAPO, or build it"
    return found


@pytest.fixture(scope="session")
def lab() -> str:
    """The command `hapo-lab`: HAPO_LAB, or the development build."""
    found = os.environ.get("HAPO_LAB") or str(ROOT / "target/debug/hapo-lab")
    assert Path(found).exists(), "expected the command hapo-lab: set HAPO_LAB, or build it"
    return found


@pytest.fixture(scope="session")
def cases() -> list[dict]:
    """The recorded losses of PyTorch."""
    import json

    return json.loads((ROOT / "testdata/fixtures/losses/cases.json").read_text())
