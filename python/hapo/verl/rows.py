"""The rows of a step, as verl's queue has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from hapo.verl.settings import TEACHER


@dataclass
class Row:
    """A rollout, and what was decided about it."""

    key: str
    uid: str
    session: int
    prompt: list[int]
    tokens: list[int]
    reward: float
    truncated: bool
    problem: str
    answer: str
    index: str
    teacher: list[int]
    log_probs: list[float]
    tag: dict[str, Any]
    position_ids: Any
    group: str = ""
    """The same in every run of the same data: verl's uid is drawn anew."""
    graded: float = 0.0
    """The reward before the rule for truncated responses."""
    replaced: bool = False
    masked: bool = False
    advantage: float = 0.0
    weight: float = 0.0

    @property
    def length(self) -> int:
        return len(self.tokens)

    def as_teacher(self, reward: float, *, with_log_probs: bool) -> dict[str, torch.Tensor]:
        """The row's fields with the teacher's tokens in the place of what was sampled."""
        n = len(self.teacher)
        responses = torch.tensor(self.teacher, dtype=torch.int64)
        ids = torch.cat([torch.tensor(self.prompt, dtype=torch.int64), responses])
        fields = {
            "responses": responses,
            "input_ids": ids,
            "position_ids": torch.arange(len(ids), dtype=self.position_ids.dtype),
            "response_mask": torch.zeros(n, dtype=torch.int64),
            "loss_mask": torch.ones(n, dtype=torch.int64),
            "rm_scores": scores(n, reward),
        }
        if with_log_probs:
            fields["rollout_log_probs"] = torch.zeros(n, dtype=torch.float32)
        return fields


def scores(length: int, reward: float) -> torch.Tensor:
    """A reward as verl keeps it: at the last token of a response."""
    it = torch.zeros(length, dtype=torch.float32)
    it[-1:] = reward
    return it


def read_rows(batch: Any, end_tokens: set[int], *, with_log_probs: bool) -> list[Row]:
    """The rows of a batch by groups, each in the order of its sessions: session 0 is slot 0."""
    import transfer_queue as tq

    names = ["uid", "prompts", "responses", "response_mask", "rm_scores", "position_ids", "raw_prompt"]
    names += ["reward_model", "extra_info", TEACHER, *(["rollout_log_probs"] if with_log_probs else [])]
    found = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names)
    columns = {name: plain(found[name]) for name in names if name in found}
    empty = [None] * len(batch.keys)
    rows = []
    for place, key in enumerate(batch.keys):
        uid, session, part = key.rsplit("_", 2)
        if part != "0":
            raise ValueError(f"row {key}: expected one output of a rollout, an agent of several parts is untried")
        position_ids = columns["position_ids"][place]
        if position_ids.dim() != 1:
            raise ValueError(f"row {key}: expected text, got {position_ids.dim()} kinds of positions")
        tokens = columns["responses"][place].tolist()
        spoken = [it for it, mine in zip(tokens, columns["response_mask"][place].tolist(), strict=True) if mine]
        reward_model = columns.get("reward_model", empty)[place] or {}
        extra = columns.get("extra_info", empty)[place] or {}
        teacher = columns.get(TEACHER, empty)[place]
        rows.append(
            Row(
                key=key,
                uid=uid,
                session=int(session),
                prompt=columns["prompts"][place].tolist(),
                tokens=tokens,
                reward=float(columns["rm_scores"][place].double().sum()),
                truncated=not spoken or spoken[-1] not in end_tokens,
                problem=last_turn(columns["raw_prompt"][place]),
                answer=str(reward_model.get("ground_truth", "")),
                index=str(extra.get("id", extra.get("index", ""))),
                teacher=[int(it) for it in teacher] if teacher is not None else [],
                log_probs=columns["rollout_log_probs"][place].tolist() if with_log_probs else [],
                tag=batch.tags[place],
                position_ids=position_ids,
            )
        )
    order = {uid: place for place, uid in enumerate(dict.fromkeys(it.uid for it in rows))}
    rows.sort(key=lambda it: (order[it.uid], it.session))
    name_groups(rows, end_tokens)
    return rows


def name_groups(rows: list[Row], end_tokens: set[int]) -> None:
    """Names each group by its prompt, a second one of the same prompt apart; checks the teachers."""
    seen: dict[tuple[str, str], dict[str, int]] = {}
    for it in rows:
        of_prompt = seen.setdefault((it.index, it.problem), {})
        turn = of_prompt.setdefault(it.uid, len(of_prompt))
        it.group = f"{it.index} {it.problem} {turn}"
        it.graded = it.reward
        if it.teacher and it.teacher[-1] not in end_tokens:
            raise ValueError(
                f"row {it.index or it.problem!r}: column {TEACHER}: expected an end token last, one of "
                f"{sorted(end_tokens)}, got {it.teacher[-1]}"
            )


def plain(column: Any) -> list[Any]:
    """The entries of a column of the queue: tensors, or the objects of a stack."""
    if isinstance(column, torch.Tensor):
        return list(column.unbind())
    entries = column.tolist() if hasattr(column, "tolist") else list(column)
    return [it.data if type(it).__name__ == "NonTensorData" else it for it in entries]


def last_turn(prompt: Any) -> str:
    """The problem: the last turn of a conversation."""
    if isinstance(prompt, str) or not len(prompt):
        return str(prompt)
    content = prompt[-1]["content"]
    return content if isinstance(content, str) else str(content)
