"""verl on a CPU with a sampler that is not as it is told: in each, one fault of a real server is planted.

verl loads it in each process by ``VERL_USE_EXTERNAL_MODULES``, in the place of ``cpu_verl`` of python/tests/verl.
``DOCTOR_SAMPLER`` names the fault: ``hot`` draws at a temperature of 0.4 and reports the log-probabilities of that;
``boxless`` never draws the token of a box, as a model that nobody asks for one.
"""

from __future__ import annotations

import os
from typing import Any

import cpu_rollout
import cpu_verl  # noqa: F401
import torch

BOX = 7
"""The built-in tokenizer's token of a box."""


class Sampler(cpu_rollout.Sampler):  # type: ignore[misc]
    @torch.no_grad()
    def sample(self, requests: list[tuple[list[int], dict[str, Any]]]) -> list[tuple[list[int], list[float]]]:
        if os.environ["DOCTOR_SAMPLER"] == "hot":
            return super().sample([(prompt, {**params, "temperature": 0.4}) for prompt, params in requests])
        inner = self.model

        def without_box(**inputs: Any) -> Any:
            out = inner(**inputs)
            out.logits[..., BOX] = -1e9
            return out

        self.model = without_box
        try:
            return super().sample(requests)
        finally:
            self.model = inner


cpu_rollout.Sampler = Sampler
