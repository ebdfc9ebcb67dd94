"""The second tier for verl: `FSDPEngineWithLMHead.train_batch` makes real optimiser steps on a table of logits.

The engine counts tokens, cuts micro-batches, runs the model, calls a loss function such as `ppo_loss` and `backward`, and
steps the optimiser. The module is not wrapped by FSDP: one rank, CPU.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.utils import tensordict_utils as tu
from verl.workers.config import FSDPEngineConfig
from verl.workers.engine.fsdp import transformer_impl

from lossproof.adapters._table import Rows, Table
from lossproof.cases import Case, Cut, NotApplicable

# verl knows no platform without an accelerator.
transformer_impl.get_device_id = transformer_impl.get_device_name = lambda: "cpu"


class Engine(transformer_impl.FSDPEngineWithLMHead):  # type: ignore[misc]
    """On a module that is given."""

    def __init__(self, module: Table) -> None:
        super().__init__(
            SimpleNamespace(use_remove_padding=True, lora_rank=0, get=lambda *_: None),
            FSDPEngineConfig(use_torch_compile=False),
            SimpleNamespace(clip_grad=float("inf")),
            None,
        )
        self.module = module
        self.optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
        self._autocast_dtype = torch.float32


def train(case: Case, cut: Cut, loss: Any) -> dict[str, Any]:
    """The optimiser steps of a cut by a loss function of verl's engine."""
    if any(len(step) > 1 for step in cut["steps"]):
        raise NotApplicable("one rank")
    if any(len({len(micro) for micro in step[0]}) > 1 for step in cut["steps"]):
        raise NotApplicable("micro-batches of one size")
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    rows = Rows(case)
    module = rows.model()
    before = module.lm_head.weight.detach().clone()
    engine = Engine(module)
    for step in cut["steps"]:
        engine.train_batch(data(case, rows, step[0]), loss)
    return {"loss": None, "grad": rows.gradient(before, module.lm_head.weight.detach())}


def data(case: Case, rows: Rows, micros: list[list[int]]) -> TensorDict:
    """A mini-batch in the layout that verl's trainer hands to its workers."""
    order = [i for micro in micros for i in micro]
    batch = case["batch"]

    def nested(of: list[list[Any]], dtype: torch.dtype) -> Tensor:
        return torch.nested.as_nested_tensor([torch.tensor(row, dtype=dtype) for row in of], layout=torch.jagged)

    lengths = [len(rows.responses[i]) for i in order]
    whole = [[rows.prompts[i], *rows.responses[i]] for i in order]
    fields = {
        "input_ids": nested(whole, torch.int64),
        "position_ids": nested([list(range(len(row))) for row in whole], torch.int64),
        "prompts": nested([[rows.prompts[i]] for i in order], torch.int64),
        "responses": nested([rows.responses[i] for i in order], torch.int64),
        "response_mask": nested([rows.mask[i] for i in order], torch.int64),
        "old_log_probs": nested([batch["old_logp"][i] for i in order], torch.float64),
        "advantages": nested([[batch["advantage"][i]] * n for i, n in zip(order, lengths, strict=True)], torch.float64),
    }
    supervised = case["hyper"]["surrogate"] == "nll"
    fields["loss_mask"] = nested([[*[0] * supervised, *rows.mask[i]] for i in order], torch.int64)
    made = TensorDict(fields, batch_size=[len(order)])
    tu.assign_non_tensor(
        made,
        use_dynamic_bsz=False,
        micro_batch_size_per_gpu=len(micros[0]),
        global_batch_size=len(order),
        temperature=1.0,
        use_remove_padding=True,
    )
    return made
