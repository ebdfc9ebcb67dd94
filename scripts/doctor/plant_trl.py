#!/usr/bin/env python3
"""Runs of the real TRL on a CPU with one fault each, and healthy ones: what `hapo doctor` is held against.

    plant_trl.py OUT [NAME...]

Needs the environment of .ci/trl. Each run is 20 steps of the built-in model and leaves what TRL leaves: checkpoints
with trainer_state.json and training_args.bin, completions as Parquet. Its data lie beside them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import rewards
from problems import Problem, equations

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "models/base"
STEPS = 20
COMMON: dict[str, Any] = {
    "use_cpu": True, "bf16": False, "per_device_train_batch_size": 32, "num_generations": 8, "logging_steps": 1,
    "max_completion_length": 64, "report_to": [], "save_strategy": "steps", "save_steps": STEPS, "max_steps": STEPS,
    "disable_tqdm": True, "gradient_checkpointing": False, "learning_rate": 2e-4, "log_completions": True,
    "lr_scheduler_type": "constant", "num_completions_to_print": 0, "temperature": 1.0,
}  # fmt: skip

TEACHER = {"kind": "hapo", "turn_off_epoch": "3", "method": "luffy"}

FAULTS: dict[str, dict[str, Any]] = {
    # A model that nobody asks for a box: the built-in one's token of a box is never drawn.
    "no-box": {"generation_kwargs": {"suppress_tokens": [7]}},
    "reward-raises": {"reward": rewards.nothing_if_it_raises},
    "wrong-pad": {"pad": "<|im_end|>"},
    "accumulation": {"loss_type": "bnpo", "per_device_train_batch_size": 8, "gradient_accumulation_steps": 4},
    "constant-groups": {"digits": 7},
    "short-limit": {"max_completion_length": 8},
    "truncated-gold": {"gold": 2},
    "substring-grader": {"digits": 1, "reward": rewards.substring},
    "no-teacher": {**TEACHER, "max_completion_length": 24},
    "high-rate": {"learning_rate": 2e-2},
    "other-temperature": {"generation_kwargs": {"temperature": 0.3}},
    "eval-in-train": {"leak": 12},
    "no-template": {"kind": "plain"},
}
HEALTHY: dict[str, dict[str, Any]] = {
    "healthy-dapo": {},
    "healthy-kl": {"beta": 0.02, "loss_type": "dr_grpo", "scale_rewards": "none"},
    "healthy-accumulated": {"loss_type": "dapo", "per_device_train_batch_size": 8, "gradient_accumulation_steps": 4},
    "healthy-teacher": {**TEACHER, "max_completion_length": 96},
    "healthy-cooler": {"temperature": 0.8, "lr_scheduler_type": "linear"},
}


def rows_of(case: dict[str, Any]) -> tuple[list[Problem], list[Problem]]:
    """Training and evaluation problems; the fault, if it is in the data."""
    digits = case.pop("digits", 3)
    # All the equations of one digit are few.
    rows = equations(64 if digits == 1 else 96, digits, seed=7)
    train, held_out = rows[:-24], rows[-24:]
    if leak := case.pop("leak", 0):
        held_out[:leak] = train[:leak]
    if length := case.pop("gold", None):
        train = [{**it, "answer": it["answer"][:length]} for it in train]
    return train, held_out


def run(case: dict[str, Any], out: Path) -> None:
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    case = dict(case)
    train, held_out = rows_of(case)
    out.mkdir(parents=True)
    for name, rows in (("train", train), ("eval", held_out)):
        (out / f"{name}.jsonl").write_text("".join(json.dumps(it) + "\n" for it in rows))
    kind, pad, grade = case.pop("kind", "chat"), case.pop("pad", None), case.pop("reward", rewards.boxed)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    if pad is not None:
        tokenizer.pad_token = pad

    def shaped(rows: list[Problem]) -> Dataset:
        def prompt(text: str) -> Any:
            return text if kind == "plain" else [{"role": "user", "content": text}]

        columns = [{"prompt": prompt(it["problem"]), "answer": it["answer"]} for it in rows]
        if kind == "hapo":
            columns = [{**it, "teacher": row["teacher"]} for it, row in zip(columns, rows, strict=True)]
        return Dataset.from_list(columns)

    trainer, config = GRPOTrainer, GRPOConfig
    if kind == "hapo":
        from hapo.trl import HapoGRPOConfig, HapoGRPOTrainer

        trainer, config = HapoGRPOTrainer, HapoGRPOConfig
    arguments = config(output_dir=str(out), **{**COMMON, **case})
    trainer(
        str(MODEL), rewards.for_trl(grade), arguments, shaped(train), shaped(held_out), processing_class=tokenizer
    ).train()


def main(out: Path, names: list[str]) -> None:
    for name, case in {**FAULTS, **HEALTHY}.items():
        if (not names or name in names) and not (out / name).exists():
            print(f"trl {name}", flush=True)
            run(case, out / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
