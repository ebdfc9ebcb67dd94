"""Four methods in Python with the bits of their Rust files: GRPO, LUFFY, UFT, and replay of earlier successes.

python examples/python/methods.py [RECIPE]     # trains each for a few steps and prints its reward
"""

from __future__ import annotations

import math
import sys
from typing import Any

import hapo


@hapo.method("my-grpo")
class Grpo:
    """``crates/hapo-core/src/methods/grpo.rs``."""

    def credit(self, group: hapo.Group) -> hapo.Credit:
        return group.rewards - hapo.mean(group.rewards)


@hapo.method("my-luffy", settings={"weight": 1.0, "d": 0.1})
class Luffy:
    """``luffy.rs``: the teacher in the first slot of every group."""

    plan = hapo.Plan(gate="always", slot="fixed", can_be_gated=True)

    def __init__(self, weight: float = 1.0, d: float = 0.1) -> None:
        self.teacher = hapo.Teacher(weight, "luffy", d)

    def credit(self, group: hapo.Group) -> hapo.Credit:
        advantages = group.rewards - hapo.mean(group.rewards)
        return [self.teacher if role == "teacher" else it for role, it in zip(group.roles, advantages, strict=True)]


@hapo.method("my-uft", settings={"segments": 5, "low": 0.05, "high": 0.95, "steps": 300, "weight": 0.001})
class Uft:
    """``uft.rs``: every rollout continues a first part of the teacher's trajectory, which is imitated once a group."""

    plan = hapo.Plan(teacher_apart=True)
    needs = hapo.Needs(prefixes=True)

    def __init__(self, segments: int, low: float, high: float, steps: int, weight: float) -> None:
        self.segments, self.low, self.high, self.steps, self.weight = segments, low, high, steps, weight

    def grow(self, group: hapo.Sampled) -> hapo.Part | None:
        if group.part > 0:
            return None
        if not group.teachers or group.step > self.steps:
            return hapo.Part(group.size)
        # The end token is never shown.
        tokens = len(group.teachers[0]) - 1
        segments = min(self.segments, tokens)
        fallen = 0.5 * (1.0 + math.cos(math.pi * group.step / self.steps))
        share = self.low + (self.high - self.low) * fallen
        rng = group.rng()
        shown = sum(rng.uniform() < share for _ in range(segments))
        return hapo.Part(group.size, teacher_prefix=round(shown / segments * tokens) if segments else 0)

    def credit(self, group: hapo.Group) -> hapo.Credit:
        spans: list[list[hapo.Policy | hapo.Teacher]] = []
        imitated = False
        for prefix, advantage in zip(group.prefixes, group.rewards - hapo.mean(group.rewards), strict=True):
            spans.append([hapo.Policy(advantage)])
            if prefix > 0 and not imitated:
                spans[-1].append(hapo.Teacher(self.weight, "srft", tokens=(0, int(prefix))))
            imitated |= prefix > 0
        return spans


@hapo.method("my-replay")
class Replay:
    """``injection/replay.rs`` behind a gate that stays open: a failed group gets the prompt's latest own success."""

    def mix(self, group: hapo.Sampled) -> list[hapo.Entry]:
        kept = group.memory.get(str(group.prompt))
        return [hapo.Entry(group.slot, **kept)] if kept and group.successes == 0 else []

    def remember(self, memory: dict[str, Any], groups: list[hapo.Group], step: int) -> dict[str, Any]:
        for group in groups:
            for index, role in enumerate(group.roles):
                if role == "policy" and group.is_success[index] and group.ended[index]:
                    memory[str(group.prompt)] = {
                        "tokens": group.tokens[index],
                        "log_probs": group.log_probs[index],
                        "reward": group.rewards[index],
                        "step": step,
                    }
                    break
        return memory

    def credit(self, group: hapo.Group) -> hapo.Credit:
        advantages = group.rewards - hapo.mean(group.rewards)
        return [
            hapo.Policy(it, ratio="rescored") if role == "replayed" else it
            for role, it in zip(group.roles, advantages, strict=True)
        ]


def main() -> None:
    recipe = sys.argv[1] if len(sys.argv) > 1 else "builtin:first"
    for method in (Grpo, Luffy, Uft, Replay):
        run = hapo.train(recipe, method=method, hapo=None, run_dir=f"runs/{method.__name__.lower()}", quiet=True)
        print(f"{method.__name__}: reward {run.metrics['reward/policy_only'][-1]:.3f}")


if __name__ == "__main__":
    main()
