"""Runs from Python: the same bits as the command's, rewards in this process, errors, interruptions, threads."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hapo
from conftest import ROOT

SMOKE = ROOT / "recipes/smoke.toml"
SMALL: dict[str, Any] = {
    "method": "luffy",
    "steps": 3,
    "model": {"init": {"hidden": 32, "layers": 2, "heads": 4, "kv_heads": 2, "ffn": 64, "std": 0.3}},
    "data": {"train": "builtin", "prompts": 16, "max_prompt_tokens": 32, "levels": ["add:5"], "teacher_coverage": 0.5},
    "sampling": {"group_size": 4, "prompts_per_step": 4, "max_new_tokens": 32},
    "optim": {"lr": 1e-3},
    "metrics": {"rollouts_every": 1},
    "checkpoint": {"every": 2},
}
ROWS = [{"id": f"r{it}", "problem": f"{it} + 1 = ?", "answer": str(it + 1), "kind": "sum"} for it in range(16)]


def weights(run: hapo.Run) -> str:
    return hashlib.sha256((max(run.checkpoints.items())[1] / "model.safetensors").read_bytes()).hexdigest()


def small(tmp_path: Path, name: str, **more: Any) -> hapo.Run:
    return hapo.train(SMALL, run_dir=tmp_path / name, quiet=True, **more)


def test_a_run_has_the_bits_of_the_commands(tmp_path: Path) -> None:
    steps = []
    run = hapo.train(SMOKE, run_dir=tmp_path / "python", quiet=True, on_step=lambda step, it: steps.append((step, it)))
    assert [it[0] for it in steps] == list(range(1, 17))
    assert steps[-1][1]["loss"] == run.metrics["loss"][-1]
    assert run.outcome is not None
    assert (run.outcome["steps"], run.outcome["finished"], run.outcome["interrupted"]) == (16, True, False)
    command = [sys.executable, "-m", "hapo", "train", str(SMOKE), "--run-dir", str(tmp_path / "command"), "--quiet"]
    subprocess.run(command, check=True, capture_output=True)
    assert weights(run) == weights(hapo.Run(tmp_path / "command"))
    assert "<svg" in run._repr_html_()
    copy = pickle.loads(pickle.dumps(run))
    assert (repr(copy), copy.outcome) == (repr(run), run.outcome)
    again = hapo.train(SMOKE, run_dir=tmp_path / "python", quiet=True)
    assert again.outcome is not None
    assert again.outcome["steps_now"] == 0


def test_keys_are_laid_on_a_recipe_and_a_stopped_run_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    whole = small(tmp_path, "whole", **{"optim.betas": [0.9, 0.95], "seed": 3})
    assert "betas = [0.9, 0.95]" in whole.recipe
    keys: dict[str, Any] = {"optim": {"betas": [0.9, 0.95]}, "seed": 3}
    cut = small(tmp_path, "cut", on_step=lambda step, _: step == 1, **keys)
    assert cut.outcome is not None
    assert (cut.outcome["steps"], cut.outcome["finished"]) == (1, False)
    rest = small(tmp_path, "cut", **keys)
    assert weights(rest) == weights(whole)
    with pytest.raises(hapo.Error, match=r"seed: 3 → 4") as other:
        small(tmp_path, "cut", **{**keys, "seed": 4})
    assert 'resume="force"' in (other.value.hint or "")
    with pytest.raises(hapo.Error, match="already holds a run"):
        small(tmp_path, "cut", resume=False, **keys)


def test_what_is_wrong_is_said_by_the_core_with_its_key(tmp_path: Path) -> None:
    with pytest.raises(hapo.Error, match="unknown key `stpes`") as unknown:
        small(tmp_path, "a", stpes=3)
    assert unknown.value.key == "stpes"
    copy = pickle.loads(pickle.dumps(unknown.value))
    assert (str(copy), copy.key, copy.hint) == (str(unknown.value), "stpes", unknown.value.hint)
    with pytest.raises(hapo.Error, match="expected") as value:
        small(tmp_path, "a", optim={"lr": -1.0})
    assert value.value.key == "optim.lr"
    with pytest.raises(hapo.Error, match="got `grpoo`"):
        small(tmp_path, "a", method="grpoo")
    with pytest.raises(hapo.Error, match="device: expected cpu or cuda:N"):
        small(tmp_path, "a", device="tpu")
    with pytest.raises(hapo.Error, match="data: row 2: expected a dictionary, got int"):
        small(tmp_path, "a", data=[{"problem": "1", "answer": "1"}, 2])
    bare = {**SMALL, "method": "grpo", "data": {}}
    with pytest.raises(hapo.Error, match="jsonl:2: answer: expected a gold answer") as row:
        hapo.train(bare, data=[*ROWS[:1], {"problem": "2 + 2 = ?"}], run_dir=tmp_path / "a", quiet=True)
    assert row.value.row == 2


FRAMES = {
    "pandas": lambda it: it.DataFrame([*ROWS[:-1], {**ROWS[-1], "kind": None}]),
    "polars": lambda it: it.DataFrame(ROWS),
    "datasets": lambda it: it.Dataset.from_list(ROWS),
}


@pytest.mark.parametrize("library", FRAMES)
def test_rows_of_any_kind_are_the_same_run(tmp_path: Path, library: str) -> None:
    frame = FRAMES[library](pytest.importorskip(library))
    recipe = {**SMALL, "method": "grpo", "data": {"max_prompt_tokens": 64}}
    runs = [
        hapo.train(recipe, data=data, run_dir=tmp_path / name, quiet=True)
        for name, data in [("list", ROWS), ("frame", frame), ("iterator", iter(ROWS))]
    ]
    assert len({weights(it) for it in runs}) == 1
    files = [next(it.path.glob("data-*.jsonl")) for it in runs]
    rows = [[json.loads(line) for line in it.read_text().splitlines()] for it in files]
    assert rows[0] == rows[2] == ROWS
    # What is missing is left out.
    assert rows[1][-1].get("kind") == (None if library == "pandas" else "sum")
    with pytest.raises(hapo.Error, match=r"data.train"):
        hapo.train(recipe, data=ROWS[::-1], run_dir=tmp_path / "list", quiet=True)


def test_rows_that_are_none_are_named(tmp_path: Path) -> None:
    class DatasetDict(dict[str, Any]):
        pass

    def refused(data: Any) -> hapo.Error:
        with pytest.raises(hapo.Error) as it:
            small(tmp_path, "a", data=data)
        return it.value

    assert "row 2: answer: expected texts, numbers and lists of them: got set" in str(
        refused([ROWS[0], {"answer": {1}}])
    )
    assert "expected at least one row, got none" in str(refused([]))
    splits = refused(DatasetDict(train=ROWS))
    assert "got DatasetDict" in str(splits)
    assert splits.hint == 'name a split, as in data=dataset["train"]'


def own(completions: list[str], rows: list[dict[str, Any]]) -> list[float]:
    assert rows[0]["kind"] == "sum"
    return [len(it) % 3 / 2 for it in completions]


def of_trl(prompts: list[str], completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    assert columns["kind"] == ["sum"]
    assert answer[0].isdigit()
    return [len(it) % 3 / 2 for it in completions]


def of_verl(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None) -> dict[str, float]:
    assert ground_truth.isdigit()
    return {"score": len(solution_str) % 3 / 2, "length": len(solution_str)}


def of_lengths(completions: list[str], rows: list[dict[str, Any]]) -> list[float]:
    return [len(it) % 3 / 2 for it in completions]


def with_reward(tmp_path: Path, name: str, reward: Any, **more: Any) -> hapo.Run:
    recipe = {**SMALL, "method": "grpo", "data": {"max_prompt_tokens": 64, "truncated": "grade"}}
    return hapo.train(recipe, data=ROWS, reward=reward, run_dir=tmp_path / name, quiet=True, **more)


def test_a_reward_function_may_have_any_of_three_signatures(tmp_path: Path) -> None:
    runs = [with_reward(tmp_path, it.__name__, it) for it in (own, of_trl, of_verl)]
    assert len({weights(it) for it in runs}) == 1
    program = tmp_path / "reward.py"
    program.write_text(
        "import json, sys\nfor line in sys.stdin:\n    print(len(json.loads(line)['completion']) % 3 / 2, flush=True)\n"
    )
    command = with_reward(tmp_path, "program", f"command:{sys.executable} {program}")
    assert weights(command) == weights(runs[0])
    assert runs[2].metrics["reward/parts/length"].mean() > 0
    assert 'grader = "python:test_train.own"' in runs[0].recipe


def test_a_reward_program_shares_no_question_with_what_it_starts(tmp_path: Path) -> None:
    file = tmp_path / "reward.py"
    file.write_text(
        "import subprocess\n"
        "def child(completions, rows):\n"
        "    return [len(subprocess.run(['cat'], capture_output=True, timeout=10).stdout)]\n"
        "def asks(completions, rows):\n"
        "    return [len(input())]\n"
    )
    # As the command runs it.
    program = [sys.executable, "-c", Path(hapo._reward_call.__file__).read_text(), str(file)]
    questions = [
        json.dumps({"id": it, "prompt": "1+1", "gold": "2", "row": None, "completion": "2"}) + "\n" for it in (0, 1)
    ]
    with subprocess.Popen([*program, "child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as it:
        assert it.stdin is not None
        assert it.stdout is not None
        for place, question in enumerate(questions):
            it.stdin.write(question)
            it.stdin.flush()
            assert json.loads(it.stdout.readline()) == {"id": place, "reward": 0.0}
        it.stdin.close()
    told = subprocess.run([*program, "asks"], input="".join(questions), capture_output=True, text=True, timeout=30)
    replies = [json.loads(it) for it in told.stdout.splitlines()]
    assert [it["id"] for it in replies] == [0, 1]
    assert all(it["reason"].startswith("EOFError") for it in replies)


def test_an_ambiguous_signature_is_refused_with_the_three_forms(tmp_path: Path) -> None:
    def none(texts: list[str]) -> list[float]:
        return [0.0]

    def both(prompts: list[str], completions: list[str], rows: list[Any]) -> list[float]:
        return [0.0]

    for reward, shown in [(none, "none(texts)"), (both, "both(prompts, completions, rows)")]:
        with pytest.raises(hapo.Error) as refused:
            with_reward(tmp_path, "a", reward)
        assert shown in str(refused.value)
        for form in ("f(completions, rows)", "TRL's f(prompts", "verl's f(data_source"):
            assert form in str(refused.value)
    with pytest.raises(hapo.Error, match="a function without a file is given to"):
        with_reward(tmp_path, "a", "python:absent")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "expected a list of one reward, got None"),
        ([], "expected a list of one reward, got 0"),
        ([None], "expected a number, got None"),
        (["1"], "expected a number, got str"),
        ([float("nan")], "expected a finite reward, in the answer `NaN`"),
    ],
)
def test_what_is_no_reward_names_row_and_completion(tmp_path: Path, answer: Any, said: str) -> None:
    with pytest.raises(hapo.Error) as refused:
        with_reward(tmp_path, "a", lambda completions, rows: answer)
    assert said in str(refused.value)
    assert "python:test_train" in str(refused.value)


def test_a_reward_that_raises_stops_the_run_with_everything_saved(tmp_path: Path) -> None:
    whole = with_reward(tmp_path, "own", own)
    calls = []

    def broken(completions: list[str], rows: list[Any]) -> list[float]:
        calls.append(rows[0]["id"])
        if len(calls) == 40:
            raise RuntimeError("out of rewards")
        return own(completions, rows)

    broken.__qualname__ = "own"
    with pytest.raises(hapo.Error, match=r"RuntimeError: out of rewards \(row 'r\d+', completion '") as stopped:
        with_reward(tmp_path, "broken", broken)
    assert isinstance(stopped.value.__cause__, hapo.Error)
    assert isinstance(stopped.value.__cause__.__cause__, RuntimeError)
    assert list(hapo.Run(tmp_path / "broken").checkpoints) == [2]
    assert weights(with_reward(tmp_path, "broken", own)) == weights(whole)
    calls.clear()
    goes_on = with_reward(tmp_path, "goes-on", broken, **{"reward.on_failure": "wrong"})
    assert np.nansum(goes_on.metrics["reward/failed"]) == 1


def test_what_on_step_raises_ends_the_run_after_saving_it(tmp_path: Path) -> None:
    def raises(step: int, metrics: Any) -> None:
        raise LookupError("no such number")

    with pytest.raises(LookupError, match="no such number"):
        small(tmp_path, "a", on_step=raises)
    assert list(hapo.Run(tmp_path / "a").checkpoints) == [1]


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_ctrl_c_saves_and_returns(tmp_path: Path) -> None:
    def interrupts(step: int, metrics: Any) -> None:
        if step == 1:
            signal.raise_signal(signal.SIGINT)

    run = small(tmp_path, "a", on_step=interrupts)
    assert run.outcome is not None
    assert (run.outcome["interrupted"], list(run.checkpoints)) == (True, [run.outcome["steps"]])
    assert run.outcome["steps"] < 3


def test_two_runs_in_two_threads_do_not_disturb_each_other(tmp_path: Path) -> None:
    alone = [small(tmp_path, f"alone-{seed}", seed=seed) for seed in (1, 2)]
    runs: dict[int, hapo.Run] = {}

    def train(seed: int) -> None:
        runs[seed] = small(tmp_path, f"beside-{seed}", seed=seed)

    threads = [threading.Thread(target=train, args=(seed,)) for seed in (1, 2)]
    for it in threads:
        it.start()
    counted = 0
    while any(it.is_alive() for it in threads):
        counted += 1
    for it in threads:
        it.join()
    assert counted > 1000, "Python goes on while the engine works"
    assert [weights(runs[1]), weights(runs[2])] == [weights(it) for it in alone]


FORKS = """
import json, os, sys, hapo

def reward(completions, rows):
    if rows[0]["id"] == "r3" and not seen:
        seen.append(os.fork())
    return [len(it) % 3 / 2 for it in completions]

def on_step(step, metrics):
    if step == 2:
        seen.append(os.fork())

seen = []
recipe, rows, folder = json.loads(sys.stdin.read())
hapo.train(recipe, data=rows, reward=reward, run_dir=folder, quiet=True, on_step=on_step)
print([os.WEXITSTATUS(os.waitpid(it, 0)[1]) for it in seen])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_copy_of_the_process_never_goes_on_with_the_run(tmp_path: Path) -> None:
    expected = with_reward(tmp_path, "whole", of_lengths)
    recipe = {**SMALL, "method": "grpo", "data": {"max_prompt_tokens": 64, "truncated": "grade"}}
    given = json.dumps([recipe, ROWS, str(tmp_path / "forks")])
    done = subprocess.run([sys.executable, "-c", FORKS], input=given, text=True, capture_output=True, check=True)
    assert done.stdout == "[70, 70]\n", "one line, of the process that began"
    assert "the reward function forked, and its copy came back" in done.stderr
    assert "on_step forked, and its copy came back" in done.stderr
    assert weights(hapo.Run(tmp_path / "forks")) == weights(expected)


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_run_that_is_killed_resumes_to_the_same_bits(tmp_path: Path) -> None:
    whole = small(tmp_path, "whole", reward="math")
    code = (
        "import json, os, signal, sys, hapo\n"
        "def on_step(step, metrics):\n"
        "    if step == 3:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "recipe = json.loads(sys.argv[1])\n"
        "hapo.train(recipe, run_dir=sys.argv[2], reward='math', quiet=True, on_step=on_step)\n"
    )
    recipe = json.dumps(SMALL)
    killed = subprocess.run([sys.executable, "-c", code, recipe, str(tmp_path / "killed")], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert weights(small(tmp_path, "killed", reward="math")) == weights(whole)
