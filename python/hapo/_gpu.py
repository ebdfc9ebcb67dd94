"""What the engine opens on a machine with a GPU: the wheel's compiled kernels, and NVIDIA's packages."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path


def name_libraries() -> None:
    """Names both in the environment, from which the engine reads them. Names that are set stay."""
    kernels = Path(__file__).with_name("kernels.zst")
    if kernels.exists():
        os.environ.setdefault("HAPO_KERNEL_IMAGES", str(kernels))
    spec = importlib.util.find_spec("nvidia")
    roots = spec.submodule_search_locations if spec is not None else None
    folders = [str(it) for root in roots or () for it in sorted(Path(root).glob("*/lib"))]
    if folders:
        os.environ.setdefault("HAPO_CUDA_LIBRARIES", os.pathsep.join(folders))
