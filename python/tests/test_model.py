"""The parts by hand: the loop's weights are those of the example in Rust, and each part is what it says."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hapo
from conftest import ROOT


def weights(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def test_the_loop_has_the_weights_of_the_example_in_rust(tmp_path: Path) -> None:
    example = ROOT / "target/debug/examples/loop"
    if not example.exists():
        pytest.skip("`cargo build -p hapo --example loop` makes it")
    rust = subprocess.run([example, tmp_path / "rust"], capture_output=True, text=True, check=False)
    assert rust.returncode == 0, rust.stderr
    command = [sys.executable, ROOT / "examples/python/loop.py", tmp_path / "python"]
    python = subprocess.run(command, capture_output=True, text=True, check=False)
    assert python.returncode == 0, python.stderr
    assert python.stdout == rust.stdout
    assert weights(tmp_path / "python") == weights(tmp_path / "rust")


@pytest.fixture(scope="module")
def model() -> hapo.Model:
    return hapo.load("builtin:base", context=128, threads=1)


def test_the_parts_of_a_step(model: hapo.Model, tmp_path: Path) -> None:
    rows = hapo.task({"linear": 4}, 4, teacher_coverage=1.0)
    prompts = model.prompts(rows, max_prompt_tokens=32, max_tokens=96)
    assert [it.number for it in prompts] == [0, 1, 2, 3]
    assert [it.answer for it in prompts] == [it["answer"] for it in rows]
    assert all(len(it.teachers) == 1 for it in prompts)
    sampled = model.sample(prompts, 3, max_tokens=48, step=7)
    again = model.sample(prompts[2:], 3, max_tokens=48, step=7)
    assert [it.text for it in sampled[3]] == [it.text for it in again[1]]
    other = model.sample(prompts[2:], 3, max_tokens=48, step=8)
    assert [it.text for it in sampled[3]] != [it.text for it in other[1]]
    rollout = sampled[0][0]
    assert model.text(rollout.tokens).startswith(rollout.text)
    score = model.log_probs([prompts[0].tokens], [rollout.tokens], top=2)[0]
    np.testing.assert_allclose(score.log_probs, rollout.log_probs, atol=1e-4)
    assert len(score.top) == len(rollout.tokens)
    best = [row[0] for row in score.top]
    assert all(log_prob >= own - 1e-4 for (_, log_prob), own in zip(best, score.log_probs, strict=True))
    assert (score.entropies >= 0).all()

    method = hapo.Method("grpo", 3)
    group = hapo.group(method, prompts[0], sampled[0], [1.0, 0.0, 0.0], step=7)
    assert (group.successes, group.roles, group.prompt) == (1, ["policy"] * 3, 0)
    assert [it[0].advantage for it in method.credit(group)] == (np.array([1, 0, 0]) - 1 / 3).tolist()
    loss = hapo.Loss("token-mean")
    before = model.log_probs([prompts[0].tokens], [rollout.tokens])[0].log_probs.sum()
    numbers = model.gradient([(prompts[0], group, [1.0, None, None])], loss)
    assert numbers["policy/ratio_mean"] == pytest.approx(1.0, abs=1e-4)
    assert model.update(1e-4) > 0
    after = model.log_probs([prompts[0].tokens], [rollout.tokens])[0].log_probs.sum()
    assert after > before
    model.save(tmp_path / "saved")
    saved = hapo.load(tmp_path / "saved", context=128, threads=1, template="chatml")
    reloaded = saved.log_probs([prompts[0].tokens], [rollout.tokens])[0].log_probs
    assert reloaded.tolist() == model.log_probs([prompts[0].tokens], [rollout.tokens])[0].log_probs.tolist()


def test_what_is_wrong_with_a_part_is_named(model: hapo.Model) -> None:
    prompts = model.prompts([{"problem": "1 + 1 = ?", "answer": "2"}])
    rollouts = model.sample(prompts, 2, max_tokens=4)[0]
    method = hapo.Method("grpo", 2)
    with pytest.raises(ValueError, match=r"rewards: .*expected .*2"):
        hapo.group(method, prompts[0], rollouts, [1.0], step=1)
    with pytest.raises(ValueError, match="rewards: 1 is NaN, expected a finite number"):
        hapo.group(method, prompts[0], rollouts, [1.0, float("nan")], step=1)
    group = hapo.group(method, prompts[0], rollouts, [1.0, 0.0], step=1)
    with pytest.raises(hapo.Error, match="expected credit for 2 members, got 3"):
        model.gradient([(prompts[0], group, [0.0] * 3)], hapo.Loss("token-mean"))
    with pytest.raises(ValueError, match="normaliser: unknown variant `mean`"):
        model.gradient([(prompts[0], group, [0.0] * 2)], hapo.Loss("mean"))
    with pytest.raises(ValueError, match="temperature: expected"):
        model.sample(prompts, 1, temperature=-1.0)
    with pytest.raises(hapo.Error, match=r"rows\.jsonl:1: answer: expected a gold answer") as row:
        model.prompts([{"problem": "1 + 1 = ?"}])
    assert row.value.row == 1
    with pytest.raises(hapo.Error, match="absent"):
        hapo.load("absent")
    with pytest.raises(ValueError, match="step: expected a number from 1"):
        hapo.order(0, 8, 4)
