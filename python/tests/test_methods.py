"""Methods in Python: the bits of their Rust files, the laws, and what is refused."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hapo
from conftest import ROOT

spec = importlib.util.spec_from_file_location("methods", ROOT / "examples/python/methods.py")
methods = importlib.util.module_from_spec(spec)
sys.modules["methods"] = methods
spec.loader.exec_module(methods)

SMALL: dict[str, Any] = {
    "steps": 16,
    "model": {"path": "builtin:base"},
    "data": {"prompts": 16, "levels": ["linear:4"], "max_prompt_tokens": 32, "teacher_coverage": 0.5},
    "sampling": {"group_size": 4, "prompts_per_step": 4, "max_new_tokens": 96},
    "optim": {"lr": 1e-4},
    "checkpoint": {"every": 0},
}
TINY: dict[str, Any] = {
    "steps": 3,
    "model": {"init": {"hidden": 32, "layers": 2, "heads": 4, "kv_heads": 2, "ffn": 64, "std": 0.3}},
    "data": {"prompts": 8, "levels": ["linear:4"], "max_prompt_tokens": 32, "teacher_coverage": 0.5},
    "sampling": {"group_size": 4, "prompts_per_step": 4, "max_new_tokens": 96},
    "checkpoint": {"every": 0},
}
SWITCH = {"injection": "replay", "annealing": "off"}


def weights(run: hapo.Run) -> str:
    return hashlib.sha256((max(run.checkpoints.items())[1] / "model.safetensors").read_bytes()).hexdigest()


def tiny(tmp_path: Path, method: Any, **more: Any) -> hapo.Run:
    return hapo.train(TINY, method=method, run_dir=tmp_path / "tiny", quiet=True, **more)


@pytest.mark.parametrize(
    ("rust", "python", "keys"),
    [
        ("grpo", methods.Grpo, {}),
        ("luffy", methods.Luffy, {}),
        ("luffy", hapo.Gated(methods.Luffy, turn_off_epoch=2), {"hapo": {"turn_off_epoch": 2}}),
        ("uft", "my-uft", {}),
        ("luffy", methods.Replay, {"hapo": SWITCH}),
    ],
    ids=["grpo", "luffy", "luffy-hapo", "uft", "replay"],
)
def test_a_method_in_python_has_the_bits_of_its_rust_file(tmp_path, rust: str, python: Any, keys: Any) -> None:
    expected = hapo.train(SMALL, method=rust, run_dir=tmp_path / "rust", quiet=True, **keys)
    run = hapo.train(SMALL, method=python, run_dir=tmp_path / "python", quiet=True)
    assert weights(run) == weights(expected)
    assert run.metrics["loss"].tolist() == expected.metrics["loss"].tolist()
    assert np.abs(run.metrics["loss"]).sum() > 0
    if rust != "grpo":
        what = "gate/beta" if python is methods.Replay else "teacher/loss"
        assert np.abs(run.metrics[what]).sum() > 0


class MyEdge:
    """``edge.rs``: a response's advantage over its entropy relative to the group's."""

    needs = hapo.Needs(entropies=True)

    def credit(self, group: hapo.Group) -> hapo.Credit:
        entropies = np.array([sum(map(float, it)) / len(it) for it in group.entropies])
        factors = np.clip(hapo.mean(entropies) / entropies, 0.1, 10.0)
        return (group.rewards - hapo.mean(group.rewards)) * factors


class RlZvp:
    """The sheet's credit of RL-ZVP: entropies are the advantages of groups whose rewards are all equal."""

    needs = hapo.Needs(entropies=True)

    def credit(self, group: hapo.Group) -> hapo.Credit:
        if group.successes == len(group):
            return [0.1 * it for it in group.entropies]
        if group.successes == 0:
            return [-0.1 * (it.max() - it) for it in group.entropies]
        return group.rewards - hapo.mean(group.rewards)


def test_token_entropies_are_those_of_the_engine(tmp_path) -> None:
    expected = hapo.train(SMALL, method="edge", run_dir=tmp_path / "rust", quiet=True)
    run = hapo.train(SMALL, method=MyEdge, run_dir=tmp_path / "python", quiet=True)
    assert weights(run) == weights(expected)
    assert np.abs(run.metrics["loss"]).sum() > 0
    # All groups fail, and have a gradient.
    zvp = tiny(tmp_path, RlZvp)
    assert zvp.metrics["reward/policy_only"].sum() == 0
    assert (zvp.metrics["grad_norm"] > 0).all()
    assert hapo.check_method(MyEdge)
    assert hapo.check_method(RlZvp)


@hapo.method("scaled-luffy", settings={"scale": 1.0})
class Scaled:
    """A Rust method inside a Python one."""

    plan = hapo.Plan(gate="always", slot="fixed")

    def __init__(self, scale: float) -> None:
        self.scale, self.luffy = scale, hapo.Method("luffy", 4)

    def credit(self, group: hapo.Group) -> hapo.Credit:
        spans = self.luffy.credit(group)
        return [[self.scaled(it) for it in of_member] for of_member in spans]

    def scaled(self, it: hapo.Policy | hapo.Teacher) -> hapo.Policy | hapo.Teacher:
        return hapo.Policy(self.scale * it.advantage) if isinstance(it, hapo.Policy) else it


def test_a_rust_method_is_called_from_a_python_one_and_settings_come_from_the_recipe(tmp_path) -> None:
    luffy = hapo.train(TINY, method="luffy", run_dir=tmp_path / "rust", quiet=True)
    assert weights(hapo.train(TINY, method=Scaled(1.0), run_dir=tmp_path / "a", quiet=True)) == weights(luffy)
    recipe = {**TINY, "method": "scaled-luffy", "scaled-luffy": {"scale": 2}}
    half = hapo.train(recipe, run_dir=tmp_path / "b", quiet=True)
    assert weights(half) != weights(luffy)
    assert "[scaled-luffy]\nscale = 2" in half.recipe
    with pytest.raises(hapo.Error, match="unknown key `scales`, expected one of `scale`") as unknown:
        hapo.train({**recipe, "scaled-luffy": {"scales": 2}}, run_dir=tmp_path / "c", quiet=True)
    assert unknown.value.key == "scaled-luffy.scales"
    with pytest.raises(hapo.Error, match=r"expected a float like 1\.0, got 'two'"):
        hapo.train({**recipe, "scaled-luffy": {"scale": "two"}}, run_dir=tmp_path / "c", quiet=True)
    with pytest.raises(hapo.Error, match="is for method"):
        hapo.train({**recipe, "method": "grpo"}, run_dir=tmp_path / "c", quiet=True)
    with pytest.raises(hapo.Error, match="does not read it"):
        hapo.train(recipe, teacher={"d": 0.2}, run_dir=tmp_path / "c", quiet=True)


def test_the_laws_hold_for_the_examples_and_what_breaks_one_is_named(capsys) -> None:
    for it in (methods.Grpo, methods.Luffy, methods.Replay, Scaled(1.0)):
        assert hapo.check_method(it), capsys.readouterr().out

    class Forgets:
        def __init__(self) -> None:
            self.calls = 0

        def credit(self, group: hapo.Group) -> hapo.Credit:
            self.calls += 1
            return group.rewards * self.calls

    class ByPlace:
        def credit(self, group: hapo.Group) -> hapo.Credit:
            return group.rewards + np.arange(len(group))

    class Short:
        def credit(self, group: hapo.Group) -> hapo.Credit:
            return group.rewards[1:]

    capsys.readouterr()
    assert not hapo.check_method(Forgets)
    assert "repeats      Group(" in capsys.readouterr().out
    assert not hapo.check_method(ByPlace)
    assert "permutation  Group(" in capsys.readouterr().out
    assert not hapo.check_method(Short)
    assert "shape        expected credit for 6 members, got 5" in capsys.readouterr().out


def thread(group: hapo.Group) -> Any:
    threading.Thread(target=time.sleep, args=(1,)).start()
    return group.rewards


def fork(group: hapo.Group) -> Any:
    if os.fork() == 0:
        os._exit(0)
    return group.rewards


@pytest.mark.parametrize(
    ("credit", "said"),
    [
        (lambda group: None, "expected credit for 4 members, got None"),
        (lambda group: group.rewards[:2], "expected credit for 4 members, got 2"),
        (lambda group: [0.0] * 5, "expected credit for 4 members, got 5"),
        (lambda group: np.zeros((4, 2)), r"got an array of shape \(4, 2\)"),
        (lambda group: group.rewards * np.nan, "member 0: advantage: expected a finite number, got nan"),
        (lambda group: ["a"] * 4, "member 0: advantage: expected a number, got str"),
        (lambda group: [np.zeros(99)] * 4, r"member 0: expected one advantage for each of \d+ tokens, got \(99,\)"),
        (lambda group: [hapo.Policy(0.0, tokens=(0, 99))] * 4, "member 0: expected tokens within 0 and"),
        (lambda group: [[hapo.Policy(0.0), hapo.Policy(1.0)]] * 4, "member 0: expected spans apart"),
        (
            lambda group: [hapo.Teacher(1.0, "lufy")] * 4,
            "operator: expected one of luffy, srft, trapo, chord, got 'lufy'",
        ),
        (lambda group: [hapo.Teacher(-1.0)] * 4, "weight: expected a number from 0, got -1.0"),
        (lambda group: [hapo.Policy(0.0, ratio="two")] * 4, "ratio: expected recorded, rescored or one, got 'two'"),
        (lambda group: 1 / 0, "ZeroDivisionError: division by zero"),
        (thread, "it left a thread running"),
        pytest.param(fork, "it forked", marks=pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")),
    ],
)
def test_what_is_no_credit_names_the_method_and_the_group(tmp_path, credit: Any, said: str) -> None:
    class Mine:
        def credit(self, group: hapo.Group) -> Any:
            return credit(group)

    expected = rf"method `mine`, credit, group of prompt \d+, step 1: .*{said}"
    with pytest.raises(hapo.Error, match=expected) as refused:
        tiny(tmp_path, Mine)
    if "Division" in said:
        assert isinstance(refused.value.__cause__.__cause__, ZeroDivisionError)


def test_other_hooks_are_checked_too(tmp_path) -> None:
    class Base:
        def credit(self, group: hapo.Group) -> hapo.Credit:
            return group.rewards

    names = (f"run-{it}" for it in range(99))

    def refuses(said: str, **hooks: Any) -> None:
        with pytest.raises(hapo.Error, match=said):
            hapo.train(TINY, method=type("Mine", (Base,), hooks), run_dir=tmp_path / next(names), quiet=True)

    def grows(said: str, part: Any) -> None:
        refuses(rf"method `mine`, grow, group of prompt \d+, step 1, part 0: {said}", grow=lambda it, group: part)

    def mixes(said: str, entries: Any) -> None:
        refuses(rf"method `mine`, mix, group of prompt \d+, step 1: {said}", mix=lambda it, group: entries)

    grows("expected a hapo.Part or None, got int", 3)
    grows("expected no prefix of a method whose needs name none", hapo.Part(1, teacher_prefix=1))
    grows("hint: expected one of 0", hapo.Part(1, hint=0))
    grows("response: expected a rollout of 0, got 0", hapo.Part(1, response=0))
    mixes("expected a list of hapo.Entry, got None", None)
    mixes("slot: expected one of 4 members, got 9", [hapo.Entry(9, tokens=[1], log_probs=[0.0])])
    mixes("log_probs: expected 2 finite numbers", [hapo.Entry(0, tokens=[1, 2], log_probs=[0.0])])
    refuses("method `mine`, remember, step 1: expected a memory of", remember=lambda it, memory, groups, step: None)
    refuses("member 0 is the teacher's: expected hapo.Teacher or None", plan=hapo.Plan(gate="always", slot="fixed"))
    refuses("plan: expected a hapo.Plan, got str", plan="always")
    with pytest.raises(hapo.Error, match=r"expected a name, or a class or an object with `credit\(group\)`, got int"):
        tiny(tmp_path, 3)
    with pytest.raises(hapo.Error, match="has no term for a teacher"):
        tiny(tmp_path, hapo.Gated(methods.Grpo, turn_off_epoch=1))
    with pytest.raises(ValueError, match="expected a new name, got that of a built-in method or section"):
        hapo.method("grpo")(Base)


def test_a_method_that_fails_later_leaves_everything_saved(tmp_path) -> None:
    class Mine(methods.Grpo):
        fails = True
        calls = 0

        def credit(self, group: hapo.Group) -> hapo.Credit:
            self.calls += 1
            if self.fails and group.step == 3:
                raise RuntimeError("no more")
            return super().credit(group)

    whole = hapo.train(TINY, method="grpo", run_dir=tmp_path / "rust", quiet=True)
    with pytest.raises(hapo.Error, match="step 3: RuntimeError: no more"):
        tiny(tmp_path, Mine)
    assert list(hapo.Run(tmp_path / "tiny").checkpoints) == [2]
    Mine.fails = False
    assert weights(tiny(tmp_path, Mine)) == weights(whole)


SOURCE = """
import hapo

class Mine:
    def remember(self, memory, groups, step):
        return {**memory, "seen": memory.get("seen", 0) + len(groups)}

    def credit(self, group):
        return group.rewards + group.memory.get("seen", 0) * FACTOR
"""


def load(path: Path, factor: str) -> Any:
    path.write_text(f"FACTOR = {factor}\n{SOURCE}")
    spec = importlib.util.spec_from_file_location("mine", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["mine"] = module
    return module.Mine


def test_a_resume_remembers_and_refuses_another_file_of_the_method(tmp_path) -> None:
    mine = load(tmp_path / "mine.py", "0.125")
    whole = hapo.train(TINY, method=mine, run_dir=tmp_path / "whole", quiet=True)
    tiny(tmp_path, mine, on_step=lambda step, _: step == 2)
    with pytest.raises(hapo.Error, match="begun with other inputs: the file of the method's code"):
        tiny(tmp_path, load(tmp_path / "mine.py", "0.25"))
    assert weights(tiny(tmp_path, load(tmp_path / "mine.py", "0.125"))) == weights(whole)


def test_core_numbers_are_the_engines() -> None:
    # Three tenths summed in order round; the mean of equal numbers is the number.
    assert hapo.mean([0.1] * 3) == 0.1
    assert hapo.mean([0.1, 0.2, 0.4]) == (0.1 + 0.2 + 0.4) / 3
    assert hapo.std([1.0, 0.0, 0.0, 1.0]) == np.sqrt(1 / 3)
    assert hapo.std([0.1] * 3) == 0.0
    rng, again = hapo.Rng("growth", 3, step=1), hapo.Rng("growth", 3, step=1)
    drawn = [rng.uniform(), rng.below(10), rng.normal()]
    assert drawn == [again.uniform(), again.below(10), again.normal()]
    assert 0 <= drawn[0] < 1
    with pytest.raises(ValueError, match="stream: unknown variant"):
        hapo.Rng("grow", 3)
