"""The loss on rows that no run made: verl's own on the policy's rows, and the teacher's as a torch expression."""

from __future__ import annotations

from types import SimpleNamespace

import cut
import pytest

pytest.importorskip("verl.trainer")
import torch
from tensordict import TensorDict
from verl.trainer.ppo.core_algos import agg_loss
from verl.utils import tensordict_utils as tu
from verl.workers.config import ActorConfig
from verl.workers.utils.padding import no_padding_2_padding

from conftest import ROOT
from hapo.torch import plain_teacher_loss
from hapo.verl.loss import WEIGHT, hapo_loss
from hapo.verl.settings import NORMALISERS

PROMPT, LENGTHS, WEIGHTS = 3, [4, 6, 2, 5], [0.0, 0.5, 0.0, 1.0]
"""The second and the fourth row are the teacher's; the third is masked."""


def nested(rows):
    return torch.nested.as_nested_tensor([it.clone() for it in rows], layout=torch.jagged)


def batch(places, operator="trapo"):
    """Rows of a micro-batch, of a step of four rows on two ranks."""
    generator = torch.Generator().manual_seed(1)
    all_lps = [-3 * torch.rand(PROMPT + n, generator=generator) for n in LENGTHS]
    old = [-3 * torch.rand(n, generator=generator) for n in LENGTHS]
    policy = [float(weight == 0.0 and place != 2) for place, weight in enumerate(WEIGHTS)]
    fields = {
        "prompts": nested([torch.ones(PROMPT, dtype=torch.int64) for _ in places]),
        "responses": nested([torch.ones(LENGTHS[it], dtype=torch.int64) for it in places]),
        "response_mask": nested([torch.full((LENGTHS[it],), int(policy[it])) for it in places]),
        "loss_mask": nested([torch.ones(LENGTHS[it], dtype=torch.int64) for it in places]),
        "old_log_probs": nested([old[it] for it in places]),
        "advantages": nested([torch.full((LENGTHS[it],), 0.7 - it) for it in places]),
        WEIGHT: nested([torch.tensor([WEIGHTS[it]], dtype=torch.float64) for it in places]),
    }
    data = TensorDict(fields, batch_size=[len(places)])
    tu.assign_non_tensor(
        data, dp_size=2, batch_num_tokens=sum(LENGTHS), global_batch_size=4, hapo_operator=operator, hapo_d=0.1
    )
    flat = torch.cat([all_lps[it] for it in places]).requires_grad_()
    offsets = torch.tensor([0, *torch.tensor([PROMPT + LENGTHS[it] for it in places]).cumsum(0).tolist()])
    output = {"log_probs": torch.nested.nested_tensor_from_jagged(flat, offsets)}
    return data, output, flat, SimpleNamespace(old=old, advantages=[0.7 - it for it in range(4)])


def actor(mode, horizon=8, bound=3.0):
    return ActorConfig(
        strategy="fsdp2", rollout_n=4, ppo_micro_batch_size_per_gpu=4, loss_agg_mode=mode, loss_scale_factor=horizon,
        clip_ratio_c=bound,
    )  # fmt: skip


@pytest.mark.parametrize("mode", sorted(NORMALISERS))
@pytest.mark.parametrize("operator", ["luffy", "srft", "trapo"])
def test_the_teachers_term_stands_beside_verls_own(mode, operator) -> None:
    config = actor(mode)
    data, output, flat, _ = batch([0, 1, 2, 3], operator)
    loss, metrics = hapo_loss(config, output, data)
    (slope,) = torch.autograd.grad(loss, flat)

    data, output, flat, _ = batch([0, 1, 2, 3], operator)
    log_probs = no_padding_2_padding(output["log_probs"], data)
    padded = data.select("old_log_probs", "advantages", "response_mask", "loss_mask").to_padded_tensor()
    ratio = torch.exp(log_probs - padded["old_log_probs"])
    term = -torch.minimum(ratio * padded["advantages"], ratio.clamp(0.8, 1.2) * padded["advantages"])
    # verl bounds the loss of a negative advantage at 3 times it.
    bounded = torch.minimum(term, -3.0 * padded["advantages"])
    term = torch.where(padded["advantages"] < 0, bounded, term)
    info = {"dp_size": 2, "batch_num_tokens": sum(LENGTHS), "global_batch_size": 4, "loss_scale_factor": 8}
    expected = agg_loss(term, padded["response_mask"].bool(), mode, **info)
    divisor = {
        "token-mean": sum(LENGTHS), "token-sum": 1, "seq-mean-token-sum": 4, "seq-mean-token-sum-norm": 32,
        "seq-mean-token-mean": 4,
    }[mode] / 2  # fmt: skip
    weights = torch.tensor(WEIGHTS)
    taught = plain_teacher_loss(
        log_probs, padded["loss_mask"].bool() & (weights != 0)[:, None], weights,
        divisor=divisor, operator=operator, normaliser=NORMALISERS[mode],
    )  # fmt: skip
    (wanted,) = torch.autograd.grad(expected + taught, flat)
    assert loss.item() == pytest.approx((expected + taught).item(), rel=1e-6, abs=1e-6)
    torch.testing.assert_close(slope, wanted, rtol=1e-5, atol=1e-7)
    assert metrics["hapo/teacher_loss"].aggregate() == pytest.approx(taught.item(), rel=1e-6, abs=1e-6)
    # The masked row has no derivative.
    masked = slice(sum(PROMPT + it for it in LENGTHS[:2]), sum(PROMPT + it for it in LENGTHS[:3]))
    assert not slope[masked].any()


def filled(values, lengths):
    """Each row's value at each of its tokens."""
    return nested([torch.full((n,), value) for value, n in zip(values, lengths, strict=True)])


@pytest.mark.parametrize(
    ("normaliser", "mode"),
    [("constant", "seq-mean-token-sum-norm"), ("token-mean", "token-mean"), ("sequence-mean", "seq-mean-token-mean")],
)
def test_cut_responses_have_the_recorded_loss(normaliser, mode) -> None:
    """Random groups with cut responses, as the trainer hands them to verl: the loss and slopes of PyTorch in f64."""
    seen = 0
    for it in cut.batches(ROOT):
        case, decision = it.case, it.decision
        if case["normaliser"] != normaliser:
            continue
        counted = decision.counted.astype(int).tolist()
        policy = (decision.counted & ~decision.replaced).astype(int).tolist()
        places = range(len(it.lengths))
        fields = {
            "prompts": nested([torch.ones(1, dtype=torch.int64) for _ in places]),
            "responses": filled([1] * len(it.lengths), it.lengths),
            "response_mask": filled(policy, it.lengths),
            "loss_mask": filled(counted, it.lengths),
            "old_log_probs": nested([torch.tensor(it.old_log_probs[row][: it.lengths[row]]) for row in places]),
            "advantages": filled(decision.advantages.tolist(), it.lengths),
            WEIGHT: nested([torch.tensor([weight], dtype=torch.float64) for weight in decision.teacher_weights]),
        }  # fmt: skip
        data = TensorDict(fields, batch_size=[len(it.lengths)])
        tokens = sum(n for n, mine in zip(it.lengths, counted, strict=True) if mine)
        tu.assign_non_tensor(
            data, dp_size=1, batch_num_tokens=tokens, global_batch_size=len(it.lengths), hapo_sequences=sum(counted),
            hapo_operator=decision.operator or "", hapo_d=decision.d,
        )  # fmt: skip
        flat = torch.cat([torch.tensor([0.0, *it.log_probs[row][: it.lengths[row]]]) for row in places]).roll(-1)
        flat.requires_grad_()
        offsets = torch.tensor([0, *torch.tensor([1 + n for n in it.lengths]).cumsum(0).tolist()])
        output = {"log_probs": torch.nested.nested_tensor_from_jagged(flat, offsets)}
        loss, _ = hapo_loss(actor(mode, horizon=case["max_response"], bound=1e9), output, data)
        (slope,) = torch.autograd.grad(loss, flat)
        assert loss.item() == pytest.approx(case["loss"], rel=1e-5), case["name"]
        for row, gradient in enumerate(it.gradient):
            n, start = it.lengths[row], int(offsets[row])
            torch.testing.assert_close(slope[start : start + n], torch.tensor(gradient[:n]), rtol=1e-5, atol=1e-8)
        seen += 1
    assert seen >= 2


def test_micro_batches_change_nothing() -> None:
    whole, *_ = hapo_loss(actor("token-mean"), *reversed(batch([0, 1, 2, 3])[:2]))
    parts = [hapo_loss(actor("token-mean"), *reversed(batch(it)[:2]))[0] for it in ([0, 1], [2], [3])]
    assert whole.item() == pytest.approx(sum(it.item() for it in parts), abs=1e-6)


def test_without_a_teacher_it_is_verls_own() -> None:
    from verl.workers.utils.losses import ppo_loss

    config = actor("token-mean")
    data, output, *_ = batch([0, 2], operator="")
    assert hapo_loss(config, output, data)[0].item() == ppo_loss(config, output, data)[0].item()
