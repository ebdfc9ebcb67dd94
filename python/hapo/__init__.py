"""A grader that cannot hang, the gate of Hindsight-Anchored Policy Optimization, its losses, and run folders.

Everything here is computed by the same code as the command ``hapo``; arrays are NumPy's. ``hapo.torch`` has the losses
as autograd functions, ``hapo.trl`` the trainer for TRL; only these import torch.

>>> import hapo
>>> hapo.grade(r"\\frac{1}{2}", r"Halving gives $x = \\boxed{0.5}$.").name
'correct'
>>> schedule = hapo.Schedule(group_size=8, steps_per_epoch=62, turn_off_epoch=1.5)
>>> schedule.success_limit(1), schedule.extinction
(0, 93)
"""

from hapo._decide import Decision, advantages, decide
from hapo._grade import explain, grade, grade_many
from hapo._hapo import (
    Method,
    Schedule,
    __version__,
    check_gold,
    divisor,
    graders,
    method_has_teacher,
    method_refusal,
    methods,
    operators,
    teacher_weight,
)
from hapo._rewards import compute_score, reward_trl
from hapo._run import Run
from hapo.verify import Verdict

__all__ = [
    "Decision",
    "Method",
    "Run",
    "Schedule",
    "Verdict",
    "__version__",
    "advantages",
    "check_gold",
    "compute_score",
    "decide",
    "divisor",
    "explain",
    "grade",
    "grade_many",
    "graders",
    "method_has_teacher",
    "method_refusal",
    "methods",
    "operators",
    "reward_trl",
    "teacher_weight",
]
