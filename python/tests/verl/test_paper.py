"""``scripts/paper``: what it makes of each row is a configuration that verl and the trainer take."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import small

pytest.importorskip("verl.trainer")

import hapo.verl.settings as settings
from hapo import ends

ROWS = {
    "3b": ["grpo", "sft", "sft-grpo", "luffy", "luffy-hapo", "srft", "srft-hapo", "trapo", "hapo-table1", "hindsight",
           "hapo-method", "gated-m0", "annealed-03", "luffy-hapo-method", "srft-hapo-method", "luffy-original",
           "stability-open", "trapo-gamma0-0.7"],
    "7b": ["grpo", "luffy", "gated-m0", "hapo-method"],
    "mini": ["grpo", "sft-grpo", "hapo-method"],
}  # fmt: skip


def commands(size: str, rows: list[str], binary: str, out: Path) -> dict[str, list[list[str]]]:
    """The commands of rows, stage by stage."""
    ends.name(small.ROOT / "testdata/fixtures/models/qwen-shaped", out / "model")
    told = subprocess.run(
        [sys.executable, small.ROOT / "scripts/paper", "commands", "--size", size, "--rows", ",".join(rows),
         "--hapo", binary, "--out", out],
        capture_output=True, text=True, check=True, cwd=out,
    )  # fmt: skip
    found: dict[str, list[list[str]]] = {}
    for line in told.stdout.splitlines():
        if line.startswith("# "):
            stages = found.setdefault(line.removeprefix("# "), [])
        elif line:
            stages.append(shlex.split(line))
    return found


def compose(command: list[str]):
    """verl's configuration of a command."""
    import hydra

    name = "sft_trainer_engine" if "verl.trainer.sft_trainer" in command else "ppo_trainer"
    options = [it for it in command if "=" in it and not it.startswith("-")]
    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        return hydra.compose(name, options)


@pytest.mark.parametrize("size", ROWS)
def test_every_rows_command_is_one_that_verl_takes(size, binary, tmp_path) -> None:
    gates = {}
    found = commands(size, ROWS[size], binary, tmp_path)
    assert {name: len(it) for name, it in found.items()} == {it: 1 + (it == "sft-grpo") for it in ROWS[size]}
    for name, stages in found.items():
        config = compose(stages[-1])
        if name == "sft":
            assert config.trainer.total_training_steps == 500
            continue
        compose(stages[0])
        # What a stage before it would have written.
        config.actor_rollout_ref.model.path = str(tmp_path / "model")
        it = settings.check(config)
        schedule = it.schedule(config.actor_rollout_ref.rollout.n, 62)
        gates[name] = None if schedule is None else [schedule.success_limit(step) for step in (1, 186)]
    assert gates["hapo-method"] == [0, -1]
    if size == "3b":
        assert gates["luffy"] is None
        assert (gates["luffy-hapo"], gates["trapo-gamma0-0.7"]) == ([1, 1], [5, 5])
        assert gates["hindsight"] == [8, 8]
        # The pairs of Table 2 differ in annealing alone.
        assert (gates["gated-m0"], gates["annealed-03"]) == ([0, 0], [1, -1])
        assert gates["luffy-hapo-method"] == gates["srft-hapo-method"] == gates["hapo-method"]


def test_rows_that_verl_cannot_train_are_refused_by_name(binary, tmp_path) -> None:
    refused = {
        "srft-entropy": r"hapo\.srft\.weights: weights by a step's entropy",
        "trapo-original": r"hapo\.trapo\.prefixes: prefixes that the policy continues",
        "hpt": r"hapo\.method: its teacher has a mean of its own",
        "chord-mu": r"hapo\.method: its teacher has a mean of its own",
    }
    for name, (command,) in commands("mini", list(refused), binary, tmp_path).items():
        with pytest.raises(ValueError, match=refused[name]):
            settings.check(compose(command))
