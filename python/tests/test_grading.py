"""Verdicts: equal to the binary's on the tables of the tests, from threads, after a fork, while others run."""

from __future__ import annotations

import json
import multiprocessing
import pickle
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import hapo
from conftest import ROOT

TABLES = sorted((ROOT / "verifier/hapo-verify/tests/it/tables").glob("*.md"))


def rows() -> list[tuple[str, str]]:
    """Gold and completion of every row of the tables."""
    found = []
    for table in TABLES:
        for line in table.read_text().splitlines():
            cells = [it.strip() for it in line.strip().strip("|").split(" | ")]
            if line.startswith("|") and len(cells) >= 3 and not set(cells[0]) <= set("-: "):
                found.append((cells[0].strip("`"), cells[1].strip("`")))
    return found


def test_verdicts_are_three() -> None:
    assert hapo.grade("7", r"\boxed{7}")
    assert hapo.grade("7", r"\boxed{7}").name == "correct"
    wrong = hapo.grade("7", r"\boxed{8}")
    assert (bool(wrong), wrong.name, wrong.reason, wrong.reward) == (False, "wrong", "different", 0.0)
    none = hapo.grade("7", "no idea")
    assert (none.name, none.reason) == ("unparsable", "no answer found")


def test_any_of_several_gold_answers_counts() -> None:
    assert hapo.grade(["7", "8"], r"\boxed{8}")
    assert not hapo.grade(["7", "8"], r"\boxed{9}")
    assert [it.name for it in hapo.grade_many([["7", "8"], "7"], [r"\boxed{8}"] * 2)] == ["correct", "wrong"]


def test_what_counts_as_an_answer() -> None:
    """A number that happens to stand in a text is an answer to Math-Verify, and to no reward."""
    for text, expected in [
        (r"\boxed{7}", {"any": 1, "announced": 1, "boxed": 1}),
        ("The answer is 7.", {"any": 1, "announced": 1, "boxed": 0}),
        ("so 2 + 5 = 7 and then", {"any": 1, "announced": 0, "boxed": 0}),
        (r"<think>\boxed{7}", {"any": 1, "announced": 0, "boxed": 0}),
    ]:
        got = {it: int(bool(hapo.grade("7", text, extraction=it))) for it in expected}
        assert got == expected, text
        assert hapo.reward_trl([text], ["7"]) == [expected["announced"]]
        assert hapo.compute_score("math", text, "7") == expected["announced"]
        assert hapo.compute_score("math", text, "7", extraction="boxed") == expected["boxed"]
    assert hapo.grade("7", "<think> 7", extraction="announced").reason == "the thought is not closed"
    with pytest.raises(ValueError, match="extraction: expected one of boxed, announced, whole, any, got"):
        hapo.grade("7", "7", extraction="last")


def test_an_explanation_says_why() -> None:
    it = hapo.explain(r"\frac{1}{2}", r"Halving gives $x = \boxed{0.5}$.")
    assert it == "correct: '1/2' for '1/2': equal numbers"


def test_verdicts_of_both_packages_are_equal() -> None:
    hapo_verify = pytest.importorskip("hapo_verify")
    import hapo.verify

    for text in (r"\boxed{7}", r"\boxed{8}", "7 or 8", *REASONS):
        one, other = hapo.verify.verify("7", text), hapo_verify.verify("7", text)
        assert one == other
        assert hash(one) == hash(other)
        assert one != hapo_verify.verify("9", text)
        assert hapo.grade("7", text, "training") == other
    assert {hapo.verify.verify("7", "7"), hapo_verify.verify("7", "7")} == {hapo.verify.verify("7", "7")}


def test_the_drop_in_is_in_this_package_too() -> None:
    from hapo.verify.math_verify import LatexExtractionConfig, parse, verify

    assert verify(parse("$1/2$"), parse(r"\boxed{0.5}", [LatexExtractionConfig()]))
    assert not verify(parse("$1/2$"), parse(r"\boxed{0.6}"))


@pytest.mark.parametrize("grader", ["math", "oat", "exact"])
def test_verdicts_are_the_binarys(binary: str, grader: str) -> None:
    pairs = rows()
    assert len(pairs) > 200
    lines = "".join(json.dumps({"gold": gold, "pred": pred}) + "\n" for gold, pred in pairs)
    told = subprocess.run(
        [binary, "grade", "--grader", grader, "--extraction", "any"],
        input=lines,
        capture_output=True,
        text=True,
        check=False,
    )
    expected = [json.loads(line)["verdict"] for line in told.stdout.splitlines()]
    golds, completions = zip(*pairs, strict=True)
    for threads in (1, 3):
        got = hapo.grade_many(golds, completions, grader, threads=threads)
        assert [it.name for it in got] == expected
    assert [hapo.grade(*it, grader).name for it in pairs[:50]] == expected[:50]


def test_what_is_wrong_names_the_argument() -> None:
    with pytest.raises(ValueError, match=r"grader: .*maths.*math"):
        hapo.grade("7", "7", "maths")
    with pytest.raises(TypeError, match="completion: expected a str, got int"):
        hapo.grade("7", 7)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="gold: expected a str or a list of str, got NoneType"):
        hapo.grade(None, "7")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="gold: expected at least one"):
        hapo.grade([], "7")
    with pytest.raises(ValueError, match="completions: expected the shape of golds, 2, got 1"):
        hapo.grade_many(["1", "2"], ["1"])
    with pytest.raises(TypeError, match="golds: expected a list, got str"):
        hapo.grade_many("7", "7")
    with pytest.raises(ValueError, match="threads"):
        hapo.grade_many(["7"], ["7"], threads=0)
    with pytest.raises(ValueError, match="gold"):
        hapo.check_gold("")


REASONS = {
    "no idea": "no answer found",
    r"\boxed{7": "the last box is not closed",
    r"<think>\boxed{7}": "the thought is not closed",
    r"\boxed{\frac{}}": "the answer cannot be read",
    r"\boxed{" + r"\frac{1}{" * 200 + "3" + "}" * 200 + "}": "the answer exceeds the bounds",
}


def test_every_reason_keeps_its_words_in_one_call() -> None:
    verdicts = hapo.grade_many(["7"] * len(REASONS), list(REASONS), extraction="boxed")
    assert [it.reason for it in verdicts] == list(REASONS.values())


@pytest.mark.parametrize("text", REASONS, ids=REASONS.values())
def test_every_reason_is_the_same_from_every_door(text: str) -> None:
    one = hapo.grade("7", text, extraction="boxed")
    assert (one.name, one.reason) == ("unparsable", REASONS[text])
    assert hapo.grade_many(["7", "7"], [text, text], extraction="boxed") == [one, one]
    assert REASONS[text] in hapo.explain("7", text, extraction="boxed")
    assert pickle.loads(pickle.dumps(one)) == one


@contextmanager
def another_thread() -> Iterator[list[int]]:
    """Another thread, and how often it has had its turn."""
    turns, done = [0], threading.Event()

    def count() -> None:
        while not done.is_set():
            turns[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        yield turns
    finally:
        done.set()
        thread.join()


def test_other_threads_run_while_a_million_pairs_are_graded() -> None:
    """Two seconds of work in one call; the other thread turns all the while."""
    golds, completions = ["7"] * 1_000_000, [r"\boxed{7}", r"\boxed{8}"] * 500_000
    with another_thread() as turns:
        verdicts = hapo.grade_many(golds, completions, threads=1)
    assert sum(map(bool, verdicts)) == 500_000
    assert turns[0] > 50


def test_models_output_is_data() -> None:
    assert hapo.grade("7", "\ud800 \\boxed{7}")
    assert hapo.grade("7", "\0" * 1000).name == "unparsable"
    assert hapo.grade("7", "\\boxed{" * 100_000).name == "unparsable"
    assert hapo.grade_many([], []) == []


def test_verdicts_and_schedules_are_pickled() -> None:
    for it in (hapo.grade("7", "7"), hapo.grade("7", "no")):
        assert pickle.loads(pickle.dumps(it)) == it
        assert hash(pickle.loads(pickle.dumps(it))) == hash(it)
    schedule = hapo.Schedule(8, 62, success_limit=2, turn_off_epoch=1.5, steepness="7.5")
    again = pickle.loads(pickle.dumps(schedule))
    assert again.table(200) == schedule.table(200)


def grade_in_child(queue) -> None:
    queue.put([it.name for it in hapo.grade_many(["7"] * 200, [r"\boxed{7}"] * 200)])


def test_a_forked_process_grades() -> None:
    assert all(hapo.grade_many(["7"] * 200, [r"\boxed{7}"] * 200))
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=grade_in_child, args=(queue,))
    child.start()
    assert queue.get(timeout=60) == ["correct"] * 200
    child.join(60)
    assert child.exitcode == 0


def test_other_threads_run_meanwhile() -> None:
    # One text of three megabytes: one call, of which all but the first moment holds no lock.
    text = r"so $x = \frac{1}{3}$, " * 140_000
    with another_thread() as turns:
        before = turns[0]
        for _ in range(5):
            hapo.grade("7", text)
        during = turns[0] - before
    assert during > 3


def test_rewards_of_trainers() -> None:
    conversation = [{"role": "assistant", "content": r"\boxed{7}"}]
    assert hapo.reward_trl([r"\boxed{7}", conversation, "?"], ["7", "7", "7"], prompts=[]) == [1.0, 1.0, 0.0]
    assert hapo.compute_score("math", r"\boxed{7}", "7", None, split="train") == 1.0
    assert hapo.compute_score("math", r"\boxed{7}", np.array(["6", "7"])) == 1.0
    assert hapo.compute_score("math", r"\boxed{7}", 8) == 0.0
