"""verl on a CPU whose sampler draws at another temperature than it is told and says.

verl loads it in each process by ``VERL_USE_EXTERNAL_MODULES``, in the place of ``cpu_verl`` of python/tests/verl.
"""

from __future__ import annotations

from typing import Any

import cpu_rollout
import cpu_verl  # noqa: F401
import torch


class HotSampler(cpu_rollout.Sampler):  # type: ignore[misc]
    """Draws at 0.4 and reports the log-probabilities of the draws as a server does: those of the flatter softmax."""

    @torch.no_grad()
    def sample(self, requests: list[tuple[list[int], dict[str, Any]]]) -> list[tuple[list[int], list[float]]]:
        return super().sample([(prompt, {**params, "temperature": 0.4}) for prompt, params in requests])


cpu_rollout.Sampler = HotSampler
