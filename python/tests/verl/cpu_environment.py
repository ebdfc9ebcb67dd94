"""What verl reads from the environment before anything else, for a run on a CPU."""

from __future__ import annotations

import os


def environment(ranks: int) -> dict[str, str]:
    """What verl reads before anything else."""
    here = os.path.dirname(os.path.abspath(__file__))
    return {
        "VERL_PLATFORM": "hapo_cpu",
        "VERL_ENGINE_DEVICE": "cuda",
        "VERL_USE_EXTERNAL_MODULES": "cpu_verl",
        "CUDA_VISIBLE_DEVICES": ",".join(str(it) for it in range(ranks)),
        "PYTHONPATH": os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])]),
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "RAY_DEDUP_LOGS": "0",
    }
