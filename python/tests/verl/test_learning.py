"""``scripts/paper`` from end to end: a run of the built-in task that learns, its checkpoint served and evaluated."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import small

pytest.importorskip("verl.trainer")
from cpu_environment import environment

import hapo

ROW = "hapo-method"
RECIPE = {
    "data.teacher_coverage": 1,
    "data.prompts": 320,
    "sampling.prompts_per_step": 32,
    "optim.mini_batch_prompts": 32,
    "optim.lr": "2e-4",
    "steps": 20,
}
"""An epoch is ten steps, and the teacher extinct from the 16th on."""


def of_the_last_and_first_five(run: hapo.Run) -> tuple[float, float]:
    rewards = run.metrics["reward/policy_only"]
    return float(rewards[-5:].mean()), float(rewards[:5].mean())


def test_a_run_learns_as_the_command_does(binary, tmp_path) -> None:
    sets = [part for key, value in RECIPE.items() for part in ("--set", f"{key}={value}")]
    own = tmp_path / "own"
    command = [binary, "train", f"{small.ROOT}/recipes/mini/{ROW}.toml", "--run-dir", own, "--quiet", *sets]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    # What scripts/paper says of a GPU, said again of a CPU.
    of_verl = [
        *small.on_a_cpu(), "actor_rollout_ref.model.enable_gradient_checkpointing=False",
        "actor_rollout_ref.actor.use_dynamic_bsz=False", "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=False",
    ]  # fmt: skip
    paper = [
        sys.executable, small.ROOT / "scripts/paper", "--size", "mini", "--rows", ROW, "--hapo", binary, "--gpus", "1",
        "--out", tmp_path / "paper", *sets, *(part for it in of_verl for part in ("--option", it)),
        "--server", f"{binary} serve --model {{model}} --served-model-name {{name}} --port {{port}}",
        "--eval-option=--problems=20",
    ]  # fmt: skip

    def run(what: str) -> str:
        environ = {**os.environ, **environment(1)}
        told = subprocess.run([*paper, what], capture_output=True, text=True, env=environ, timeout=1200, cwd=tmp_path)
        (tmp_path / f"{what}.txt").write_text(told.stdout + told.stderr)
        assert told.returncode == 0, (told.stdout + told.stderr)[-6000:]
        return told.stdout

    run("train")
    assert "stage 1 is done" in run("train")
    ours, theirs = hapo.Run(tmp_path / f"paper/{ROW}/stage-1/run"), hapo.Run(own)
    last, first = of_the_last_and_first_five(ours)
    print(json.dumps({"verl": ours.metrics["reward/policy_only"].tolist(),
                      "hapo": theirs.metrics["reward/policy_only"].tolist()}))  # fmt: skip
    assert last >= first + 0.15
    assert last == pytest.approx(of_the_last_and_first_five(theirs)[0], abs=0.1)
    assert ours.metrics["gate/success_limit"].tolist() == theirs.metrics["gate/success_limit"].tolist()
    assert ours.gate["extinct_at_step"] == theirs.gate["extinct_at_step"] <= RECIPE["steps"]

    run("eval")
    table = run("tables")
    assert "## Table 2, the text's m = 0" in table
    assert "| + Hindsight + Gating + Annealing |" in table
    assert "figure-2: none of its rows has run" in run("figures")
