"""verl's loss, and the teacher's beside it on the same forward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hapo.torch import teacher_loss
from hapo.verl.settings import NORMALISERS

WEIGHT = "hapo_teacher_weight"
"""λ of each row; 0 on the policy's."""


def hapo_loss(config: Any, model_output: Any, data: Any, dp_group: Any = None) -> tuple[Tensor, dict[str, Any]]:
    """verl's own loss, whose mask leaves the teacher's rows out, plus −Σ λ·F under the same normaliser."""
    from verl.utils import tensordict_utils as tu
    from verl.utils.metric import AggregationType, Metric
    from verl.workers.utils.losses import ppo_loss
    from verl.workers.utils.padding import no_padding_2_padding

    data = counting(data)
    loss, metrics = ppo_loss(config, model_output, data, dp_group)
    weights = torch.cat([it.reshape(-1) for it in data[WEIGHT].unbind()])
    log_probs = no_padding_2_padding(model_output["log_probs"], data)
    operator = tu.get_non_tensor_data(data, "hapo_operator", "")
    if not operator or not (weights != 0).any():
        taught = log_probs.new_zeros(())
    else:
        mask = data["loss_mask"].to_padded_tensor(0).to(log_probs.device).bool()
        width = log_probs.shape[1]
        mask = torch.nn.functional.pad(mask, (0, max(width - mask.shape[1], 0)))[:, :width]
        taught = teacher_loss(
            log_probs,
            mask & (weights != 0).to(mask.device)[:, None],
            weights,
            divisor=divisor(config, data),
            operator=operator,
            d=tu.get_non_tensor_data(data, "hapo_d", 0.1),
            normaliser=NORMALISERS[config.loss_agg_mode],
        )
    metrics["hapo/teacher_loss"] = Metric(value=taught.detach(), aggregation=AggregationType.SUM)
    return loss + taught, metrics


def counting(data: Any) -> Any:
    """The batch with what ``agg_loss`` divides by, without the masked rows: above 0, where all are masked."""
    from verl.utils import tensordict_utils as tu

    data = data.copy()
    sequences = tu.get_non_tensor_data(data, "hapo_sequences", data["global_batch_size"])
    tu.assign_non_tensor(
        data, global_batch_size=max(sequences, 1), batch_num_tokens=max(int(data["batch_num_tokens"]), 1)
    )
    return data


def divisor(config: Any, data: Any) -> float:
    """What verl's ``agg_loss`` divides by: of the whole optimiser step, over the ranks that are averaged."""
    ranks = data["dp_size"]
    match config.loss_agg_mode:
        case "token-mean":
            whole = data["batch_num_tokens"]
        case "token-sum":
            whole = 1
        case "seq-mean-token-sum-norm":
            whole = data["global_batch_size"] * config.loss_scale_factor
        case _:
            whole = data["global_batch_size"]
    return float(whole) / float(ranks)
