"""A tiny run of TRL, in one process or as one of several of `torchrun`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from datasets import Dataset

import hapo
import hapo.trl as ht

ROOT = Path(os.environ.get("HAPO_REPOSITORY") or Path(__file__).parents[2])
MODEL = str(ROOT / "testdata/fixtures/models/tiny-qwen2")
COMMON = {
    "use_cpu": True, "bf16": False, "per_device_train_batch_size": 8, "num_generations": 4, "logging_steps": 1,
    "max_completion_length": 24, "report_to": [], "save_strategy": "no", "disable_tqdm": True,
    "gradient_checkpointing": False, "learning_rate": 1e-4,
}  # fmt: skip


def data() -> Dataset:
    """Eight sums with their teachers: an epoch of four steps of two."""
    return Dataset.from_list(
        [{"prompt": f"{it}+{it}=", "answer": str(2 * it), "teacher": f"so \\boxed{{{2 * it}}}"} for it in range(8)]
    )


def reward(completions, **_) -> list[float]:
    """Nothing is right."""
    return [0.0] * len(completions)


def trainer(
    path: Path, kind=ht.HapoGRPOTrainer, peft_config=None, tools=None, reward=reward, rollout_func=None, dataset=None,
    **keys,
):  # fmt: skip
    """A trainer whose gate closes after an epoch and a half, unless said."""
    settings = {**COMMON, "turn_off_epoch": "1.5", **keys}
    config = ht.HapoGRPOConfig(output_dir=str(path / "out"), **settings)
    dataset = data() if dataset is None else dataset
    return kind(MODEL, reward, config, dataset, peft_config=peft_config, tools=tools, rollout_func=rollout_func)


def recorded(prompts, trainer):
    """Completions that depend on the prompt and the slot alone: of every second prompt the last one ends right."""
    tokenizer = trainer.processing_class
    slots: dict[str, int] = {}
    start = trainer.accelerator.process_index * len(prompts)
    found = {"prompt_ids": [], "completion_ids": [], "logprobs": []}
    for row, prompt in enumerate(prompts):
        slot = (start + row) % 4
        slots[prompt] = slot
        number = int(prompt.split("+")[0])
        right = slot == 3 and number % 2 == 1
        text = f"\\boxed{{{2 * number}}}" if right else "abc"[: slot + 1]
        ids = tokenizer(text)["input_ids"] + [tokenizer.eos_token_id]
        found["prompt_ids"].append(tokenizer(prompt)["input_ids"])
        found["completion_ids"].append(ids)
        found["logprobs"].append([-1.0] * len(ids))
    return found


def main(path: Path, processes: int) -> None:
    """Two steps on recorded completions; every process writes what it decided."""
    it = trainer(
        path, per_device_train_batch_size=8 // processes, max_steps=2, reward=hapo.reward_trl, rollout_func=recorded,
        run_dir=str(path / "run"),
    )  # fmt: skip
    it.train()
    decision = it.last_decision
    path.mkdir(parents=True, exist_ok=True)
    (path / f"decision-{it.accelerator.process_index}.json").write_text(
        json.dumps(
            {
                "replaced": decision.replaced.tolist(),
                "advantages": decision.advantages.tolist(),
                "weights": decision.teacher_weights.tolist(),
                "metrics": decision.metrics,
            }
        )
    )
    if it.accelerator.is_main_process:
        losses = [log["grad_norm"] for log in it.state.log_history if "loss" in log]
        (path / "losses.json").write_text(json.dumps(losses))
    it.accelerator.wait_for_everyone()
    it.accelerator.end_training()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
