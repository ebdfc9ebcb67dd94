"""The page *Check your own trainer in fifteen minutes*, followed literally."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[1]
DROPPED = ("        loss.backward()\n", "        optimiser.zero_grad()\n        loss.backward()\n")
"""Only the last micro-batch reaches the optimiser."""
OLD = "        loss = loss_of(policy, rollouts[start : start + settings.micro_batch], settings, n_tokens)\n"
NEW = """        part = rollouts[start : start + settings.micro_batch]
        n_micro = sum(len(it.tokens) for it in part)
        loss = loss_of(policy, part, settings, n_micro) * len(part) / len(rollouts)
"""


def test_the_toy_passes_and_the_planted_bug_is_found(monkeypatch):
    pytest.importorskip("torch")
    if not (HERE / "toy").is_dir():
        pytest.skip("only in the repository")
    monkeypatch.syspath_prepend(str(HERE))
    import lossproof
    from toy import adapter, trainer

    records = {it["id"]: it for it in lossproof.run(adapter.step) if it["verdict"] != "n/a"}
    assert len(records) == 7
    assert all(it["verdict"] in ("exact", "equal") for it in records.values())
    source = Path(trainer.__file__).read_text()
    for (old, new), r in (((OLD, NEW), 0.628), (DROPPED, 0.978)):
        assert source.count(old) == 1
        module = type(sys)("planted")
        sys.modules["planted"] = module
        exec(source.replace(old, new), module.__dict__)
        monkeypatch.setattr(adapter, "trainer", module)
        found = lossproof.run(adapter.train_step, [lossproof.load("agg/token-mean/ppo")])[0]
        assert found["verdict"] == "cut-dependent"
        assert found["cuts"]["6x1"]["r"] == pytest.approx(r, abs=5e-4)
    page = (HERE / "fifteen-minutes.md").read_text()
    assert all(f"+{line}" in page for line in NEW.splitlines())


def test_an_adapter_in_a_package_of_the_current_folder_is_found(monkeypatch, tmp_path):
    from lossproof.run import adapter

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "engine.py").write_text("def step(case, cut):\n    return None\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [it for it in sys.path if it not in ("", str(tmp_path))])
    assert adapter("mine.engine:step")[0].__file__ == str(tmp_path / "mine" / "engine.py")
