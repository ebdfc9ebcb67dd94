"""Verdicts by the name of a grader and of a rule for what counts as an answer."""

from __future__ import annotations

from typing import Any

from hapo._hapo import judge_all
from hapo.verify import Policy, Verdict

Gold = str | list[str] | tuple[str, ...]


def grade(gold: Gold, completion: str, grader: str = "math", *, extraction: str = "any") -> Verdict:
    """Judges a completion against a gold answer, or against several of which any counts."""
    return Verdict(*judge_all([gold], [completion], Policy(grader, extraction), 1)[0])


def grade_many(
    golds: Any, completions: Any, grader: str = "math", *, extraction: str = "any", threads: int | None = None
) -> list[Verdict]:
    """Judges many completions on several threads; verdicts come in their order."""
    return [Verdict(*it) for it in judge_all(golds, completions, Policy(grader, extraction), threads)]


def explain(gold: Gold, completion: str, grader: str = "math", *, extraction: str = "any") -> str:
    """One line: the verdict, how both sides were read, and the rule that decided."""
    it = grade(gold, completion, grader, extraction=extraction)
    return f"{it.name}: {it.answer or 'nothing'!r} for {it.gold!r}: {it.reason}"
