"""``scripts/paper`` for a lab with the paper's model, rehearsed: a folder with the shape of Qwen2.5's base model, two
steps a row. In place of vLLM stand ``cpu_rollout``, which stops where vLLM would, and ``hapo serve``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import small

pytest.importorskip("verl.trainer")
from cpu_environment import environment

import hapo

ROWS = os.environ.get("HAPO_REHEARSE", "base,grpo,sft-grpo,luffy,hapo-method").split(",")
"""By hand: HAPO_REHEARSE=table1,table2,figure3,figure5."""
MODEL = small.ROOT / "testdata/fixtures/models/qwen-shaped"
SMALL = {
    "steps": 2,
    "sampling.max_new_tokens": 24,
    "sampling.prompts_per_step": 8,
    "sampling.group_size": 4,
    "optim.mini_batch_prompts": 4,
    "optim.micro_batch_tokens": 4096,
}
SUMS = 48
SIZES = {"math500": 500, "olympiad": 675, "minerva": 272, "aime24": 30, "amc": 83, "aime25": 30}


def write(path: Path, rows: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(it) + "\n" for it in rows))


@pytest.fixture(scope="module")
def lab(binary, tmp_path_factory):
    """A lab's folder: the model as published, sums in three layouts of levels, and the benchmarks."""
    folder = tmp_path_factory.mktemp("lab")
    shutil.copytree(MODEL, folder / "models/Qwen2.5-3B")
    sums = [{"problem": f"What is {it} plus {it} plus 1?", "answer": str(2 * it + 1), "level": f"Level {1 + it % 5}"}
            for it in range(SUMS * 2)]  # fmt: skip
    write(folder / "math.jsonl", sums)
    for name, size in SIZES.items():
        tests = [{"problem": f"{name}: count the primes below {1000 + it}.", "answer": str(it)} for it in range(size)]
        # Two problems of the training set: in other words, and with other signs between them.
        if name == "math500":
            tests[0] = {"problem": "Add 2, 2 and 1.", "answer": "5"}
            tests[1] = {"problem": "what is $3$ plus $3$ plus $1$?", "answer": "7"}
        write(folder / f"benchmarks/{name}.jsonl", tests)
    on_a_cpu = [
        *small.on_a_cpu(rows=16), "actor_rollout_ref.model.enable_gradient_checkpointing=False",
        "actor_rollout_ref.actor.use_dynamic_bsz=False", "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=False",
    ]  # fmt: skip
    sets = [part for key, value in SMALL.items() for part in ("--set", f"{key}={value}")]
    command = [
        sys.executable, small.ROOT / "scripts/paper", "--size", "3b", "--hapo", binary, "--gpus", "1", *sets,
        *(part for it in on_a_cpu for part in ("--option", it)),
        *(part for it in small.imitation_on_a_cpu() for part in ("--sft-option", it)),
        "--server", f"{binary} serve --model {{model}} --served-model-name {{name}} --port {{port}}",
        *("--eval-option=--max-tokens=24", "--eval-option=--k=1"),
    ]  # fmt: skip

    def run(what: str, *more: str, ok: bool = True) -> str:
        told = subprocess.run(
            [*command, what, *more], capture_output=True, text=True, env={**os.environ, **environment(1)}, timeout=3000,
            cwd=folder,
        )  # fmt: skip
        said = told.stdout + told.stderr
        (folder / f"{what}.txt").write_text(said)
        assert not ok or told.returncode == 0, said[-6000:]
        return said

    run.folder = folder
    return run


def test_a_lab_goes_from_the_sources_to_the_tables(lab) -> None:
    folder = lab.folder
    told = lab("data", "--source", "math.jsonl", "--benchmarks", "benchmarks")
    counts = [line.split()[0] for line in told.splitlines() if line[:6].strip().isdigit()]
    of_levels = sum(it % 5 >= 2 for it in range(SUMS * 2))
    assert counts == [str(SUMS * 2), str(of_levels), str(of_levels - 1), str(of_levels - 2)], told
    # The teacher of a lab is gpt-oss-120b.
    problems = [json.loads(it) for it in (folder / "runs/paper-3b/data/problems.jsonl").read_text().splitlines()]
    write(folder / "data/math-3to5-teacher.jsonl", [{**it, "teacher": f"\\boxed{{{it['answer']}}}"} for it in problems])

    lab("train", "--rows", ",".join(ROWS))
    again = lab("train", "--rows", ",".join(ROWS))
    trained = [it.parent.parent for it in (folder / "runs/paper-3b").glob("*/stage-*/command.txt")]
    assert again.count("is done") == len(list((folder / "runs/paper-3b").glob("*/stage-*")))
    named = {"eos_token_id": [2002, 2000]}
    for row in trained:
        for saved in row.glob("stage-*/checkpoints/global_step_2/**/huggingface"):
            texts = {it: json.loads((saved / f"{it}.json").read_text()) for it in ("config", "generation_config")}
            assert texts["generation_config"]["eos_token_id"] == named["eos_token_id"], saved
            ends = texts["config"]["eos_token_id"]
            assert (ends if isinstance(ends, list) else [ends])[0] == 2002, saved
    run = hapo.Run(folder / "runs/paper-3b/hapo-method/stage-1/run")
    # At the start there is no way to go yet.
    assert run.metrics["policy/kl_to_initial"][0] == pytest.approx(0, abs=1e-6)
    assert run.metrics["policy/kl_to_initial"][1] > 0
    assert run.metrics["gate/beta"].tolist()[0] > 0
    assert run.metrics["entropy/all"][0] != run.metrics["policy/entropy"][0]

    lab("eval", "--benchmarks", "benchmarks", "--rows", ",".join(ROWS))
    assert lab("eval", "--benchmarks", "benchmarks", "--rows", "base,luffy").count(": evaluated") == 2
    table = lab("tables", "--benchmarks", "benchmarks")
    assert "# Graded the paper's way" in table
    assert "| LUFFY | 0.00 (63.60) | 0.00 (26.81) |" in table
    assert "no benchmark is evaluated whole" not in table
    drawn = lab("figures")
    assert "figure-2.svg" in drawn
    assert "figure-3: none of its rows has run" in drawn or "stability-open" in ROWS


def test_what_is_missing_is_said_before_a_gpu_is_used(lab) -> None:
    said = lab("check", "--benchmarks", "benchmarks", "--rows", ",".join(ROWS), ok=False)
    assert "ok      one end token, <|im_end|> (2002)" in said
    assert "ok      the six benchmarks with their numbers of problems" in said
    assert "ok      hapo-method, stage 1: every path is absolute" in said
    assert "MISSING vllm none: 0.24.0 goes with verl 0.9.1" in said
    (lab.folder / "benchmarks/amc.jsonl").rename(lab.folder / "amc.jsonl")
    said = lab("check", "--benchmarks", "benchmarks", "--rows", "grpo", ok=False)
    (lab.folder / "amc.jsonl").rename(lab.folder / "benchmarks/amc.jsonl")
    assert "MISSING " in said
    assert "amc.jsonl: expected 83 problems, got 0" in said
