"""The engine of ``hapo`` for Python: runs, a grader that cannot hang, the gate of Hindsight-Anchored Policy
Optimization, its losses, and run folders.

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
from hapo._errors import Error
from hapo._gpu import name_libraries
from hapo._grade import explain, grade, grade_many
from hapo._hapo import (
    Group,
    Method,
    Prompt,
    Rng,
    Rollout,
    Sampled,
    Schedule,
    __version__,
    check_gold,
    divisor,
    graders,
    mean,
    method_has_teacher,
    method_refusal,
    methods,
    operators,
    std,
    teacher_weight,
)
from hapo._method import Credit, Entry, Gated, Needs, Part, Plan, Policy, Teacher, check_method, method
from hapo._model import Loss, Model, Score, group, load, order, task
from hapo._rewards import compute_score, reward_trl
from hapo._run import Run
from hapo._train import train
from hapo.verify import Verdict

__all__ = [
    "Credit",
    "Decision",
    "Entry",
    "Error",
    "Gated",
    "Group",
    "Loss",
    "Method",
    "Model",
    "Needs",
    "Part",
    "Plan",
    "Policy",
    "Prompt",
    "Rng",
    "Rollout",
    "Run",
    "Sampled",
    "Schedule",
    "Score",
    "Teacher",
    "Verdict",
    "__version__",
    "advantages",
    "check_gold",
    "check_method",
    "compute_score",
    "decide",
    "divisor",
    "explain",
    "grade",
    "grade_many",
    "graders",
    "group",
    "load",
    "mean",
    "method",
    "method_has_teacher",
    "method_refusal",
    "methods",
    "operators",
    "order",
    "reward_trl",
    "std",
    "task",
    "teacher_weight",
    "train",
]

name_libraries()
