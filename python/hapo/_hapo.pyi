from os import PathLike
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from hapo.verify import Policy
from hapo.verify.math_verify.grader import Rules
from hapo.verify.math_verify.parser import Request

__all__ = [
    "Method",
    "Schedule",
    "__version__",
    "advantages",
    "check_gold",
    "columns",
    "decide",
    "divisor",
    "folder",
    "graders",
    "judge_all",
    "method_has_teacher",
    "method_refusal",
    "methods",
    "operators",
    "parse_one",
    "policy_terms",
    "read_answer",
    "rollouts",
    "same_answer",
    "teacher_terms",
    "teacher_weight",
    "write_rollouts",
]
__version__: Final[str]

@final
class Schedule:
    def __new__(
        cls,
        group_size: int,
        steps_per_epoch: int,
        *,
        gate: str = "confidence",
        success_limit: int = 0,
        gamma0: object | None = None,
        annealing: str = "sigmoid",
        turn_off_epoch: object | None = None,
        steepness: object | None = None,
    ) -> Schedule: ...
    @property
    def extinction(self) -> int | None: ...
    @property
    def group_size(self) -> int: ...
    @property
    def steps_per_epoch(self) -> int: ...
    @property
    def initial_threshold(self) -> float: ...
    @property
    def warnings(self) -> list[str]: ...
    def success_limit(self, step: int) -> int: ...
    def threshold(self, step: int) -> float: ...
    def table(self, steps: int) -> dict[str, Any]: ...
    def __getnewargs_ex__(self) -> tuple[tuple[int, int], dict[str, Any]]: ...

@final
class Method:
    def __new__(
        cls,
        name: str,
        group_size: int,
        *,
        schedule: Schedule | None = None,
        slot: str = "lowest-reward",
        **settings: dict[str, Any],
    ) -> Method: ...
    @property
    def name(self) -> str: ...
    @property
    def group_size(self) -> int: ...
    @property
    def has_fixed_slot(self) -> bool: ...
    @property
    def d(self) -> float: ...

def judge_all(
    golds: Any, completions: Any, policy: Policy, threads: int | None
) -> list[tuple[bool, str, str, str, str, tuple[int, int] | None]]: ...
def parse_one(completion: str) -> tuple[str, str, str] | None: ...
def read_answer(completion: str, request: Request) -> tuple[str | None, str | None, str | None, bool]: ...
def same_answer(gold: tuple[str, Request], answer: tuple[str, Request], rules: Rules) -> bool: ...
def check_gold(gold: str, grader: str = "math") -> None: ...
def graders() -> list[tuple[str, str]]: ...
def method_has_teacher(name: str) -> bool: ...
def method_refusal(name: str) -> str | None: ...
def methods() -> list[tuple[str, str]]: ...
def operators() -> list[tuple[str, str]]: ...
def decide(
    method: Method,
    rewards: NDArray[np.float64],
    groups: NDArray[np.int64],
    lengths: NDArray[np.int64],
    is_truncated: NDArray[np.bool_],
    prompts: NDArray[np.uint64],
    teacher_tokens: NDArray[np.int64],
    teacher_rewards: NDArray[np.float64],
    step: int,
    *,
    success_at: float,
    wrong: float,
    seed: int,
    truncated: str,
) -> dict[str, Any]: ...
def advantages(rewards: NDArray[np.float64], groups: NDArray[np.int64], *, std: bool) -> NDArray[np.float64]: ...
def teacher_weight(
    weight: str | float,
    successes: int,
    n_eff: int,
    *,
    initial_threshold: float = 1.0,
    advantage: float = 0.0,
) -> float: ...
def divisor(normaliser: str, lengths: Any, max_response: int | None = None) -> float: ...
def policy_terms(
    log_probs: NDArray[np.float32],
    old_log_probs: NDArray[np.float32],
    mask: NDArray[np.bool_],
    advantages: NDArray[np.float64],
    divisor: float,
    d_log_probs: NDArray[np.float32],
    *,
    clip_low: float,
    clip_high: float,
    importance_ratio_level: str,
    normaliser: str,
) -> tuple[float, int, float, float, int]: ...
def teacher_terms(
    log_probs: NDArray[np.float32],
    mask: NDArray[np.bool_],
    weights: NDArray[np.float64],
    divisor: float,
    d_log_probs: NDArray[np.float32],
    *,
    operator: str,
    d: float,
    normaliser: str,
) -> tuple[float, int]: ...
def columns(run: str | PathLike[str]) -> tuple[list[tuple[str, NDArray[np.float64]]], list[str]]: ...
def rollouts(run: str | PathLike[str], step: int) -> list[str]: ...
def write_rollouts(run: str | PathLike[str], step: int, lines: list[str]) -> None: ...
def folder(
    run: str | PathLike[str],
) -> tuple[list[int], list[tuple[int, PathLike[str]]], PathLike[str], PathLike[str], bool]: ...
