#!/usr/bin/env python3
"""Runs of the real verl on a CPU with one fault each, and healthy ones: what `hapo doctor` is held against.

    plant_verl.py OUT [NAME...]

Needs the environment of .ci/verl. Each run is 20 steps of the built-in model and leaves what verl leaves: Hydra's
config.yaml, the file logger's JSON lines, dumps of rollouts and of the validation.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "python/tests/verl")]

import small  # noqa: E402
from problems import Problem, equations  # noqa: E402

MODEL = ROOT / "models/base"
STEPS = 20
TEACHER = {"module": "hapo.verl", "+hapo.method": "luffy", "+hapo.turn_off_epoch": "3"}
LIMIT, HEAT = "data.max_response_length", "actor_rollout_ref.rollout.temperature"
LOSS = "actor_rollout_ref.actor.loss_agg_mode"

FAULTS: dict[str, dict[str, Any]] = {
    "no-box": {"sampler": "boxless"},
    "reward-raises": {"reward": "verl_zero_if_it_raises"},
    "wrong-pad": {"pad": "0"},
    "accumulation": {
        LOSS: "seq-mean-token-sum-norm", "actor_rollout_ref.actor.loss_scale_factor": "null",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 8,
    },
    "constant-groups": {HEAT: 0.01},
    "short-limit": {LIMIT: 8},
    "truncated-gold": {"gold": 2},
    "substring-grader": {"digits": 1, "reward": "verl_substring"},
    "no-teacher": {**TEACHER, "+hapo.turn_off_epoch": "0.0001"},
    "high-rate": {"actor_rollout_ref.actor.optim.lr": 2e-2},
    "other-temperature": {"sampler": "hot"},
    "eval-in-train": {"leak": 12},
    "no-template": {"template": "{% for m in messages %}{{ m['content'] }}{% endfor %}"},
}  # fmt: skip
HEALTHY: dict[str, dict[str, Any]] = {
    "healthy-grpo": {},
    "healthy-kl": {
        LOSS: "seq-mean-token-mean", "actor_rollout_ref.actor.use_kl_loss": True,
        "actor_rollout_ref.actor.kl_loss_coef": 0.01,
    },
    "healthy-teacher": {**TEACHER, LIMIT: 96},
}  # fmt: skip


def table(rows: list[Problem], path: Path, *, teachers: bool) -> None:
    """The rows in verl's layout, with the teachers' tokens where they are wanted."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    shaped = []
    for at, it in enumerate(rows):
        row = {
            "data_source": "equations", "prompt": [{"role": "user", "content": it["problem"]}], "ability": "math",
            "reward_model": {"ground_truth": it["answer"], "style": "rule"},
            "extra_info": {"index": at, "split": path.stem},
        }  # fmt: skip
        if teachers:
            ids = tokenizer(it["teacher"], add_special_tokens=False)["input_ids"]
            row["hapo_teacher_ids"] = [*ids, tokenizer.eos_token_id]
        shaped.append(row)
    pq.write_table(pa.Table.from_pylist(shaped), path)


def model(out: Path, template: str | None, pad: str | None) -> None:
    """The built-in model beside the run, with another template or pad."""
    shutil.copytree(MODEL, out / "model")
    path = out / "model/tokenizer_config.json"
    config = json.loads(path.read_text())
    config.update({"chat_template": template} if template else {}, **({"pad_token": pad} if pad else {}))
    path.write_text(json.dumps(config, indent=2))


def run(case: dict[str, Any], out: Path) -> None:
    case = dict(case)
    digits = case.pop("digits", 3)
    rows = equations(64 if digits == 1 else 96, digits, seed=11)
    train, held_out = rows[:-24], rows[-24:]
    if leak := case.pop("leak", 0):
        held_out[:leak] = train[:leak]
    if length := case.pop("gold", None):
        train = [{**it, "answer": it["answer"][:length]} for it in train]
    module, sampler = case.pop("module", "verl.trainer.main_ppo"), case.pop("sampler", "")
    out.mkdir(parents=True)
    table(train, out / "train.parquet", teachers=module == "hapo.verl")
    table(held_out, out / "val.parquet", teachers=module == "hapo.verl")
    model(out, case.pop("template", None), case.pop("pad", None))
    changed = {
        "actor_rollout_ref.model.path": out / "model", "data.train_files": out / "train.parquet",
        "data.val_files": out / "val.parquet", "data.max_response_length": 64, "data.train_batch_size": 4,
        "actor_rollout_ref.rollout.n": 8, LOSS: "token-mean", "actor_rollout_ref.actor.optim.lr": 2e-4,
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 32,
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 32,
        "reward.custom_reward_function.path": "pkg://rewards",
        "reward.custom_reward_function.name": case.pop("reward", "verl_boxed"), "trainer.val_before_train": True,
        "trainer.test_freq": 20, "trainer.rollout_data_dir": out / "rollouts",
        "trainer.validation_data_dir": out / "validation", "hydra.run.dir": out, **case,
    }  # fmt: skip
    keys = {it.split("=")[0] for it in map(str, changed)}
    kept = [it for it in small.options(out / "train.parquet", out, steps=STEPS) if it.split("=")[0] not in keys]
    options = [*kept, *(f"{key}={value}" for key, value in changed.items())]
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, here)
    paths = os.pathsep.join([here, str(ROOT / "python/tests/verl")])
    os.environ["PYTHONPATH"] = paths
    external = "hot_verl" if sampler else "cpu_verl"
    env = {"VERL_USE_EXTERNAL_MODULES": external, "PYTHONPATH": paths, "DOCTOR_SAMPLER": sampler}
    small.run(module, options, out, env=env)


def main(out: Path, names: list[str]) -> None:
    for name, case in {**FAULTS, **HEALTHY}.items():
        if (not names or name in names) and not (out / name).exists():
            print(f"verl {name}", flush=True)
            run(case, out.absolute() / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
