"""Tiny runs of verl: data, options, and what a run said."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(os.environ.get("HAPO_REPOSITORY") or Path(__file__).parents[3])
MODEL = ROOT / "testdata/fixtures/models/tiny-qwen2"
LONGEST = 12
TEACHER = "\\boxed{%d}"


def write_data(path: Path, prompts: int = 8, teachers: bool = True) -> Path:
    """Sums with their teachers' tokens: an epoch of two steps of four."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    rows = []
    for it in range(prompts):
        ids = [*tokenizer(TEACHER % (2 * it), add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        rows.append(
            {
                "data_source": "sums",
                "prompt": [{"role": "user", "content": f"{it}+{it}="}],
                "ability": "math",
                "reward_model": {"ground_truth": str(2 * it), "style": "rule"},
                "extra_info": {"index": it, "split": "train"},
                **({"hapo_teacher_ids": ids} if teachers else {}),
            }
        )
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


F32 = "+actor_rollout_ref.actor.fsdp_config.mixed_precision={param_dtype:fp32}"
"""Without it verl multiplies in bf16, whatever `dtype` says."""


def on_a_cpu(ranks: int = 1, rows: int = 32) -> list[str]:
    """What a run of verl needs without a GPU, with so many rows in a micro-batch."""
    return [
        "actor_rollout_ref.model.use_remove_padding=False",
        "+actor_rollout_ref.model.override_config.attn_implementation=eager",
        "actor_rollout_ref.actor.strategy=fsdp2", F32,
        "actor_rollout_ref.actor.fsdp_config.use_torch_compile=False",
        "actor_rollout_ref.actor.use_torch_compile=False", "actor_rollout_ref.rollout.name=hapo_cpu",
        f"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={rows}",
        f"actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu={rows}",
        f"actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu={rows}",
        "+actor_rollout_ref.ref.fsdp_config.mixed_precision={param_dtype:fp32}",
        "actor_rollout_ref.rollout.agent.num_workers=1", "actor_rollout_ref.rollout.free_cache_engine=False",
        "reward.num_workers=1", "transfer_queue.backend.SimpleStorage.num_data_storage_units=1", "trainer.device=cpu",
        "data.dataloader_num_workers=0", f"+ray_kwargs.ray_init.num_gpus={ranks}", "ray_kwargs.ray_init.num_cpus=32",
        "+ray_kwargs.ray_init.include_dashboard=false",
    ]  # fmt: skip


def imitation_on_a_cpu() -> list[str]:
    """The same for verl's trainer of imitation."""
    return [
        "model.use_remove_padding=False", "+model.override_config.attn_implementation=eager",
        "model.enable_gradient_checkpointing=False", "engine.strategy=fsdp2", "engine.use_torch_compile=False",
        "+engine.mixed_precision={param_dtype:fp32}", "data.use_dynamic_bsz=False", "data.micro_batch_size_per_gpu=8",
        "data.num_workers=0", "trainer.device=cpu",
    ]  # fmt: skip


def options(data: Path, out: Path, ranks: int = 1, steps: int = 2, reward: str = "nothing") -> list[str]:
    """verl's options of a run on this machine: 4 prompts of 4 rollouts a step."""
    return [
        *on_a_cpu(ranks, rows=4),
        f"data.train_files={data}", f"data.val_files={data}", "data.train_batch_size=4", "data.max_prompt_length=64",
        f"data.max_response_length={LONGEST}", "data.shuffle=False", f"actor_rollout_ref.model.path={MODEL}",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4", "actor_rollout_ref.actor.use_kl_loss=False",
        "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm",
        f"actor_rollout_ref.actor.loss_scale_factor={LONGEST}", "actor_rollout_ref.actor.optim.lr=1e-3",
        "actor_rollout_ref.rollout.n=4", "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
        "actor_rollout_ref.rollout.calculate_log_probs=True",
        "algorithm.adv_estimator=grpo", "algorithm.norm_adv_by_std_in_grpo=False", "algorithm.use_kl_in_reward=False",
        "reward.custom_reward_function.path=pkg://rewards", f"reward.custom_reward_function.name={reward}",
        "trainer.nnodes=1", f"trainer.n_gpus_per_node={ranks}", "trainer.val_before_train=False",
        "trainer.test_freq=-1", "trainer.save_freq=-1", "trainer.logger=[console,file]", "trainer.total_epochs=100",
        f"trainer.total_training_steps={steps}", f"trainer.default_local_dir={out}/checkpoints",
        "trainer.resume_mode=disable",
    ]  # fmt: skip


def run(module: str, options: list[str], out: Path, ranks: int = 1, env: dict[str, str] | None = None, ok: bool = True):
    """Starts a run and waits for it; its numbers by step, and what it printed."""
    from cpu_environment import environment

    out.mkdir(parents=True, exist_ok=True)
    file = out / "metrics.jsonl"
    environ = {**os.environ, **environment(ranks), "VERL_FILE_LOGGER_PATH": str(file), **(env or {})}
    began = time.monotonic()
    told = subprocess.run(
        [sys.executable, "-m", module, *options], capture_output=True, text=True, env=environ, timeout=900, cwd=out
    )
    text = told.stdout + told.stderr
    (out / "log.txt").write_text(text + f"\n{time.monotonic() - began:.1f} s\n")
    if ok:
        assert told.returncode == 0, text[-6000:]
    steps = {}
    if file.exists():
        for line in file.read_text().splitlines():
            it = json.loads(line)
            steps[it["step"]] = it["data"]
    return steps, re.sub(r"\x1b\[[0-9;]*m", "", text), told.returncode
