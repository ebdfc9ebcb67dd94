"""A verl run as a run folder of the command: ``hapo report`` and ``hapo.Run`` read it."""

from __future__ import annotations

import math
import numbers
from typing import Any

from omegaconf import OmegaConf

import hapo
from hapo._decide import Decision, in_f32
from hapo._writer import RunWriter, Sampled, rollout_lines
from hapo.verl.rows import Row
from hapo.verl.settings import Settings, _flat

SAME = {
    "actor/pg_loss": "policy/loss",
    "actor/hapo/teacher_loss": "teacher/loss",
    "actor/pg_clipfrac": "policy/clip_fraction",
    "actor/grad_norm": "grad_norm",
    "actor/lr": "lr",
    "timing_s/step": "time/step",
}
"""Numbers of verl's log by the command's names."""


class HapoRunWriter:
    """Writes the folder of one run; its steps are verl's."""

    def __init__(self, settings: Settings, config: Any) -> None:
        assert settings.run_dir is not None
        self.settings, self.config = settings, config
        self.writer = RunWriter(settings.run_dir)

    def begin(self, schedule: hapo.Schedule | None, steps: int, *, after: int) -> None:
        """Writes recipe and gate, and cuts off what a killed run wrote after its last checkpoint."""
        recipe: dict[str, Any] = {"method": self.settings.method, "steps": steps, "seed": self.settings.seed}
        reward = (self.config.get("reward") or {}).get("custom_reward_function") or {}
        if str(reward.get("path", "")).startswith("pkg://hapo"):
            # The report asks the grader again why it decided.
            recipe["data"] = {"grader": "math", "extraction": "announced", "truncated": self.settings.truncated}
        plain = self.config if isinstance(self.config, dict) else OmegaConf.to_container(self.config)
        options = {key: it for key, it in sorted(_flat(plain)) if isinstance(it, str | int | float)}
        gate = schedule.table(steps) if schedule is not None else None
        self.writer.begin({**recipe, "verl": {f'"{key}"': it for key, it in options.items()}}, gate, after=after)

    def sampled(self, step: int, rows: list[Row], decision: Decision, tokenizer: Any) -> None:
        """Stores what was sampled in a step, before the teacher's tokens take their slots."""
        every = self.settings.rollouts_every
        if every <= 0 or step % every:
            return
        prompts = {it.uid: tokenizer.decode(it.prompt) for it in rows}
        kept = [
            Sampled(
                problem=it.problem,
                completion=tokenizer.decode(it.tokens, skip_special_tokens=True),
                tokens=it.tokens,
                ended=not it.truncated,
                answer=it.answer,
                id=it.index,
                rendered=prompts[it.uid],
                prompt_tokens=it.prompt,
                log_probs=it.log_probs,
                teacher=tokenizer.decode(it.teacher, skip_special_tokens=True),
                teacher_tokens=it.teacher,
            )
            for it in rows
        ]
        self.writer.rollouts(step, rollout_lines(kept, decision, success_at=in_f32(self.settings.success_at)))

    def log(self, step: int, metrics: dict[str, Any]) -> None:
        """Appends the numbers of a step; those of verl keep their names where the command has none."""
        named = {}
        # Ours last: verl's lengths are those after the teacher entered.
        for key, value in sorted(metrics.items(), key=lambda it: it[0].startswith("hapo/")):
            if isinstance(value, numbers.Real) and math.isfinite(float(value)):
                named[SAME.get(key, key.removeprefix("hapo/"))] = float(value)
        self.writer.log(step, named)
