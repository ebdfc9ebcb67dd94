"""HapoTrainer in the real verl: Ray, TransferQueue and FSDP2 over gloo on a CPU. Each run takes about a minute."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import small

pytest.importorskip("verl.trainer")

import hapo

HAPO = ["+hapo.method=luffy", "+hapo.turn_off_epoch=1.5"]
RECORDED = [*HAPO, "trainer.v1.trainer_mode=hapo_recorded"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("verl")


@pytest.fixture(scope="module")
def data(folder) -> Path:
    return small.write_data(folder / "data.parquet")


@pytest.fixture(scope="module")
def stock(folder, data):
    """verl's own trainer, without hapo: when it fails, the fault is not here."""
    steps, _, _ = small.run(
        "verl.trainer.main_ppo", small.options(data, folder / "stock", reward="some"), folder / "stock"
    )
    return steps


@pytest.fixture(scope="module")
def mixed(folder, data):
    """Three steps with rewards of every kind; the checkpoint is of the second."""
    out = folder / "mixed"
    options = [
        *small.options(data, out, reward="some", steps=3), *RECORDED, "+hapo.teacher.weight=0.5",
        "algorithm.rollout_correction.rollout_is=token", f"+hapo.run_dir={out}/run", "trainer.save_freq=2",
        "+hapo.truncated=grade",
    ]  # fmt: skip
    # The last step is always stored: what is stored of it is taken away below, as a killed run would not have it.
    steps, _, _ = small.run("hapo.verl", options, out, env={"HAPO_TEST_RECORD": str(out / "record")})
    return out, steps, options


def test_stock_verl_trains_here(stock) -> None:
    assert sorted(stock) == [1, 2]
    for it in stock.values():
        assert it["training/rollout_probs_diff_max"] < 1e-5, "the arithmetic is f32 throughout"
        assert it["actor/grad_norm"] > 0.1


def test_with_the_gate_closed_it_is_verls_own(folder, data, stock) -> None:
    out = folder / "closed"
    options = [*small.options(data, out, reward="some"), "+hapo.method=luffy"]
    ours, _, _ = small.run("hapo.verl", [*options, "+hapo.turn_off_epoch=0.0001", "+hapo.truncated=grade"], out)
    for step in (1, 2):
        assert ours[step]["hapo/gate/beta"] == 0.0
        for name in ("actor/pg_loss", "actor/grad_norm", "critic/rewards/mean", "response_length/mean"):
            assert ours[step][name] == pytest.approx(stock[step][name], abs=1e-6), (step, name)


def test_a_bare_method_counts_successes_from_success_at(folder, data) -> None:
    out = folder / "bare"
    options = [*small.options(data, out, reward="nearly", steps=1), "+hapo.method=luffy", "+hapo.gate=own"]
    ours, _, _ = small.run("hapo.verl", [*options, "+hapo.success_at=0.9", "+hapo.truncated=grade"], out)
    it = ours[1]
    assert (it["hapo/gate/beta"], it["hapo/groups/all_solved"], it["hapo/groups/all_fail"]) == (1.0, 4.0, 0.0)
    assert it["hapo/reward/policy_only"] == pytest.approx(0.9)


@pytest.fixture(scope="module")
def failing(folder, data):
    """Nothing is right and no response ends: on one rank and on two."""
    found = {}
    for ranks in (1, 2):
        out = folder / f"failing-{ranks}"
        found[ranks], _, _ = small.run(
            "hapo.verl", [*small.options(data, out, ranks), *HAPO], out, ranks, env={"HAPO_TEST_FORBID_END": "1"}
        )
    return found


def test_a_failed_group_has_the_exact_loss_on_one_and_two_ranks(failing) -> None:
    for steps in failing.values():
        for step in (1, 2):
            it = steps[step]
            assert (it["hapo/gate/beta"], it["hapo/gate/success_limit"], it["hapo/reward/policy_only"]) == (1, 0, 0)
            # 4 groups of 3 failures of 12 tokens with A = -1/4, over 16 rows of 12.
            assert it["actor/pg_loss"] == pytest.approx(4 * 3 * 12 * 0.25 / (16 * 12), abs=1e-7)
            assert it["critic/rewards/mean"] == 0.25
            assert it["hapo/response_length/truncated"] == 1.0
            # No teacher's row is in what verl compares with the sampler, which alone is forbidden to end.
            assert it["training/rollout_probs_diff_max"] < 1e-3
    one, two = failing[1], failing[2]
    assert one[1]["actor/hapo/teacher_loss"] == pytest.approx(two[1]["actor/hapo/teacher_loss"], abs=1e-7)
    assert one[1]["hapo/teacher/mean_prob"] == pytest.approx(two[1]["hapo/teacher/mean_prob"], abs=1e-7)
    assert one[1]["actor/hapo/teacher_loss"] < 0


def test_every_row_is_as_the_core_decides(mixed) -> None:
    out, steps, _ = mixed
    kinds = set()
    for step in (1, 2, 3):
        rows = list(json.loads((out / "record" / f"step-{step}.json").read_text()).values())
        rows.sort(key=lambda it: (it["group"], it["session"]))
        schedule = hapo.Schedule(4, 2, turn_off_epoch=1.5)
        method = hapo.Method("luffy", 4, schedule=schedule, teacher={"weight": 0.5})
        decision = hapo.decide(
            [it["reward"] for it in rows], [it["group"] for it in rows], [len(it["sampled"]) for it in rows],
            [it["truncated"] for it in rows], [True] * len(rows), step, method=method,
            teacher_lengths=[len(it["teacher"]) for it in rows], truncated="grade",
        )  # fmt: skip
        assert decision.injected.any() == (step < 3)
        for place, it in enumerate(rows):
            assert it["hapo_teacher_weight"] == [decision.teacher_weights[place]]
            if decision.replaced[place]:
                n = len(it["teacher"])
                assert it["responses"] == it["teacher"]
                assert it["input_ids"] == it["prompt"] + it["teacher"]
                assert it["position_ids"] == list(range(len(it["prompt"]) + n))
                assert (it["response_mask"], it["loss_mask"]) == ([0] * n, [1] * n)
                assert it["rm_scores"] == [0.0] * (n - 1) + [1.0]
                assert it["rollout_log_probs"] == it["old_log_probs"]
                assert it["rollout_is_weights"] == [1.0] * n
                assert it["tag"] == {"response_len": n, "seq_len": len(it["prompt"]) + n}
                kinds.add("teacher")
            else:
                n = len(it["sampled"])
                assert it["responses"] == it["sampled"]
                assert it["response_mask"] == [1] * n
                assert sum(it["rm_scores"]) == it["reward"]
                assert it["advantages"] == pytest.approx([decision.advantages[place]] * n, abs=1e-7)
                kinds.add(it["reward"])
        assert steps[step]["hapo/gate/beta"] == decision.metrics["gate/beta"]
        assert steps[step]["hapo/reward/policy_only"] == pytest.approx(decision.metrics["reward/policy_only"])
    assert {"teacher", 0.0, 1.0} <= kinds


def test_a_killed_run_continues_at_the_right_step_of_the_gate(mixed, binary) -> None:
    out, _, options = mixed
    latest = out / "checkpoints/latest_checkpointed_iteration.txt"
    latest.write_text("2")
    again = [it for it in options if not it.startswith(("trainer.resume_mode", "trainer.total_training_steps"))]
    again += ["trainer.resume_mode=auto", "trainer.total_training_steps=4", "trainer.save_freq=-1"]
    before = hapo.Run(out / "run").metrics["gate/beta"][:2].tolist()
    steps, _, _ = small.run("hapo.verl", again, out / "again", env={"HAPO_TEST_RECORD": str(out / "again/record")})
    assert sorted(steps) == [3, 4]
    run = hapo.Run(out / "run")
    assert run.metrics["step"].tolist() == [1, 2, 3, 4]
    assert run.metrics["gate/success_limit"].tolist() == [0, 0, -1, -1]
    assert run.metrics["gate/beta"].tolist() == [*before, 0, 0]
    assert run.gate["extinct_at_step"] == 3
    assert run.steps == [1, 2, 3, 4]
    lines = list(run.rollouts(1))
    assert sum(it["role"] != "teacher" for it in lines) == 16
    assert {it["completion"] for it in lines if it["role"] == "teacher"} <= {f"\\boxed{{{2 * it}}}" for it in range(8)}
    page = out / "page.html"
    told = subprocess.run([binary, "report", str(run.path), "-o", str(page)], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert re.search(r'id="rollouts-0-2"', page.read_text())
