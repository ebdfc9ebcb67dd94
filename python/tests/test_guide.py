"""The guide's code runs as it is written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from conftest import ROOT


def test_your_method_in_python(tmp_path: Path) -> None:
    text = (ROOT / "docs/guides/your-method-in-python.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    files = [it for it in blocks if it.startswith("# mine.py\n")]
    assert len(files) == 1
    (tmp_path / "mine.py").write_text(files[0])
    code = "\n".join(it for it in blocks if it not in files)
    assert "hapo.train(" in code
    assert "hapo.check_method(" in code
    told = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert [it.split()[1] for it in told.stdout.splitlines()[:4]] == ["holds"] * 4
    assert "fails" not in told.stdout
    assert (tmp_path / "runs/brief/metrics.jsonl").exists()
