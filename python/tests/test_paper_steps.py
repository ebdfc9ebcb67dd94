"""``scripts/paper`` where no model is needed: the data, the two gradings, the tables and the figures."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import types

import pytest

from conftest import ROOT

pytest.importorskip("tomllib")

SIZES = {"math500": 500, "olympiad": 675, "minerva": 272, "aime24": 30, "amc": 83, "aime25": 30}


@pytest.fixture
def paper(binary, tmp_path):
    def run(what: str, *more: str, status: int = 0) -> str:
        command = [sys.executable, ROOT / "scripts/paper", what, "--size", "3b", "--hapo", binary, *more]
        told = subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=tmp_path)
        assert told.returncode == status, told.stdout + told.stderr
        return told.stdout + told.stderr

    return run


def write(path, rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(it) + "\n" for it in rows))


def benchmarks(folder) -> None:
    for name, size in SIZES.items():
        write(folder / f"{name}.jsonl", [{"problem": f"{name}: {it}?", "answer": str(it)} for it in range(size)])


def test_the_data_are_of_three_levels_and_hold_no_benchmarks_problem(paper, tmp_path) -> None:
    level = lambda it: {"problem": f"Add {it}, {it} and 1.", "answer": str(2 * it + 1), "level": f"Level {1 + it % 5}"}  # noqa: E731
    write(tmp_path / "math.jsonl", [*map(level, range(50)), level(4)])
    benchmarks(tmp_path / "b")
    tests = [json.loads(it) for it in (tmp_path / "b/math500.jsonl").read_text().splitlines()]
    tests[0] = {"problem": "ADD $2$, $2$, and $1$", "answer": "5"}  # the text of a row of level 3
    tests[1] = {"problem": "What is 3 plus 3 plus 1?", "answer": "7"}  # its numbers and answer, of level 4
    tests[2] = {"problem": "What is 4 plus 4 plus 1?", "answer": "8"}  # its numbers, and another answer
    write(tmp_path / "b/math500.jsonl", tests)
    told = paper("data", "--source", "math.jsonl", "--benchmarks", "b")
    counts = [line.split()[0] for line in told.splitlines() if line[:6].strip().isdigit()]
    assert counts == ["51", "30", "29", "28"], told
    kept = [
        json.loads(it)["problem"] for it in (tmp_path / "runs/paper-3b/data/problems.jsonl").read_text().splitlines()
    ]
    assert len(set(kept)) == 28
    assert {"Add 2, 2 and 1.", "Add 3, 3 and 1."}.isdisjoint(kept)
    assert "28 problems" in paper("data"), "a second call finds it done"


def test_data_that_cannot_be_are_refused(paper, tmp_path) -> None:
    assert "SimpleRL-Zoo" in paper("data", status=1)
    write(tmp_path / "math.jsonl", [{"problem": "1+1?", "answer": "2"}])
    assert "amc.jsonl: expected 83 problems, got 0" in paper("data", "--source", "math.jsonl", status=1)
    benchmarks(tmp_path / "b")
    given = ("data", "--source", "math.jsonl", "--benchmarks", "b")
    assert "no row has a level: --all-levels" in paper(*given, status=1)
    paper(*given, "--all-levels")
    assert "--set model.path: expected --model DIR" in paper("check", "--set", "model.path=m", status=1)
    assert "expected a row of" in paper("check", "--rows", "grop", status=1)
    assert "expected the traces: scripts/paper teacher" in paper(
        "train", "--model", str(ROOT / "models/base"), status=1
    )


def test_a_record_is_graded_in_both_ways_and_stands_beside_the_papers_numbers(paper, binary, tmp_path) -> None:
    out = tmp_path / "runs/paper-3b"
    head = {
        "hapo_eval": 1,
        "settings": {"extraction": "announced", "truncated": "wrong", "k": 1, "problems": {"amc": 2}},
    }

    def completion(text: str, verdict: str, ended: bool) -> dict:
        return {"text": text, "verdict": verdict, "tokens": 3, "ended": ended}

    for row, texts in {"luffy": ("\\boxed{1}", "no idea"), "luffy-hapo": ("So it is 1, and", "\\boxed{2}")}.items():
        lines = []
        for problem, text in enumerate(texts):
            is_ours = "boxed" in text
            answers = {"id": str(problem), "gold": str(problem + 1), "completions": [
                completion(text, "correct" if is_ours else "wrong", ended=is_ours)]}  # fmt: skip
            lines.append({"benchmark": "amc", "problem": problem, "answers": answers})
        write(out / f"{row}.announced.jsonl", [head, *lines])
    sys.path.insert(0, str(ROOT / "scripts"))
    from paper_size import evaluation

    given = types.SimpleNamespace(hapo=binary)
    for row in ("luffy", "luffy-hapo"):
        evaluation.grade_again(given, out / f"{row}.announced.jsonl", out / f"{row}.any.jsonl")
    told = paper("tables")
    theirs, ours = told.split("# Graded ours")
    assert "| LUFFY | 50.00 (32.34) |" in theirs
    assert "| LUFFY-HAPO | 100.00 (33.28) |" in theirs
    assert "| LUFFY | 50.00 (32.34) |" in ours
    assert "| LUFFY-HAPO | 50.00 (33.28) |" in ours
    assert "- LUFFY-HAPO − LUFFY: +50.00 [" in theirs
    assert "; the paper: +1.51" in theirs
    assert "Table 2, the text's m = 0" in told


def test_figures_are_drawn_from_what_verl_logged_a_resumed_run_too(paper, tmp_path) -> None:
    out = tmp_path / "runs/paper-3b"
    assert "figure-2: none of its rows has run" in paper("figures")
    for row, rise in (("luffy", 0.1), ("luffy-hapo", 0.2), ("stability-open", 0.3)):
        steps = [{"step": it, "data": {"hapo/gate/beta": 0.9 - rise * it, "val-core/math/reward/mean@1": rise * it}}
                 for it in range(4)]  # fmt: skip
        write(out / row / "stage-1/verl-0.jsonl", steps[:3])
        write(out / row / "stage-1/verl-1.jsonl", steps[2:])
    told = paper("figures")
    assert told.count(".svg") == 3
    drawn = (out / "figures/figure-2.svg").read_text()
    lines = [it.split("'")[1] for it in drawn.split("<polyline ")[1:]]
    assert [len(it.split()) for it in lines] == [4, 4]
    assert drawn.count(">not run<") == 2
    # The steeper one ends at the top, the other halfway up.
    assert [float(it.rpartition(",")[2]) for it in lines] == [123.0, 30.0]
    assert "TRAPO: validation reward" in drawn
    shutil.rmtree(out / "figures")
    paper("figures")
    assert (out / "figures/figure-2.svg").read_text() == drawn
