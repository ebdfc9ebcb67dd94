"""The blocks of docs/guides/verifier-recipes.md run and give the rewards that they should."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(os.environ.get("HAPO_REPOSITORY") or Path(__file__).parents[3])
RIGHT, WRONG = r"so \boxed{0.5}", r"so \boxed{0.6}"


@pytest.fixture(scope="module")
def recipes() -> dict[str, dict[str, Any]]:
    """The names that each section's block defines."""
    found = {}
    page = (ROOT / "docs/guides/verifier-recipes.md").read_text()
    for title, block in re.findall(r"^## (.+?)\n+```python\n(.+?)```", page, re.M | re.S):
        found[title] = {}
        exec(block, found[title])
    assert len(found) == page.count("\n## ")
    return found


def test_trl(recipes: dict[str, dict[str, Any]]) -> None:
    reward = recipes["TRL"]["reward"]
    assert reward([RIGHT, [{"role": "assistant", "content": WRONG}]], answer=["1/2"] * 2, prompts=[]) == [1.0, 0.0]


def test_verl(recipes: dict[str, dict[str, Any]]) -> None:
    assert [recipes["verl"]["compute_score"]("math", it, "1/2", {}) for it in (RIGHT, WRONG)] == [1.0, 0.0]


def test_openrlhf(recipes: dict[str, dict[str, Any]]) -> None:
    pytest.importorskip("torch")
    given = recipes["OpenRLHF"]["reward_func"](["p" + RIGHT, "p" + WRONG], ["p", "p"], ["1/2"] * 2)
    assert given["rewards"].tolist() == [1.0, 0.0]


def test_verifiers(recipes: dict[str, dict[str, Any]]) -> None:
    assert [recipes["verifiers (prime-rl)"]["correct"]("1/2", it) for it in (RIGHT, WRONG)] == [1.0, 0.0]


def test_lm_eval(recipes: dict[str, dict[str, Any]]) -> None:
    process_results = recipes["lm-eval"]["process_results"]
    assert [process_results({"answer": "1/2"}, [it]) for it in (RIGHT, WRONG)] == [{"correct": 1.0}, {"correct": 0.0}]


def test_lighteval(recipes: dict[str, dict[str, Any]]) -> None:
    doc = SimpleNamespace(get_golds=lambda: ["1/2", "1/3"])
    compute = recipes["lighteval"]["compute"]
    assert [compute(doc, SimpleNamespace(final_text=[it])) for it in (RIGHT, WRONG)] == [1.0, 0.0]


def test_pandas(recipes: dict[str, dict[str, Any]]) -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"gold": ["1/2", "1/2"], "answer": [RIGHT, WRONG]})
    assert recipes["pandas"]["graded"](table)["correct"].tolist() == [True, False]
