"""The judge: what of an answer it reads, what an adapter declares, and that `lossproof run` and pytest agree."""

from __future__ import annotations

import ast
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lossproof
from lossproof import cases, cli, reference
from lossproof.run import Declared, judge

PPO = lossproof.load("agg/token-mean/ppo")


def answering(change):
    """The reference with changed answers."""

    def step(case, cut):
        return change(reference.step(case, cut), case, cut)

    return step


@pytest.mark.parametrize(
    ("loss", "verdict"),
    [
        (lambda it: 2 * it + 1, "different"),
        (lambda it: it + 1e-5, "different"),
        (lambda it: -it, "different"),
        (lambda it: math.nan, "different"),
        (lambda it: math.inf, "different"),
        (lambda it: it * (1 + 1e-8), "equal"),
        (lambda it: None, "exact"),
    ],
)
def test_the_loss_is_judged_as_the_gradient_is(loss, verdict):
    record = judge(answering(lambda it, *_: {**it, "loss": loss(it["loss"])}), PPO)
    assert (record["verdict"], record["passed"]) == (verdict, verdict != "different")
    assert record["because"] == ("the loss" if verdict == "different" else "")


def test_a_loss_that_one_cut_changes_is_cut_dependent():
    wrong = answering(lambda it, case, cut: {**it, "loss": it["loss"] * (1 + (cut["name"] == "6x1"))})
    record = judge(wrong, PPO)
    assert (record["verdict"], record["because"], record["failed"]) == ("cut-dependent", "the loss", ["6x1"])


def test_a_loss_whose_value_means_nothing_is_one_number_all_the_same():
    case = lossproof.load("agg/reinforce")
    free = answering(lambda it, *_: {**it, "loss": 17.0})
    assert judge(free, case)["verdict"] == "exact"
    by_cut = answering(lambda it, case, cut: {**it, "loss": float(len(cut["steps"][0][0]))})
    assert judge(by_cut, case)["verdict"] == "cut-dependent"
    assert not judge(answering(lambda it, *_: {**it, "loss": math.nan}), case)["passed"]


def test_a_batch_without_a_token_has_loss_0():
    case = lossproof.load("law/dead-batch/token-mean")
    assert judge(reference.step, case)["verdict"] == "exact"
    for loss in (math.nan, 1e-3):
        assert not judge(answering(lambda it, *_, loss=loss: {**it, "loss": loss}), case)["passed"]


def test_both_calls_of_a_law_have_one_loss():
    case = lossproof.load("law/micro-batches/token-mean")
    seen = []

    def step(case, cut):
        seen.append(cut)
        answer = reference.step(case, cut)
        return {**answer, "loss": answer["loss"] + len(seen) % 2}

    assert not judge(step, case)["passed"]


def test_another_definition_passes_where_it_is_declared():
    case = lossproof.load("adv/std")
    other = {**case, "hyper": {"baseline": "mean", "std": {"ddof": 0, "epsilon": 1e-6}}}
    step = lambda *_: reference.step(other, None)  # noqa: E731
    for definitions, passed in (
        ({}, False),
        ({"adv/std": "n, epsilon 1e-06"}, True),
        ({"adv": "n, epsilon 1e-06"}, True),
        ({"adv/std": "n-1, epsilon 1e-08"}, False),
        ({"adv/std": "no such variant"}, False),
    ):
        record = judge(step, case, Declared(definitions=definitions))
        assert record["passed"] is passed, record
        assert bool(record["failed"]) is not passed
    assert "declare it" in judge(step, case)["because"]
    right = judge(reference.step, case, Declared(definitions={"adv/std": "n, epsilon 1e-06"}))
    assert (right["verdict"], right["passed"]) == ("exact", False)


def test_what_is_covered_is_answered():
    def step(case, cut):
        raise lossproof.NotApplicable("not today")

    assert judge(step, PPO)["passed"]
    assert judge(step, PPO, Declared(covers=("adv/",)))["passed"]
    record = judge(step, PPO, Declared(covers=("adv/", "agg/")))
    assert (record["verdict"], record["passed"], len(record["failed"])) == ("n/a", False, len(PPO["cuts"]))


@pytest.mark.parametrize(("slope", "passed"), [(0.0, True), (math.nan, False), (1e-30, False), (math.inf, False)])
def test_slopes_of_padded_places_are_0(slope, passed):
    case = lossproof.load("law/padding-nan/cispo")
    step = answering(lambda it, *_: {**it, "padded": [[0.0, slope], []]})
    assert judge(step, case)["passed"] is passed


def padded_adapter(keep):
    """CISPO on padded rows in numpy; `keep` is what it does with places that hold no token."""

    def step(case, cut):
        if case["hyper"].get("surrogate") != "cispo" or case.get("layout", {}).get("pad", "right") != "right":
            raise lossproof.NotApplicable("CISPO, padded at the right")
        rows = [i for micro in lossproof.micro_batches(cut) for i in micro]
        batch, fill = case["batch"], case.get("layout", {}).get("fill", {})
        width = max(map(len, batch["logp"])) + 1

        def table(name):
            return np.array([batch[name][i] + [fill.get(name, 0.0)] * (width - len(batch[name][i])) for i in rows])

        mask = np.array([batch["mask"][i] + [0] * (width - len(batch["mask"][i])) for i in rows])
        advantage = np.array([batch["advantage"][i] for i in rows])[:, None]
        with np.errstate(all="ignore"):
            slopes = keep(mask, -advantage * np.clip(np.exp(table("logp") - table("old_logp")), 0.8, 1.2)) / mask.sum()
        grad = [slopes[rows.index(i)][: len(row)].tolist() for i, row in enumerate(batch["logp"])]
        padded = [slopes[rows.index(i)][len(row) :].tolist() for i, row in enumerate(batch["logp"])]
        return {"loss": None, "grad": grad, "padded": padded}

    return step


def test_padding_that_is_multiplied_is_found():
    ids = ("law/padding-nan/cispo", "law/padding-nan/old", "law/masked-nan/cispo", "agg/cispo/both")
    cases = [lossproof.load(name) for name in ids]
    chosen = lossproof.run(padded_adapter(lambda mask, it: np.where(mask > 0, it, 0.0)), cases)
    assert [it["verdict"] for it in chosen] == ["exact"] * 4
    multiplied = lossproof.run(padded_adapter(lambda mask, it: mask * it), cases)
    assert [it["passed"] for it in multiplied] == [False, False, False, True]
    assert "padded" in multiplied[0]["because"]


ADAPTER = """
import math
from lossproof import NotApplicable, Refused, reference
{declared}
def step(case, cut):
    answer = reference.step({case}, cut)
    {change}
    return answer
"""


@pytest.mark.parametrize(
    ("declared", "case", "change", "code"),
    [
        ("", "case", "pass", 0),
        ("", "case", "answer['loss'] = 2 * answer['loss'] + 1 if answer.get('loss') else None", 1),
        ("", "case", "answer['loss'] = math.nan", 1),
        ("covers = ['adv/']", "case", "raise NotApplicable('nothing')", 1),
        ("covers = ['tis/']", "case", "raise NotApplicable('nothing')", 0),
        ("", "{**case, 'hyper': {**case['hyper'], 'std': {'ddof': 0, 'epsilon': 0.0}}} if case['id'].startswith('adv/std') else case",
         "pass", 1),
        ("definitions = {'adv/std': 'n, epsilon 0'}",
         "{**case, 'hyper': {**case['hyper'], 'std': {'ddof': 0, 'epsilon': 0.0}}} if case['id'].startswith('adv/std') else case",
         "pass", 0),
        ("definitions = {'adv/std': 'n, epsilon 0'}", "case", "pass", 1),
        ("expected_failures = {'adv/mean': {'link': 'x', 'until': '9999-12-31'}}", "case",
         "answer = {'advantage': [0.5] * 10} if case['id'] == 'adv/mean' else answer", 0),
        ("expected_failures = {'adv/mean': {'link': 'x', 'until': '2020-01-01'}}", "case",
         "answer = {'advantage': [0.5] * 10} if case['id'] == 'adv/mean' else answer", 1),
        ("", "case", "answer = {} if case['id'] == 'adv/mean' else answer", 0),
        ("covers = ['adv/']", "case", "answer = {} if case['id'] == 'adv/mean' else answer", 1),
        ("", "case", "answer = None if case['id'] == 'adv/mean' else answer", 1),
        ("", "case", "answer = 1 / 0 if case['id'] == 'adv/mean' else answer", 1),
    ],
)  # fmt: skip
def test_run_and_pytest_are_one_judge(declared, case, change, code, tmp_path):
    (tmp_path / "mine.py").write_text(ADAPTER.format(declared=declared, case=case, change=change))
    run = [
        sys.executable,
        "-m",
        "lossproof",
        "run",
        "--adapter",
        "mine:step",
        "--case",
        "adv/",
        "--case",
        "agg/gmpo",
    ]
    test = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--lossproof",
        "mine:step",
        "-k",
        "adv or gmpo",
    ]
    path = ":".join(it for it in sys.path if it)
    got = [
        subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={"PYTHONPATH": path})
        for command in (run, test)
    ]
    assert [it.returncode for it in got] == [code, code], [it.stdout[-1500:] + it.stderr[-500:] for it in got]


def test_an_error_says_where_it_came_from(tmp_path, monkeypatch, capsys):
    (tmp_path / "broken.py").write_text("def step(case, cut):\n    return cut[0]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert cli.main(["run", "--adapter", "broken:step", "--case", "agg/reinforce"]) == 1
    out, err = capsys.readouterr()
    assert "KeyError: 0 (broken.py:2)" in out
    assert "Traceback" not in err
    assert "--traceback" in err
    assert cli.main(["run", "--adapter", "broken:step", "--case", "agg/reinforce", "--traceback"]) == 1
    assert 'broken.py", line 2, in step' in capsys.readouterr().err


def test_answers_may_begin_with_declarations(tmp_path, capsys):
    file = tmp_path / "answers.jsonl"
    file.write_text('{"covers": ["adv/mean"]}\n')
    assert cli.main(["run", "--answers", str(file), "--case", "adv/mean"]) == 1
    assert "covers" in capsys.readouterr().out
    file.write_text('{"covers": []}\n')
    assert cli.main(["run", "--answers", str(file), "--case", "adv/mean"]) == 0


def test_show_prints_what_a_case_gives(capsys):
    for name, words in {
        "agg/token-mean/ppo": ["logp", "old_logp", "advantage", "4+2", "loss       0.1107308147"],
        "adv/std": ["reward", "group", "registered n, epsilon 0"],
        "entropy/bonus": ["entropy", "grad_entropy"],
        "teacher/mixing-schedule/warm-up": ["steps      [0, 1, 4"],
        "adv/nan-reward/std": ["nan", "member-out", "refused"],
        "temperature/both": ["logits"],
        "adv/group-of-one/std": ["may_refuse"],
    }.items():
        assert cli.main(["show", name]) == 0
        shown = capsys.readouterr().out
        assert all(word in shown for word in words), (name, shown)


def test_definitions_of_shipped_adapters_are_registered():
    """Read from their source, since no engine is installed here."""
    declared = {}
    for path in (Path(lossproof.__file__).parent / "adapters").glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "definitions":
                declared[path.stem] = ast.literal_eval(node.value)
    assert len(declared) > 5
    for name, definitions in declared.items():
        meant = {case["id"]: Declared(definitions).definition(case) for case in cases.load_all()}
        registered = {case["id"]: case.get("variants", {}) for case in cases.load_all()}
        unknown = [key for key, it in meant.items() if it is not None and it not in registered[key]]
        assert not unknown, name
        unused = set(definitions.values()) - set(meant.values())
        assert not unused, name
