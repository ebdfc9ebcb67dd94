#!/usr/bin/env python3
"""What rl-doctor (`rldoctor` 0.2.0), rlvr-audit 0.1.0 and rewardlint 0.1.0 say of the planted runs, a line for each.

    peers.py OUT_OF_PLANT_TRL OUT_OF_PLANT_VERL

Runs in an environment that has the three. rl-doctor is given the trainer's state or the file logger's lines, as its
page says; rlvr-audit the rewards of each group; rewardlint the reward functions. Findings from a warning on are said.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent


def told(*command: str) -> str:
    return subprocess.run([str(BIN / command[0]), *command[1:]], capture_output=True, text=True, timeout=300).stdout


def rl_doctor(log: Path) -> list[str]:
    report = json.loads(told("rl-doctor", "diagnose", str(log), "--format", "json") or "{}")
    return [it["detector"] for it in report.get("findings", []) if it["severity"] in ("WARNING", "CRITICAL")]


def groups(folder: Path) -> Iterator[dict[str, object]]:
    """The rewards of each group of a verl run's dumps."""
    for dump in sorted((folder / "rollouts").glob("*.jsonl")):
        rewards: dict[str, list[float]] = {}
        for line in dump.read_text().splitlines():
            row = json.loads(line)
            rewards.setdefault(row["input"], []).append(row["score"])
        yield from ({"prompt_id": f"{dump.stem} {prompt}", "rewards": it} for prompt, it in rewards.items())


def rlvr_audit(folder: Path) -> str:
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(json.dumps(it) + "\n" for it in groups(folder))
        file.flush()
        text = told("rlvr-audit", "inspect", "--file", file.name)
    return str(json.loads(text or "{}").get("verdict_histogram"))


def main(trl: Path, verl: Path) -> None:
    for folder in sorted(trl.iterdir()):
        print(f"trl/{folder.name}: rl-doctor {rl_doctor(folder / 'checkpoint-20/trainer_state.json')}")
    for folder in sorted(it for it in verl.iterdir() if (it / "metrics.jsonl").exists()):
        print(f"verl/{folder.name}: rl-doctor {rl_doctor(folder / 'metrics.jsonl')}, rlvr-audit {rlvr_audit(folder)}")
    for name in ("boxed", "raises", "zero_if_it_raises", "substring"):
        text = told("rewardlint", "audit", f"{HERE}/rewards.py:{name}", "--format", "json")
        print(f"rewardlint {name}: {json.loads(text)['headline'].split(': ', 1)[-1]}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
