"""What adapters of PyTorch engines share: padded tensors of a case, and the sum over micro-batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lossproof.cases import Case, Cut, NotApplicable

PLAIN = {"surrogate", "clip_low", "clip_high", "aggregate", "length"}


@dataclass
class Micro:
    """One micro-batch as an engine sees it: (rows, tokens), padded."""

    rows: list[int]
    logp: Tensor
    old: Tensor
    ref: Tensor
    sampler: Tensor
    entropy: Tensor
    mask: Tensor
    advantage: Tensor

    @property
    def tokens(self) -> int:
        return int(self.mask.sum())


@dataclass
class Window:
    """One optimiser step, and the generation batch that it is a part of."""

    rows: list[int]
    tokens: int
    micros: int
    ranks: int
    steps: int
    generation_tokens: int
    generation_micros: int
    kept: int


class Batch:
    """The case's numbers as leaves, one for each sequence."""

    def __init__(self, case: Case, dtype: torch.dtype = torch.float64) -> None:
        self.batch, self.layout, self.dtype = case["batch"], case.get("layout", {}), dtype
        self.with_entropy = case["hyper"].get("entropy_coef") is not None
        self.logp = [torch.tensor(it, dtype=dtype, requires_grad=True) for it in self.batch["logp"]]
        entropy = self.batch.get("entropy") or [[0.0] * len(it) for it in self.batch["logp"]]
        self.entropy = [torch.tensor(it, dtype=dtype, requires_grad=True) for it in entropy]
        self.places: list[Tensor] = []
        """Log-probabilities of places that hold no token; none may get a slope."""
        self.width = max(map(len, self.batch["logp"])) + self.layout.get("extra", 0)
        if self.layout.get("pad") == "packed":
            raise NotApplicable("takes padded rows")

    def micro(self, rows: list[int]) -> Micro:
        values = [torch.tensor(self.batch["advantage"][i], dtype=self.dtype) for i in rows]
        return Micro(
            rows=rows,
            logp=self.padded("logp", [self.logp[i] for i in rows]),
            old=self.padded("old_logp", self.numbers("old_logp", rows)),
            ref=self.padded("ref_logp", self.numbers("ref_logp", rows)),
            sampler=self.padded("sampler_logp", self.numbers("sampler_logp", rows)),
            entropy=self.padded("entropy", [self.entropy[i] for i in rows]),
            mask=self.padded("mask", [torch.tensor(self.mask(i), dtype=self.dtype) for i in rows]),
            advantage=torch.stack(values),
        )

    def mask(self, i: int) -> list[int]:
        return list(self.batch["mask"][i]) if "mask" in self.batch else [1] * len(self.batch["logp"][i])

    def numbers(self, name: str, rows: list[int]) -> list[Tensor]:
        values = self.batch.get(name, self.batch["logp"])
        return [torch.tensor(values[i], dtype=self.dtype) for i in rows]

    def padded(self, name: str, rows: list[Tensor]) -> Tensor:
        """Rows of one width, with the layout's padding and what lies in it."""
        # A log-probability of 0 has no other ids beside it, which adapters with logits need.
        fill = self.layout.get("fill", {}).get(name, -1.0 if name == "logp" else 0.0)
        parts = []
        for row in rows:
            rest = torch.full((self.width - len(row),), fill, dtype=self.dtype, requires_grad=name == "logp")
            self.places += [rest] if name == "logp" else []
            parts.append(torch.cat([rest, row] if self.layout.get("pad") == "left" else [row, rest]))
        return torch.stack(parts)

    def answer(self, loss: float | None) -> dict[str, Any]:
        """What a step returns: the gradients that `backward` left at the leaves."""
        result: dict[str, Any] = {"loss": loss, "grad": gradients(self.logp), "padded": gradients(self.places)}
        if self.with_entropy:
            result["grad_entropy"] = gradients(self.entropy)
        return result


def gradients(leaves: list[Tensor]) -> list[list[float]]:
    return [[0.0] * len(it) if it.grad is None else it.grad.tolist() for it in leaves]


def accumulate(
    case: Case,
    cut: Cut,
    loss_of: Callable[[Micro, Window], Tensor],
    *,
    ranks: bool = False,
    windows: bool = False,
    dtype: torch.dtype = torch.float64,
) -> dict[str, Any]:
    """The sum over micro-batches and the mean over ranks of what goes to `backward`."""
    if len(cut["steps"]) > 1 and not windows:
        raise NotApplicable("several optimiser steps")
    if any(len(step) > 1 for step in cut["steps"]) and not ranks:
        raise NotApplicable("several ranks")
    batch = Batch(case, dtype)
    total = 0.0
    for step in cut["steps"]:
        window = window_of(batch, cut, step)
        for rank in step:
            for rows in rank:
                loss = loss_of(batch.micro(rows), window) / len(step)
                if loss.requires_grad:
                    loss.backward()
                total += float(loss.detach())
    return batch.answer(total)


def window_of(batch: Batch, cut: Cut, step: list[list[list[int]]]) -> Window:
    def tokens(rows: list[int]) -> int:
        return sum(sum(batch.mask(i)) for i in rows)

    every = [rows for s in cut["steps"] for rank in s for rows in rank]
    rows = [i for rank in step for micro in rank for i in micro]
    return Window(
        rows=rows,
        tokens=tokens(rows),
        micros=len(step[0]),
        ranks=len(step),
        steps=len(cut["steps"]),
        generation_tokens=sum(map(tokens, every)),
        generation_micros=len(every),
        kept=sum(any(batch.mask(i)) for i in rows),
    )


def only(case: Case, *known: str) -> dict[str, Any]:
    """The hyperparameters, where the adapter has a word for each of them."""
    hyper: dict[str, Any] = case["hyper"]
    missing = sorted(set(hyper) - PLAIN - set(known))
    if missing:
        raise NotApplicable(f"no {', '.join(missing)}")
    return hyper


def bnpo_only(case: Case) -> None:
    """Refuses what the loss type `bnpo` is not for: anything but the token mean of the clipped surrogate."""
    if case["hyper"].get("aggregate") != "token-mean" or case["hyper"].get("surrogate") != "ppo":
        raise NotApplicable("bnpo is a token mean of the clipped surrogate")


def trl_settings(hyper: dict[str, Any], by_token: str = "dapo") -> dict[str, Any]:
    """The arguments of GRPOTrainer, whose words Liger and Unsloth share. `by_token` is the loss type of the token mean."""
    types = {"token-mean": by_token, "seq-mean-token-mean": "grpo", "seq-mean-token-sum-norm": "dr_grpo",
             "seq-mean-token-sum": "luspo"}  # fmt: skip
    name = hyper["surrogate"]
    own = {"cispo": "token-mean", "vespo": "token-mean", "sapo": "seq-mean-token-mean"}
    kind = name if name in own else types.get(hyper["aggregate"], "")
    wanted = own.get(name, hyper["aggregate"])
    if name not in ("ppo", "gspo", "none", "nll", *own) or not kind or wanted != hyper["aggregate"]:
        raise NotApplicable(f"no {name} by {hyper['aggregate']}")
    if name == "nll" and hyper["aggregate"] != "token-mean":
        raise NotApplicable("SFT by token mean")
    if hyper.get("kl", "k3") not in ("k3", "k3-with-score-term"):
        raise NotApplicable(f"no {hyper['kl']}")
    if hyper.get("kl") == "k3-with-score-term":
        raise NotApplicable("its correction of the KL is by the ratio to the old policy")
    # In CISPO `epsilon_high` bounds the ratio itself.
    high = 1 + hyper.get("clip_high", 0.2) if name == "cispo" else hyper.get("clip_high", 0.2)
    return {
        "loss_type": kind,
        "epsilon_low": min(hyper.get("clip_low", 0.2), 1e9),
        "epsilon_high": min(high, 1e9),
        "importance_sampling_level": "sequence" if name == "gspo" else "token",
        "beta": hyper.get("beta", 0.0),
        "max_completion_length": hyper.get("length", 12),
    }


def one_size(cut: Cut) -> None:
    if len({len(micro) for ranks in cut["steps"] for micros in ranks for micro in micros}) > 1:
        raise NotApplicable("micro-batches of one size")


def two_token_logits(logp: Tensor, vocabulary: int = 4) -> Tensor:
    """Logits whose log-softmax at id 0 is `logp` and whose slope by `logp` is that of log-softmax."""
    rest = torch.log1p(-logp.exp()) - torch.log(torch.tensor(vocabulary - 1.0, dtype=logp.dtype))
    return torch.cat([logp[..., None], rest[..., None].expand(*logp.shape, vocabulary - 1)], dim=-1)


def one_kind(case: Case, *kinds: str) -> None:
    if case["kind"] not in kinds:
        raise NotApplicable(f"no {case['kind']}s")
