"""The small wheel: verdicts, the answer's place, many at once, and the command."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hapo_verify import POLICIES, Verdict, grade_batch, parse, verify


def test_a_verdict_says_why() -> None:
    it = verify(r"\frac{1}{2}", r"so \boxed{0.5}")
    assert it
    assert (it.correct, it.name, it.gold, it.answer) == (True, "correct", "1/2", "1/2")
    assert r"so \boxed{0.5}"[slice(*it.extracted_from)] == "0.5"
    assert verify("7", "no idea") == Verdict(False, "unparsable", "no answer found", "7", "", None)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("training", 0), ("benchmark", 0), ("math-verify", 1), ("math", 1), ("boxed", 0), ("oat", 0)],
)
def test_policies_differ_on_a_hedge(policy: str, expected: int) -> None:
    assert verify("7", "The answer is 7 or 8", policy=policy).correct == bool(expected)


def test_policies_for_plain_numbers() -> None:
    assert verify("1000", "6 times 7\n#### 1,000", policy="gsm8k")
    assert verify("7", r"\boxed{8}, then 7", policy="last-number")
    with pytest.raises(ValueError, match="policy: expected one of training"):
        verify("7", "7", policy="strict")


def test_too_large_is_a_verdict() -> None:
    deep = r"\boxed{" + r"\frac{1}{" * 200 + "3" + "}" * 200 + "}"
    for policy in POLICIES:
        assert not verify("7", deep, policy=policy)
        assert not verify("7", r"\boxed{((99999999!)!)!}", policy=policy)
        assert not verify("7", "\ud800", policy=policy)


def test_many_at_once_are_in_order() -> None:
    golds = ["7", ["8", "9"]] * 500
    for threads in (None, 1, 3):
        got = grade_batch(golds, [r"\boxed{7}", r"\boxed{9}"] * 500, threads=threads)
        assert all(got)
        assert got == [verify(gold, rf"\boxed{{{n}}}") for gold, n in zip(golds, [7, 9] * 500, strict=True)]
    with pytest.raises(ValueError, match="completions: expected the shape of golds, 1, got 0"):
        grade_batch(["7"], [])


def test_answers_are_parsed() -> None:
    assert parse(r"so \boxed{3 1/2}") is not None
    it = parse(r"so \boxed{3 1/2}")
    assert it is not None
    assert (it.normal, it.latex, it.found) == ("7/2", "3 1/2", "boxed")
    assert parse("") is None


def test_threads_and_pickles() -> None:
    found: list[Verdict] = []
    threads = [threading.Thread(target=lambda: found.append(verify("7", r"\boxed{7}"))) for _ in range(8)]
    for it in threads:
        it.start()
    for it in threads:
        it.join()
    assert len(set(found)) == 1
    assert pickle.loads(pickle.dumps(found[0])) == found[0]


def test_the_command_shows_where_labels_disagree(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    rows = [("7", r"\boxed{7}", True), ("7", r"\boxed{8}", True), ("7", "no idea", False)]
    file.write_text("".join(json.dumps({"g": g, "a": a, "ok": ok}) + "\n" for g, a, ok in rows))
    command = [sys.executable, "-m", "hapo_verify", str(file), "--gold", "g", "--answer", "a", "--label", "ok"]
    told = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout)
    assert (told["correct"], told["wrong"], told["unparsable"]) == (1, 1, 1)
    assert told["confusion"]["label correct, verdict wrong"] == 1
    assert [it["gold"] for it in told["disagreements"]] == ["7"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [json.loads(it)["verdict"] for it in lines] == ["correct", "wrong", "unparsable"]
    bad = subprocess.run([*command[:4], "--gold", "no"], capture_output=True, text=True, check=False)
    assert bad.returncode == 2
    assert "row 1: expected a text in `no`" in bad.stderr
