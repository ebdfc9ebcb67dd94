from typing import Final

__all__ = ["__version__", "judge_all", "parse_one"]
__version__: Final[str]

def judge_all(
    golds: list[list[str]], answers: list[str], policy: str, threads: int
) -> list[tuple[bool, str, str, str, str, tuple[int, int] | None]]: ...
def parse_one(text: str) -> tuple[str, str, str] | None: ...
