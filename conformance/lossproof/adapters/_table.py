"""The model of the second tier: one layer, a table with a column of logits for each token, so that log-probabilities are
free and the change of a column gives the gradient by one of them: the derivatives by the logits of the other ids sum to
−(1 − p) times that by log p."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutput

from lossproof.cases import Case, NotApplicable

PAD, END = 0, 1
"""Ids that no token of a case has."""


class TableConfig(PretrainedConfig):  # type: ignore[misc]
    model_type = "lossproof_table"

    def __init__(self, vocab_size: int = 2, **more: Any) -> None:
        super().__init__(**{"pad_token_id": PAD, "eos_token_id": END, **more})
        self.vocab_size = vocab_size
        self.hidden_size, self.num_hidden_layers, self.num_attention_heads = vocab_size, 1, 1


class OneHot(nn.Module):
    """The state after a token is the token."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, input_ids: Tensor, **_: Any) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=nn.functional.one_hot(input_ids, self.size).double())


class Table(PreTrainedModel, GenerationMixin):  # type: ignore[misc]
    """Logits of the next token by the last one."""

    config_class = TableConfig
    base_model_prefix = "backbone"
    main_input_name = "input_ids"

    def __init__(self, config: TableConfig) -> None:
        super().__init__(config)
        self.backbone = OneHot(config.vocab_size)
        self.lm_head = nn.Linear(config.vocab_size, config.vocab_size, bias=False, dtype=torch.float64)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        logits_to_keep: int = 0,
        **more: Any,
    ) -> CausalLMOutput:
        hidden = self.backbone(input_ids).last_hidden_state
        logits = self.lm_head(hidden[:, -logits_to_keep:] if logits_to_keep else hidden)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **more)
        return CausalLMOutput(loss=loss, logits=logits)


class Rows:
    """A batch as token ids: a sequence is a prompt of one token and a response, and every token has an id of its own."""

    def __init__(self, case: Case) -> None:
        batch = case["batch"]
        if case.get("layout") or "logits" in batch or any(not row for row in batch["logp"]):
            raise NotApplicable("rows as the trainer pads them, none empty")
        if any(math.isnan(it) for row in batch["logp"] for it in row):
            raise NotApplicable("a table of logits has a log-probability for every token")
        self.logp: list[list[float]] = batch["logp"]
        self.mask: list[list[int]] = batch.get("mask") or [[1] * len(row) for row in self.logp]
        ids = iter(range(END + 1, 10_000))
        self.prompts: list[int] = []
        self.responses: list[list[int]] = []
        for row in self.logp:
            self.prompts.append(next(ids))
            self.responses.append([next(ids) for _ in row])
        self.size = next(ids)

    def model(self) -> Table:
        model = Table(TableConfig(self.size))
        with torch.no_grad():
            weight = model.lm_head.weight.zero_()
            for i, row in enumerate(self.logp):
                for (state, token), logp in zip(self.places(i), row, strict=True):
                    weight[:, state] = math.log(-math.expm1(logp) / (self.size - 1))
                    weight[token, state] = logp
        return model

    def places(self, i: int) -> list[tuple[int, int]]:
        """The last token and the next one, of each token of a response."""
        return list(pairwise([self.prompts[i], *self.responses[i]]))

    def gradient(self, before: Tensor, after: Tensor) -> list[list[float]]:
        """The gradient by each log-probability, of steps of SGD with learning rate 1."""
        change = (after - before).double()
        return [
            [
                float((change[:, state].sum() - change[token, state]) / -math.expm1(logp))
                for (state, token), logp in zip(self.places(i), row, strict=True)
            ]
            for i, row in enumerate(self.logp)
        ]
