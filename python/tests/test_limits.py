"""No call ends the interpreter, hangs or changes weights to no number: 5,000 random calls, in a process of its own."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hapo

CALLS = r"""
import random, resource, sys
import numpy as np
import hapo
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
draw = random.Random(int(sys.argv[1]))
model = hapo.load("builtin:base", context=64)
prompts = model.prompts([{"problem": "1+1=?", "answer": "2"}], max_prompt_tokens=32, max_tokens=8)
nan = float("nan")
numbers = [0, 1, 2, 3, 7, -1, 2**31, 2**32 + 10, 2**62, 2**63, 2**64, -(2**63), 1.5, nan, float("inf"),
           1e308, None, "a", b"a", [], {}]
arrays = [np.array([10.9]), np.array([2**32 + 10]), np.array([-4294967286]), np.array([], np.int64),
          np.ones((2, 2), np.int64), np.array(["a"]), np.array([3, 4], np.uint8), [1, 2], (3,), "text", None,
          np.array([2**62] * 4), np.array([nan])]
n, a = lambda: draw.choice(numbers), lambda: draw.choice(arrays)
schedule = hapo.Schedule(8, 10, turn_off_epoch=2)
calls = [
    lambda: model.text(a()),
    lambda: model.log_probs([a()], [a()], temperature=n(), top=n()),
    lambda: model.sample(prompts, n(), max_tokens=n(), temperature=n(), seed=n()) if draw.random() < 0.1 else None,
    lambda: model.update(n(), betas=(n(), n()), eps=n(), weight_decay=n(), max_norm=n()),
    lambda: model.prompts([{"problem": "a", "answer": n()}], max_prompt_tokens=n(), max_tokens=n()),
    lambda: hapo.order(n(), n(), n(), seed=n()),
    lambda: hapo.task({"multiply": n()}, n(), seed=n(), teacher_coverage=n()),
    lambda: schedule.success_limit(n()),
    lambda: schedule.threshold(n()),
    lambda: schedule.table(n()),
    lambda: hapo.Schedule(n(), n(), success_limit=n(), gamma0=n(), turn_off_epoch=n(), steepness=n()),
    lambda: hapo.divisor(draw.choice(["token-mean", "constant", "length", "a"]), a(), n()),
    lambda: hapo.grade(a(), a()),
    lambda: hapo.grade_many(a(), a(), threads=n()),
    lambda: hapo.load("builtin:base", context=n(), threads=n(), micro_batch_tokens=n())
    if draw.random() < 0.1 else None,
]
for _ in range(int(sys.argv[2])):
    try:
        draw.choice(calls)()
    except Exception:
        pass
assert all(np.isfinite(it.log_probs).all() for it in model.log_probs(["1+1"], ["=2"]))
print("done")
"""


@pytest.mark.parametrize("seed", range(5))
def test_random_calls_end_in_answers_or_exceptions(seed: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CALLS, str(seed), "1000"], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "done"), done.stderr[-2000:]


@pytest.mark.parametrize(
    "call",
    [
        lambda model: hapo.load("builtin:base", context=2**30),
        lambda model: hapo.load("builtin:base", threads=100_000),
        lambda model: hapo.order(1, 2**31, 1),
        lambda model: model.update(lr=float("nan")),
        lambda model: model.text(np.array([2**32 + 10])),
        lambda model: model.text(np.array([-4294967286])),
        lambda model: hapo.divisor("token-mean", np.array([2**62] * 4)),
    ],
)
def test_what_is_out_of_bounds_is_a_value_error(call: Any) -> None:
    with pytest.raises(ValueError, match="expected"):
        call(hapo.load("builtin:base", context=64))


def test_a_fraction_is_no_token() -> None:
    with pytest.raises(TypeError, match="expected a list of integers"):
        hapo.load("builtin:base", context=64).text([10.9])


def test_a_function_has_no_time_limit(tmp_path: Path) -> None:
    recipe = {"method": "grpo", "steps": 1, "model": {"path": "builtin:base"}, "reward": {"timeout": 1}}
    with pytest.raises(hapo.Error, match=r"reward\.timeout"):
        hapo.train(recipe, reward=lambda completions, rows: [1.0], run_dir=tmp_path / "R")
