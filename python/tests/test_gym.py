"""Every task of the real reasoning-gym: its rows, its own answers, and another row's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import hapo
import hapo.tasks
from hapo import Error

factory = pytest.importorskip("reasoning_gym.factory")

# A row of these takes seconds.
SLOW = {"intermediate_integration", "knight_swap", "quantum_lock", "sokoban", "zebra_puzzles"}
# Tasks with several right answers: another row's may be one.
MANY = {"graph_color", "n_queens", "propositional_logic", "time_intervals"}
GRADE = f"command:{sys.executable} -m hapo.tasks grade"


def rows_of(name: str, count: int) -> list[hapo.tasks.Row]:
    """Rows as they come back from a file."""
    rows, _ = hapo.tasks.reasoning_gym(name, count, seed=3)
    return [json.loads(json.dumps(row)) for row in rows]


@pytest.mark.parametrize("name", sorted(factory.DATASETS))
def test_a_task_accepts_its_own_answers_and_refuses_another_rows(name: str) -> None:
    if name in hapo.tasks.UNUSABLE:
        with pytest.raises(Error, match=f"gym:{name} makes no rows: "):
            hapo.tasks.reasoning_gym(name, 2, seed=3)
        return
    rows = rows_of(name, 3 if name in SLOW else 10)
    answers = [row["answer"] for row in rows]
    texts = [""] * len(rows)
    assert hapo.tasks.reward(texts, rows, answers) == [1.0] * len(rows)
    accepted, tried = 0.0, 0
    for row in rows:
        others = [it for it in answers if it != row["answer"]][:4]
        accepted += sum(hapo.tasks.reward([""] * len(others), [row] * len(others), others))
        tried += len(others)
    assert tried > 0
    assert accepted < tried / 2 if name in MANY else accepted == 0, f"{accepted} of {tried}"
    for nothing in (None, "", "I do not know.", "}{\\"):
        assert hapo.tasks.reward([""], rows[:1], [nothing]) == [0.0], nothing


def test_the_unusable_are_tasks_of_the_package() -> None:
    assert set(hapo.tasks.UNUSABLE) < set(factory.DATASETS)


def test_a_wrong_answer_is_worth_nothing_unless_the_tasks_own_score_is_asked_for() -> None:
    rows = rows_of("gsm_symbolic", 1)
    assert hapo.tasks.reward([""], rows, ["-1"]) == [0.0]
    assert hapo.tasks.score([""], rows, ["-1"]) == [0.01]


def test_what_cannot_be_made_is_refused_by_name() -> None:
    with pytest.raises(Error, match="gym:nothing: reasoning-gym has no task of this name\nhint: tasks are ab, "):
        hapo.tasks.reasoning_gym("nothing", 1, 0)
    with pytest.raises(Error, match=r'gym:ab: the task does not take \{"speed": 1\} with 1 rows: TypeError'):
        hapo.tasks.reasoning_gym("ab", 1, 0, speed=1)
    with pytest.raises(Error, match="gym:ab: expected a count of at least 1, got 0"):
        hapo.tasks.reasoning_gym("ab", 0, 0)
    with pytest.raises(Error, match="gym:ab: expected a configuration of JSON values"):
        hapo.tasks.reasoning_gym("ab", 1, 0, speed={1})
    with pytest.raises(ValueError, match="one without the field `gym`"):
        hapo.tasks.reward([""], [{"problem": "1 + 1", "answer": "2"}], ["2"])


def command(binary: str, *arguments: str | Path, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HAPO_PYTHON": python}
    return subprocess.run([binary, *arguments], capture_output=True, text=True, check=False, env=environment)


def test_the_command_makes_rows_and_grades_the_extracted_answer(binary: str, tmp_path: Path) -> None:
    file, again = tmp_path / "gym.jsonl", tmp_path / "again.jsonl"
    for out in (file, again):
        made = command(binary, "data", "make", "gym:gsm_symbolic", "--count", "5", "--seed", "7", "-o", out, "--json")
        assert (made.returncode, json.loads(made.stdout)["rows"]) == (0, 5), made.stderr
    assert file.read_text() == again.read_text()
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert len({row["template"] for row in rows}) > 1
    checked = command(binary, "data", "check", file, "--grader", GRADE)
    assert checked.returncode == 0, checked.stderr
    graded = tmp_path / "graded.jsonl"
    # Its first number is no answer, and a number outside of the box is none.
    preds = ["Of 3 I keep 4: \\boxed{%s}", "Of %s: \\boxed{-5}", "%s"]
    lines = [{**rows[0], "pred": pred.replace("%s", rows[0]["answer"])} for pred in preds]
    graded.write_text("".join(json.dumps(line) + "\n" for line in lines))
    grade = ("grade", graded, "--gold-key", "answer", "--grader")
    told = command(binary, *grade, GRADE, "--extraction", "boxed")
    assert [json.loads(line)["reward"] for line in told.stdout.splitlines()] == [1.0, 0.0, 0.0], told.stderr
    told = command(binary, *grade, f"{GRADE} --partial", "--extraction", "boxed")
    assert [json.loads(line)["reward"] for line in told.stdout.splitlines()] == [1.0, 0.01, 0.0], told.stderr
    told = command(binary, *grade, GRADE, "--extraction", "any")
    assert told.returncode == 2
    assert 'extraction "any" extracts none' in told.stdout + told.stderr


def test_a_row_whose_answer_its_task_refuses_is_left_out_and_said(binary: str, tmp_path: Path) -> None:
    # The second answer is -1, and GSM-Symbolic reads no sign.
    with pytest.warns(UserWarning, match="gym:gsm_symbolic: 1 of 2 rows left out: the task does not accept its own"):
        rows, _ = hapo.tasks.reasoning_gym("gsm_symbolic", 2, 815)
    assert [row["id"] for row in rows] == ["gsm_symbolic-815-0"]
    file = tmp_path / "gym.jsonl"
    made = command(binary, "data", "make", "gym:gsm_symbolic", "--count", "2", "--seed", "815", "-o", file)
    assert made.returncode == 0, made.stderr
    assert "gym:gsm_symbolic: 1 of 2 rows left out" in made.stderr
    assert len(file.read_text().splitlines()) == 1


def test_a_set_of_texts_is_in_the_same_order_in_every_process(binary: str, tmp_path: Path) -> None:
    made = []
    for seed in ("1", "2"):
        file = tmp_path / f"{seed}.jsonl"
        environment = {**os.environ, "HAPO_PYTHON": sys.executable, "PYTHONHASHSEED": seed}
        call = [binary, "data", "make", "gym:word_ladder", "--count", "3", "--seed", "1", "-o", file]
        subprocess.run(call, check=True, env=environment)
        made.append(file.read_text())
    assert made[0] == made[1]


def test_a_python_that_lacks_it_is_named(binary: str, tmp_path: Path) -> None:
    file = tmp_path / "gym.jsonl"
    ask = ("data", "make", "gym:ab", "--count", "1", "--seed", "0", "-o", file)
    told = command(binary, *ask, python=str(tmp_path / "python"))
    assert told.returncode == 2
    assert told.stderr.startswith(f"error: {tmp_path}/python cannot start: ")
    told = command(binary, "data", "make", "gym:boxnet", *ask[3:])
    assert (told.returncode, told.stderr) == (
        2,
        "error: gym:boxnet makes no rows: it has no answer of its own\nhint: take another task\n",
    )
    told = command(binary, *ask, "--set", "speed=1")
    assert told.returncode == 2
    assert 'the task does not take {"speed": 1}' in told.stderr
    assert not file.exists()


def test_a_run_is_trained_on_rows(tmp_path: Path) -> None:
    rows, reward = hapo.tasks.reasoning_gym("gsm_symbolic", 8, seed=0)
    rows = [{**row, "problem": row["problem"][-60:]} for row in rows]
    run = hapo.train(
        model={"init": {"hidden": 32, "layers": 2, "heads": 4, "kv_heads": 2, "ffn": 64, "std": 0.3}},
        method="grpo",
        steps=1,
        data=rows,
        reward=reward,
        sampling={"prompts_per_step": 2, "group_size": 2, "max_new_tokens": 8},
        run_dir=tmp_path / "run",
        quiet=True,
        **{"data.max_prompt_tokens": 128},
    )
    assert run.metrics["step"].tolist() == [1]
