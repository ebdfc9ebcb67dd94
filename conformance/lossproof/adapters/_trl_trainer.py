"""The second tier for TRL: `GRPOTrainer` and `SFTTrainer` make real optimiser steps on a table of logits.

Only what is sampled is replaced: `_generate_and_score_completions` returns the recorded batch, and rows keep their order.
"""

from __future__ import annotations

import tempfile
from typing import Any

import torch
import trl.trainer.grpo_trainer
from datasets import Dataset
from tokenizers import Tokenizer, models
from torch.utils.data import SequentialSampler
from transformers import PreTrainedTokenizerFast, PrinterCallback
from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

from lossproof.adapters._table import END, PAD, Rows
from lossproof.cases import Case, Cut, NotApplicable

trl.trainer.grpo_trainer.shuffle_sequence_dict = lambda batch: batch


class Recorded:
    """Rows in the order of the cut, and a recorded batch in place of a sampled one."""

    recorded: dict[str, Any]

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        if not hasattr(self, "recorded"):
            return SequentialSampler(dataset if dataset is not None else self.train_dataset)  # type: ignore[attr-defined]
        return super()._get_train_sampler(dataset)  # type: ignore[misc]

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        return dict(self.recorded)


class RecordedGRPO(Recorded, GRPOTrainer):  # type: ignore[misc]
    pass


class OrderedSFT(Recorded, SFTTrainer):  # type: ignore[misc]
    pass


def train(case: Case, cut: Cut, settings: dict[str, Any], trainer: Any = None) -> dict[str, Any]:
    """The optimiser steps of a cut by `settings`, arguments of GRPOConfig; without them by SFTTrainer."""
    rows = Rows(case)
    micros = [micro for step in cut["steps"] for rank in step for micro in rank]
    if len({len(step[0]) for step in cut["steps"]}) > 1 or any(len(step) > 1 for step in cut["steps"]):
        raise NotApplicable("optimiser steps of one size, one rank")
    order = [i for micro in micros for i in micro]
    model = rows.model()
    before = model.lm_head.weight.detach().clone()
    with tempfile.TemporaryDirectory() as folder:
        common = {
            "output_dir": folder,
            "per_device_train_batch_size": len(micros[0]),
            "gradient_accumulation_steps": len(cut["steps"][0][0]),
            "max_steps": len(cut["steps"]),
            "learning_rate": 1.0,
            "lr_scheduler_type": "constant",
            "optim": "sgd",
            "max_grad_norm": 0.0,
            "use_cpu": True,
            "bf16": False,
            "gradient_checkpointing": False,
            "report_to": "none",
            "save_strategy": "no",
            "logging_strategy": "no",
            "disable_tqdm": True,
        }
        if settings:
            make = trainer or grpo
            made = make(case, rows, order, model, {**common, **settings, "steps_per_generation": len(micros)})
        else:
            made = sft(rows, order, model, common)
        made.remove_callback(PrinterCallback)
        made.train()
    return {"loss": None, "grad": rows.gradient(before, model.lm_head.weight.detach())}


def grpo(case: Case, rows: Rows, order: list[int], model: Any, arguments: dict[str, Any]) -> GRPOTrainer:
    if len(order) < 2:
        raise NotApplicable("groups of two or more")
    made = RecordedGRPO(
        model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=GRPOConfig(num_generations=len(order), beta=0.0, **arguments),
        train_dataset=Dataset.from_dict({"prompt": ["a"] * 4}),
        processing_class=tokenizer(rows.size),
    )
    made.recorded = recorded(case, rows, order)
    return made


def recorded(case: Case, rows: Rows, order: list[int]) -> dict[str, Any]:
    """What the trainer makes of sampled completions."""
    batch = case["batch"]
    mask = padded([rows.mask[i] for i in order], 0)
    return {
        "prompt_ids": torch.tensor([[rows.prompts[i]] for i in order]),
        "prompt_mask": torch.ones(len(order), 1, dtype=torch.long),
        "completion_ids": padded([rows.responses[i] for i in order], PAD),
        "completion_mask": mask,
        "advantages": torch.tensor([batch["advantage"][i] for i in order], dtype=torch.float64),
        "old_per_token_logps": padded([batch["old_logp"][i] for i in order], 0.0),
        "num_items_in_batch": mask.sum(),
    }


def sft(rows: Rows, order: list[int], model: Any, arguments: dict[str, Any]) -> SFTTrainer:
    data = {
        "input_ids": [[rows.prompts[i], *rows.responses[i]] for i in order],
        "labels": [[-100, *labels(rows, i)] for i in order],
    }
    config = SFTConfig(loss_type="nll", dataset_kwargs={"skip_prepare_dataset": True},
                       **arguments)  # fmt: skip
    return OrderedSFT(model, args=config, train_dataset=Dataset.from_dict(data), processing_class=tokenizer(rows.size))


def labels(rows: Rows, i: int) -> list[int]:
    return [token if kept else -100 for token, kept in zip(rows.responses[i], rows.mask[i], strict=True)]


def tokenizer(size: int) -> PreTrainedTokenizerFast:
    words = {f"<{i}>": i for i in range(size)}
    made = Tokenizer(models.WordLevel(words, unk_token=f"<{END}>"))
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token=f"<{PAD}>", eos_token=f"<{END}>", unk_token=f"<{END}>"
    )


def padded(rows: list[list[Any]], fill: float) -> torch.Tensor:
    width = max(map(len, rows))
    dtype = torch.float64 if isinstance(fill, float) else torch.long
    return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows], dtype=dtype)
