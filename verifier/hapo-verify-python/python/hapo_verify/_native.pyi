from typing import Any, Final

from . import Policy
from .math_verify.grader import Rules
from .math_verify.parser import Request

__all__ = ["__version__", "judge_all", "parse_one", "read_answer", "same_answer"]
__version__: Final[str]

def judge_all(
    golds: Any, completions: Any, policy: Policy, threads: int | None
) -> list[tuple[bool, str, str, str, str, tuple[int, int] | None]]: ...
def parse_one(completion: str) -> tuple[str, str, str] | None: ...
def read_answer(completion: str, request: Request) -> tuple[str | None, str | None, str | None, bool]: ...
def same_answer(gold: tuple[str, Request], answer: tuple[str, Request], rules: Rules) -> bool: ...
