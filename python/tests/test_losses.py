"""Losses: PyTorch's recorded numbers, autograd, and the torch expressions beside them."""

from __future__ import annotations

import itertools
import json
import subprocess

import cut
import numpy as np
import pytest

import hapo
from conftest import ROOT
from hapo import _hapo

torch = pytest.importorskip("torch")
import hapo.torch as ht  # noqa: E402

OFF = float("inf")
GENERATOR = torch.Generator().manual_seed(7)


def batch(rows: int = 4, tokens: int = 6):
    """Log-probabilities away from corners, old ones, a mask with holes and an empty row."""
    log_probs = -0.1 - 3 * torch.rand(rows, tokens, generator=GENERATOR)
    old = log_probs + 0.6 * (torch.rand(rows, tokens, generator=GENERATOR) - 0.5)
    mask = torch.rand(rows, tokens, generator=GENERATOR) < 0.7
    mask[-1] = False
    return log_probs.requires_grad_(), old, mask


def close(ours, plain, log_probs) -> None:
    """Value and gradient agree."""
    (d_ours,) = torch.autograd.grad(ours, log_probs)
    (d_plain,) = torch.autograd.grad(plain, log_probs)
    torch.testing.assert_close(ours, plain, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(d_ours, d_plain, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("normaliser", ["constant", "token-mean", "sequence-mean"])
def test_the_policys_loss_is_the_plain_one(level, normaliser) -> None:
    for low, high in [(0.2, 0.2), (0.05, 0.28), (float("inf"), float("inf"))]:
        log_probs, old, mask = batch()
        advantages = torch.tensor([0.875, -0.125, 1.5, 3.0])
        options = {
            "divisor": 7.5, "clip_low": low, "clip_high": high,
            "importance_ratio_level": level, "normaliser": normaliser,
        }  # fmt: skip
        ours = ht.policy_loss(log_probs, old, mask, advantages, **options)
        close(ours, ht.plain_policy_loss(log_probs, old, mask, advantages, **options), log_probs)


@pytest.mark.parametrize("operator", [name for name, _ in hapo.operators()])
@pytest.mark.parametrize("normaliser", ["constant", "token-mean", "sequence-mean"])
def test_the_teachers_loss_is_the_plain_one(operator, normaliser) -> None:
    log_probs, _, mask = batch()
    weights = torch.tensor([1.0, 0.5, 0.25, 2.0])
    options = {"divisor": 3.0, "operator": operator, "d": 0.1, "normaliser": normaliser}
    ours = ht.teacher_loss(log_probs, mask, weights, **options)
    close(ours, ht.plain_teacher_loss(log_probs, mask, weights, **options), log_probs)


def test_every_operator_and_ratio_passes_gradcheck() -> None:
    settings = {"eps": 1e-2, "atol": 2e-3, "rtol": 2e-2, "nondet_tol": 0.0, "check_batched_grad": False}
    for operator in ("luffy", "srft", "trapo", "chord"):
        log_probs, _, mask = batch(2, 4)
        weights = torch.ones(2, dtype=torch.float64)
        assert torch.autograd.gradcheck(
            lambda it, w=weights, m=mask, o=operator: ht.teacher_loss(it, m, w, divisor=1.0, operator=o, d=0.01),
            (log_probs,), **settings,
        )  # fmt: skip
    for level in ("token", "sequence"):
        log_probs, old, mask = batch(2, 4)
        advantages = torch.tensor([0.5, -0.5])
        assert torch.autograd.gradcheck(
            lambda it, o=old, m=mask, a=advantages, r=level: ht.policy_loss(
                it, o, m, a, divisor=1.0, clip_low=OFF, clip_high=OFF, importance_ratio_level=r
            ),
            (log_probs,), **settings,
        )  # fmt: skip


def padded(rows: list[list[float]], width: int):
    """Rows of that width, zeros behind."""
    return torch.tensor([it + [0.0] * (width - len(it)) for it in rows])


def entropies(binary: str, case: dict) -> list[list[float]]:
    """Of each response's tokens; they are not recorded, so the model of the case is asked."""
    rows = case["sequences"]
    model = ROOT / "testdata/fixtures/models" / case["model"]
    lines = "".join(json.dumps({"input_ids": it["prompt"] + it["response"]}) + "\n" for it in rows)
    told = subprocess.run(
        [binary, "logprobs", "--model", str(model), "--input", "-"],
        input=lines, capture_output=True, text=True, check=True,
    )  # fmt: skip
    answers = [json.loads(it)["entropy"] for it in told.stdout.splitlines()]
    return [it[len(row["prompt"]) - 1 : -1] for it, row in zip(answers, rows, strict=True)]


def test_recorded_losses_of_pytorch(cases, binary: str) -> None:
    """The first step's loss of every case, from its recorded log-probabilities."""
    for case in cases:
        rows = case["sequences"]
        width = max(len(it["response"]) for it in rows)
        log_probs = padded([it["logprobs_before"] for it in rows], width)
        lengths = [len(it["response"]) for it in rows]
        mask = torch.arange(width)[None] < torch.tensor(lengths)[:, None]
        taught = torch.tensor([it["teacher"] for it in rows])
        old = padded([it["old_logprobs"] or [] for it in rows], width)
        normaliser = case["normaliser"].replace("_", "-")
        divisor = hapo.divisor(normaliser, lengths, case["l_max"])
        loss = ht.policy_loss(
            log_probs, old, mask & ~taught[:, None], torch.tensor([it["advantage"] or 0.0 for it in rows]),
            divisor=divisor, clip_low=case["clip_low"], clip_high=case["clip_high"], normaliser=normaliser,
        )  # fmt: skip
        if case["operator"] != "none":
            loss = loss + ht.teacher_loss(
                log_probs, mask & taught[:, None], torch.full((len(rows),), case["teacher_weight"]),
                divisor=divisor, operator=case["operator"], d=case["d"], normaliser=normaliser,
            )  # fmt: skip
        if case["entropy_coef"] != 0.0:
            # The bonus is on the policy's tokens alone.
            policy = mask & ~taught[:, None]
            bonus = torch.where(policy, padded(entropies(binary, case), width), 0.0).sum(1)
            if normaliser == "sequence-mean":
                bonus = bonus / policy.sum(1).clamp(min=1)
            loss = loss - case["entropy_coef"] * bonus.sum() / divisor
        assert loss.item() == pytest.approx(case["steps"][0]["loss"], abs=1e-6), case["case"]
    assert len(cases) == 9


def test_cut_responses_have_the_recorded_loss() -> None:
    """Random groups with cut responses, by every normaliser: the loss and its gradient are those of PyTorch in f64."""
    seen = 0
    for it in cut.batches(ROOT):
        decision, case = it.decision, it.case
        log_probs = torch.tensor(it.log_probs, requires_grad=True)
        mask = torch.arange(log_probs.shape[1])[None] < torch.tensor(it.lengths)[:, None]
        trained, replaced = torch.tensor(decision.trained)[:, None], torch.tensor(decision.replaced)[:, None]
        lengths = np.array(it.lengths)[decision.counted]
        options = {
            "divisor": hapo.divisor(case["normaliser"], lengths, case["max_response"]), "normaliser": case["normaliser"]
        }  # fmt: skip
        loss = ht.policy_loss(
            log_probs, torch.tensor(it.old_log_probs), mask & trained & ~replaced, torch.tensor(decision.advantages),
            **options,
        )  # fmt: skip
        if decision.operator is not None:
            weights = torch.tensor(decision.teacher_weights)
            taught = mask & trained & replaced
            loss = loss + ht.teacher_loss(
                log_probs, taught, weights, operator=decision.operator, d=decision.d, **options
            )
        (slopes,) = torch.autograd.grad(loss, log_probs)
        # Terms of both signs in f32: a loss near 0 keeps their absolute error.
        assert loss.item() == pytest.approx(case["loss"], rel=1e-6, abs=1e-8), case["name"]
        torch.testing.assert_close(slopes, torch.tensor(it.gradient), rtol=1e-6, atol=1e-9)
        seen += 1
    assert seen == 10


def test_divisors() -> None:
    assert hapo.divisor("constant", [2, 3, 5], 7) == 21.0
    assert hapo.divisor("token-mean", [2, 3, 5]) == 10.0
    assert hapo.divisor("sequence-mean", [2, 3, 5]) == 3.0
    with pytest.raises(ValueError, match="max_response: expected the longest response allowed"):
        hapo.divisor("constant", [2])


def test_other_types_and_layouts_are_taken() -> None:
    log_probs, old, mask = batch()
    advantages = torch.tensor([1.0, -1.0, 0.5, 0.0])
    whole = ht.policy_loss(log_probs, old, mask, advantages, divisor=2.0)
    for it in (log_probs.double(), log_probs.t().contiguous().t()):
        torch.testing.assert_close(ht.policy_loss(it, old, mask, advantages, divisor=2.0), whole)
    half = log_probs.detach().bfloat16().requires_grad_()
    (slope,) = torch.autograd.grad(ht.policy_loss(half, old, mask, advantages, divisor=2.0), half)
    assert slope.dtype == torch.bfloat16
    empty = torch.zeros(0, 5)
    assert ht.policy_loss(empty, empty, empty.bool(), torch.zeros(0), divisor=1.0).item() == 0.0


def test_entropy_factors() -> None:
    entropies = torch.tensor([[1.0, 3.0, 9.0], [2.0, 2.0, 2.0]])
    mask = torch.tensor([[True, True, False], [True, True, True]])
    got = ht.entropy_factor(entropies, mask, torch.tensor([-1.0, 0.0]))
    torch.testing.assert_close(got, torch.tensor([2.0, 0.0]).neg().exp())


def test_arrays_are_checked_by_name() -> None:
    ones = np.ones((2, 3), np.float32)
    mask = np.ones((2, 3), bool)
    factors = np.ones(2)
    options = {"operator": "luffy", "d": 0.1, "normaliser": "constant"}
    loss, tokens = _hapo.teacher_terms(-ones, mask, factors, 1.0, ones.copy(), **options)
    assert (tokens, loss) == (6, pytest.approx(-6 * np.exp(-1) / (np.exp(-1) + 0.1)))
    for position, bad, error, message in [
        (
            0,
            ones.astype(np.float64),
            TypeError,
            "log_probs: expected a contiguous array of float32 with 2 dimensions, got float64",
        ),
        (0, np.ones((3, 2), np.float32).T, TypeError, "log_probs: .*got a strided one"),
        (0, [[1.0]], TypeError, "log_probs: .*got list"),
        (1, mask[:1].copy(), ValueError, "mask: expected the shape of log_probs"),
        (1, mask.astype(np.int64), TypeError, "mask: .*bool.*int64"),
        (2, np.ones(3), ValueError, "weights: expected the shape of rows of log_probs, 2, got 3"),
        (3, 0.0, ValueError, "divisor: expected a number above 0, got 0"),
        (4, np.ones((2, 2), np.float32), ValueError, "d_log_probs: expected the shape of log_probs"),
    ]:
        arguments = [ones, mask, factors, 1.0, ones.copy()]
        arguments[position] = bad
        with pytest.raises(error, match=message):
            _hapo.teacher_terms(*arguments, **options)
    frozen = ones.copy()
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="d_log_probs"):
        _hapo.teacher_terms(ones, mask, factors, 1.0, frozen, **options)
    with pytest.raises(ValueError, match="operator: expected one of luffy, srft, trapo, chord"):
        _hapo.teacher_terms(ones, mask, factors, 1.0, ones.copy(), **{**options, "operator": "ppo"})


def test_no_mask_and_scale_are_left_out() -> None:
    """The derivative is that of the scaled loss, whatever the scale of what comes after."""
    for scale, tokens in itertools.product([1.0, -2.5], [1, 64]):
        log_probs, old, mask = batch(3, tokens)
        ours = scale * ht.policy_loss(log_probs, old, mask, torch.ones(3), divisor=5.0)
        plain = scale * ht.plain_policy_loss(log_probs, old, mask, torch.ones(3), divisor=5.0)
        close(ours, plain, log_probs)
