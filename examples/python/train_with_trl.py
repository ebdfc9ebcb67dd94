# %% [markdown]
# # GRPO with a teacher that leaves, in TRL
# A tiny model on a CPU, a few seconds a step. With a real model: its name in MODEL, your problems in the data set, and
# no `use_cpu`.

# %%
import sys

from datasets import Dataset

import hapo
from hapo.trl import HapoGRPOConfig, HapoGRPOTrainer

MODEL = sys.argv[1] if len(sys.argv) > 1 else "testdata/fixtures/models/tiny-qwen2"

# %% A teacher is a text that ends with the right answer; problems without one stay in the run.
problems = [{"prompt": f"{it}+{it}=", "answer": str(2 * it), "teacher": f"\\boxed{{{2 * it}}}"} for it in range(32)]

config = HapoGRPOConfig(
    output_dir="runs/trl",
    run_dir="runs/trl/run",  # for `hapo report`
    method="luffy",
    turn_off_epoch="1.5",
    num_generations=4,
    per_device_train_batch_size=16,
    max_completion_length=16,
    learning_rate=1e-3,
    max_steps=8,
    logging_steps=1,
    report_to=[],
    bf16=False,
    use_cpu=True,
)

# %%
trainer = HapoGRPOTrainer(MODEL, hapo.reward_trl, config, Dataset.from_list(problems))
trainer.train()
print(f"the teacher leaves at step {trainer.hapo_schedule.extinction}")
