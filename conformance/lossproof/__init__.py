"""Check the losses and advantages of a reinforcement-learning engine against recorded cases.

>>> import lossproof
>>> case = lossproof.load("agg/token-mean/ppo")
>>> case["hyper"]["aggregate"], len(case["cuts"])
('token-mean', 9)
"""

from lossproof.cases import NotApplicable, Refused, load, load_all, micro_batches
from lossproof.run import run
from lossproof.verdict import Comparison, compare

__version__ = "1.1.1"

__all__ = [
    "Comparison",
    "NotApplicable",
    "Refused",
    "__version__",
    "compare",
    "load",
    "load_all",
    "micro_batches",
    "run",
]
