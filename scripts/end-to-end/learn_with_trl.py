"""The built-in task, learned by `hapo train` and by HapoGRPOTrainer from the same recipe: docs/results/trl.md.

Needs the wheel's package, TRL (python/tests/trl-requirements.txt) and the command hapo. From the repository:

    OMP_NUM_THREADS=1 python scripts/end-to-end/learn_with_trl.py --hapo target/release/hapo --out runs/trl

Prompts, answers and traces are read from a run of one epoch with the teacher in every group that has one, so that the
trainer in TRL reads what the command reads, in its order. Prints the page's tables.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import AutoTokenizer

import hapo
from hapo.trl import HapoGRPOConfig, HapoGRPOTrainer

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "recipes/quickstart/trapo-hapo.toml"
EVERYWHERE = ROOT / "recipes/mini/luffy.toml"
MODEL = ROOT / "models/base"
GROUP, PROMPTS, UPDATES, LONGEST = 8, 32, 2, 96
STEPS_PER_EPOCH = 30
BINS = 5


def command(hapo_: str, recipe: Path, run: Path, *settings: str) -> hapo.Run:
    """A run by the command."""
    keys = [it for setting in settings for it in ("--set", setting)]
    subprocess.run(
        [hapo_, "train", str(recipe), "--run-dir", str(run), "--quiet", "--threads", "1", *keys], check=True, cwd=ROOT
    )
    return hapo.Run(run)


def problems(run: hapo.Run) -> list[dict[str, Any]]:
    """The prompts of an epoch in the order of the run, with their traces."""
    rows: dict[str, dict[str, Any]] = {}
    for line in run.rollouts():
        row = rows.setdefault(line["id"] or str(line["prompt_id"]), {"answer": line["answer"], "teacher": ""})
        row["id"] = line["id"]
        row["tokens"] = line["prompt_tokens"]
        if line.get("rendered"):
            row["prompt"] = line["rendered"]
        if line["role"] == "teacher":
            row["teacher"] = line["completion"]
    return list(rows.values())


class InOrder(HapoGRPOTrainer):
    """Takes the prompts in the order of the data set, as the command did."""

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        sampler = super()._get_train_sampler(dataset)
        sampler.shuffle = False
        return sampler


def train(rows: list[dict[str, Any]], out: Path, steps: int, seed: int) -> hapo.Run:
    """A run of TRL with the recipe's settings."""
    config = HapoGRPOConfig(
        output_dir=str(out / "trl-output"), run_dir=str(out / "trl"), method="trapo", turn_off_epoch="1.5",
        teacher_d=0.1, num_generations=GROUP, per_device_train_batch_size=GROUP * PROMPTS // UPDATES,
        steps_per_generation=UPDATES, max_completion_length=LONGEST, learning_rate=1e-4, lr_scheduler_type="constant",
        weight_decay=0.01, max_grad_norm=1.0, max_steps=steps * UPDATES, logging_steps=1, report_to=[], bf16=False,
        gradient_checkpointing=False, use_cpu=True, save_strategy="no", disable_tqdm=True, seed=seed,
        rollouts_every=10, model_init_kwargs={"dtype": "float32"}, log_level="error",
    )  # fmt: skip
    trainer = InOrder(str(MODEL), hapo.reward_trl, config, Dataset.from_list(rows))
    assert trainer.hapo_schedule.steps_per_epoch == STEPS_PER_EPOCH
    trainer.train()
    return hapo.Run(out / "trl")


def of_children() -> float:
    """CPU seconds of the commands run so far."""
    it = resource.getrusage(resource.RUSAGE_CHILDREN)
    return it.ru_utime + it.ru_stime


def bins(run: hapo.Run, name: str) -> list[str]:
    """Means over equal parts of the run."""
    values = run.metrics[name]
    values = values[~np.isnan(values)]
    return [f"{it.mean():.3f}" for it in np.array_split(values, BINS)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hapo", default="hapo")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=45)
    parser.add_argument("--seed", type=int, default=0)
    it = parser.parse_args()
    settings = (f"steps={STEPS_PER_EPOCH}", "data.prompts=960", f"seed={it.seed}")
    rows = problems(command(it.hapo, EVERYWHERE, it.out / "data", *settings))
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    assert len(rows) == PROMPTS * STEPS_PER_EPOCH
    assert all(tokenizer(row["prompt"])["input_ids"] == row.pop("tokens") for row in rows)
    print(f"{len(rows)} prompts, {sum(bool(row['teacher']) for row in rows)} with a trace")

    began = of_children()
    ours = command(it.hapo, RECIPE, it.out / "hapo", f"steps={it.steps}", f"seed={it.seed}")
    between, start = of_children(), time.process_time()
    trl = train(rows, it.out, it.steps, it.seed)
    runs = {"`hapo train`": (ours, between - began), "`HapoGRPOTrainer`": (trl, time.process_time() - start)}
    for name in ("reward/policy_only", "gate/beta", "policy/entropy", "response_length/mean"):
        print(f"\n{name}, means over {BINS} equal parts of {it.steps} steps\n")
        for label, (run, _) in runs.items():
            print(f"| {label} | {' | '.join(bins(run, name))} |")
    print(
        "\nCPU seconds of a step, on one thread, the start included; median seconds from a step's end to the next's\n"
    )
    for label, (run, seconds) in runs.items():
        print(f"| {label} | {seconds / it.steps:.2f} | {np.median(np.diff(run.metrics['time/unix'])):.2f} |")
    print(json.dumps({"torch": torch.__version__, "threads": torch.get_num_threads()}))


if __name__ == "__main__":
    main()
