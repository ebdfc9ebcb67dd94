"""Decisions: the rules read plainly, on every small group."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import hapo

OPEN = hapo.Schedule(3, 10, success_limit=1, annealing="off")


def decide(method: hapo.Method, rewards, step=1, **kw) -> hapo.Decision:
    """One group of equal lengths with a teacher, unless said."""
    n = len(rewards)
    defaults = {"uids": ["a"] * n, "lengths": [4] * n, "is_truncated": [False] * n, "has_teacher": [True] * n}
    arguments = {**defaults, **kw}
    return hapo.decide(rewards, step=step, method=method, **arguments)


def test_every_small_group_by_the_plain_rules() -> None:
    """S ≤ m opens the gate; the lowest reward gives way, then truncated, then longer, then the first."""
    method = hapo.Method("luffy", 3, schedule=OPEN)
    for rewards in itertools.product([0.0, 0.5, 1.0], repeat=3):
        for truncated in itertools.product([False, True], repeat=3):
            for lengths in itertools.product([1, 2], repeat=3):
                got = decide(method, rewards, is_truncated=truncated, lengths=lengths, truncated="grade")
                successes = sum(it >= 1.0 for it in rewards)
                mixed = list(rewards)
                chosen = None
                if successes <= 1:
                    chosen = min(range(3), key=lambda it: (rewards[it], not truncated[it], -lengths[it], it))
                    mixed[chosen] = 1.0
                assert got.replaced.tolist() == [it == chosen for it in range(3)]
                expected = np.array(mixed) - np.mean(mixed)
                if chosen is not None:
                    expected[chosen] = 0.0
                np.testing.assert_allclose(got.advantages, expected, atol=1e-15)
                assert got.teacher_weights.tolist() == [float(it == chosen) for it in range(3)]
                assert got.successes.tolist() == [successes]
                assert got.metrics["gate/beta"] == float(chosen is not None)


def test_truncated_responses() -> None:
    method = hapo.Method("grpo", 3)
    cut = {"is_truncated": [True, False, False]}
    third = 1 / 3
    np.testing.assert_allclose(decide(method, [1.0, 1.0, 0.0], **cut).advantages, [-third, 2 * third, -third])
    masked = decide(method, [1.0, 1.0, 0.0], truncated="mask", **cut)
    np.testing.assert_allclose(masked.advantages, [0.0, 2 * third, -third])
    assert masked.trained.tolist() == [False, True, True]
    graded = decide(method, [1.0, 1.0, 0.0], truncated="grade", **cut)
    np.testing.assert_allclose(graded.advantages, [third, third, -2 * third])
    with pytest.raises(ValueError, match="truncated: unknown variant `drop`, expected one of `wrong`, `mask`, `grade`"):
        decide(method, [1.0], truncated="drop")


def test_to_be_truncated_never_pays_better_than_to_be_wrong() -> None:
    """A truncated row has the lower of ``wrong`` and the lowest reward graded in its group, and is no success."""
    method = hapo.Method("grpo", 4)
    cut = {"is_truncated": [True, False, False, True]}
    for truncated in ("wrong", "mask"):
        got = decide(method, [5.0, -1.0, 0.5, float("nan")], truncated=truncated, success_at=-1.0, wrong=-2.0, **cut)
        assert got.rewards.tolist() == [-2.0, -1.0, 0.5, -2.0]
        assert got.successes.tolist() == [2]
    got = decide(method, [5.0, -1.0, 0.5, 5.0], **cut)
    assert got.rewards.tolist() == [-1.0, -1.0, 0.5, -1.0]
    assert got.metrics["reward/below_wrong"] == 1.0
    graded = decide(method, [5.0, -1.0, 0.5, 5.0], truncated="grade", **cut)
    assert graded.rewards.tolist() == [5.0, -1.0, 0.5, 5.0]
    assert "reward/below_wrong" not in decide(method, [1.0, 0.0, 0.5, 1.0], **cut).metrics
    with pytest.raises(ValueError, match="wrong: expected a finite reward below success_at = 1, got 1"):
        decide(method, [1.0], wrong=1.0)


def test_a_bare_method_counts_successes_from_success_at() -> None:
    """Bare LUFFY with rewards of .9: the teacher's solution and the rollouts are successes from .9 on."""
    method = hapo.Method("luffy", 3)
    teachers = {"teacher_rewards": [0.9] * 3}
    with pytest.raises(ValueError, match=r"teacher_rewards: .* a reward of at least 1, got 0.9"):
        decide(method, [0.0, 0.9, 0.0], **teachers)
    got = decide(method, [0.0, 0.9, 0.0], success_at=0.9, **teachers)
    assert (got.successes.tolist(), got.n_eff.tolist(), got.replaced.tolist()) == ([1], [2], [True, False, False])
    np.testing.assert_allclose(got.advantages, [0.0, 0.3, -0.6], atol=1e-15)


def test_maxrl_refuses_negative_rewards() -> None:
    with pytest.raises(ValueError, match="rewards: `maxrl` cannot learn from rewards below 0, got -1"):
        decide(hapo.Method("maxrl", 3), [1.0, -1.0, 0.0])


def test_groups_are_by_uid_wherever_rows_stand() -> None:
    method = hapo.Method("luffy", 3, schedule=OPEN)
    rewards = [0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.5]
    uids = ["a", "b", "a", "b", "a", "b", None]
    got = hapo.decide(rewards, uids, [4] * 7, [False] * 7, [True] * 7, 1, method=method)
    assert got.uids == ("a", "b")
    assert got.groups.tolist() == [0, 1, 0, 1, 0, 1, -1]
    assert got.injected.tolist() == [True, False]
    assert got.replaced.tolist() == [True] + [False] * 6
    assert got.trained.tolist() == [True] * 6 + [False]
    for shuffle in itertools.islice(itertools.permutations(range(7)), 0, 5040, 97):
        order = list(shuffle)
        again = hapo.decide(
            [rewards[it] for it in order], [uids[it] for it in order], [4] * 7, [False] * 7, [True] * 7, 1,
            method=method,
        )  # fmt: skip
        assert again.metrics == got.metrics


def test_short_groups_and_groups_without_a_teacher() -> None:
    method = hapo.Method("luffy", 3, schedule=OPEN)
    lone = decide(method, [0.0])
    assert (lone.dropped.tolist(), lone.trained.tolist()) == ([True], [False])
    two = decide(method, [0.0, 0.0])
    assert (two.n_eff.tolist(), two.confidence.tolist(), two.injected.tolist()) == ([2], [0.25], [True])
    without = decide(method, [0.0] * 3, has_teacher=[False] * 3)
    assert (without.injected.any(), without.metrics["gate/open_no_teacher"]) == (False, 1.0)
    assert decide(method, []).uids == ()


def test_the_fixed_slot_is_the_first_row() -> None:
    method = hapo.Method("luffy", 3)
    assert method.has_fixed_slot
    # The first row was sampled and does not count: S = 1 of 2, and the mean is over the teacher and two rollouts.
    got = decide(method, [1.0, 0.0, 1.0])
    assert got.replaced.tolist() == [True, False, False]
    assert (got.successes.tolist(), got.n_eff.tolist()) == ([1], [2])
    np.testing.assert_allclose(got.advantages, [0.0, -2 / 3, 1 / 3])
    bare = decide(method, [1.0, 0.0, 1.0], has_teacher=[False] * 3)
    assert bare.n_eff.tolist() == [3]


def test_methods_credit_their_rows() -> None:
    hpt = decide(hapo.Method("hpt", 3), [0.0] * 3)
    assert (hpt.trained.tolist(), hpt.operator) == ([True, False, False], "srft")
    chord = decide(hapo.Method("chord-mu", 3), [0.0] * 3, step=100)
    assert chord.teacher_weights[0] == pytest.approx(0.475)
    srft = decide(hapo.Method("srft", 3, srft={"weights": "entropy"}), [0.0, 1.0, 0.0])
    assert srft.entropy_exponents.tolist() == [-1.0, 1.0, 0.0]
    assert (srft.advantages.tolist(), srft.teacher_weights.tolist()) == ([0.0, 0.1, -1.0], [0.5, 0.0, 0.0])
    maxrl = decide(hapo.Method("maxrl", 3), [0.0, 1.0, 0.0])
    np.testing.assert_allclose(maxrl.advantages, [-1.0, 2.0, -1.0])
    weighted = decide(hapo.Method("trapo", 3, schedule=OPEN, teacher={"weight": 0.25}), [0.0] * 3)
    assert (weighted.teacher_weights.tolist(), weighted.operator) == ([0.25, 0.0, 0.0], "trapo")
    closed = hapo.Method("trapo", 3, schedule=hapo.Schedule(3, 10, turn_off_epoch=1))
    assert [bool(decide(closed, [0.0] * 3, step=it).injected) for it in (1, 9, 10, 11)] == [
        True,
        True,
        False,
        False,
    ]


def test_rewards_need_not_be_0_or_1() -> None:
    method = hapo.Method("luffy", 3, schedule=OPEN)
    got = decide(method, [0.5, 0.25, 0.75], success_at=0.5, teacher_rewards=[0.9] * 3)
    assert (got.successes.tolist(), got.injected.tolist()) == ([2], [False])
    got = decide(method, [0.5, 0.25, 0.0], success_at=0.5, teacher_rewards=[0.9] * 3)
    assert got.replaced.tolist() == [False, False, True]
    mean = (0.5 + 0.25 + 0.9) / 3
    np.testing.assert_allclose(got.advantages, [0.5 - mean, 0.25 - mean, 0.0])
    with pytest.raises(ValueError, match="teacher_rewards"):
        decide(method, [0.0] * 3, teacher_rewards=[0.5] * 3)


def test_advantages_and_weights() -> None:
    np.testing.assert_allclose(hapo.advantages([0.0, 1.0, 0.0, 1.0]), [-0.5, 0.5, -0.5, 0.5])
    got = hapo.advantages(np.float32([0, 1, 1, 1]), [7, 7, 8, None], std=True)
    np.testing.assert_allclose(got, [-0.5 / (0.5**0.5 + 1e-6), 0.5 / (0.5**0.5 + 1e-6), 0.0, 0.0])
    assert hapo.teacher_weight("one-minus-confidence", 1, 8) == 0.8
    assert hapo.teacher_weight("relative", 1, 8, initial_threshold=0.25) == pytest.approx(1 / 3)
    assert hapo.teacher_weight(0.3, 0, 8) == 0.3
    assert hapo.teacher_weight("advantage", 0, 8, advantage=0.875) == 0.875
    for reward, word in ((np.nan, "NaN"), (np.inf, "inf"), (-np.inf, "-inf")):
        with pytest.raises(ValueError, match=f"rewards: row 1 is {word}, expected a finite number"):
            hapo.advantages([0.0, reward])


def test_what_is_wrong_names_the_argument() -> None:
    method = hapo.Method("luffy", 3, schedule=OPEN)
    for arguments, error, message in [
        ({"rewards": [[0.0]]}, ValueError, "rewards: expected one dimension, got 2"),
        ({"rewards": ["0", "1", "1"]}, TypeError, "rewards: expected numbers that fit float64"),
        ({"rewards": [0.0, float("nan"), 0.0]}, ValueError, "rewards: row 1 is NaN"),
        ({"uids": ["a"] * 2}, ValueError, "uids: expected the 3 entries of rewards, got 2"),
        ({"lengths": [1.5] * 3}, TypeError, "lengths: expected numbers that fit int64, got float64"),
        ({"lengths": [1, 2, -3]}, ValueError, "lengths: row 2: expected a number from 0, got -3"),
        ({"is_truncated": [0, 1, 0]}, TypeError, "is_truncated: expected numbers that fit bool"),
        ({"has_teacher": [True, False, True]}, ValueError, "has_teacher: expected one value"),
        ({"step": 0}, ValueError, "step: expected a step from 1, got 0"),
        ({"rewards": [0.0] * 4}, ValueError, "uids: expected groups of at most 3 rows, got one of 4"),
    ]:
        arguments = dict(arguments)
        with pytest.raises(error, match=message):
            decide(method, arguments.pop("rewards", [0.0] * 3), **arguments)
    for arguments, message in [
        ({"name": "ppo"}, "name: expected one of sft, grpo"),
        ({"name": "sft"}, "name: imitation samples nothing, got"),
        ({"name": "opd"}, 'name: it needs a second model\'s log-probabilities, `hapo train` has them, got "opd"'),
        ({"name": "uft"}, "name: it samples behind prefixes or hints, `hapo train` does"),
        ({"name": "grpo", "schedule": OPEN}, "schedule: method `grpo`"),
        ({"name": "luffy", "schedule": OPEN, "slot": "fixed"}, 'schedule: slot "fixed"'),
        ({"name": "luffy", "slot": "middle"}, "slot: unknown variant `middle`"),
        ({"name": "luffy", "teacher": {"d": 0}}, r"teacher.d: expected a probability in \(0, 1\), got 0"),
        ({"name": "luffy", "srft": {"weights": "entropy"}}, "srft: expected no such table"),
        ({"name": "srft", "srft": {"weight": "entropy"}}, "srft.weight: unknown field `weight`"),
        ({"name": "luffy", "injection": "replay"}, "injection: unknown field `injection`"),
        ({"name": "luffy", "d": 0.1}, "d: unknown field `d`, expected one of `group_size`, `advantage`, `teacher`"),
        (
            {"name": "trapo", "group_size": 8, "trapo": {"prefixes": "micro-groups"}},
            "name: it samples behind prefixes or hints",
        ),
        ({"name": "luffy", "teacher": {"weight": "two"}}, "teacher.weight: unknown variant `two`"),
        (
            {"name": "luffy", "schedule": OPEN, "group_size": 4},
            "group_size: expected the schedule's, 3, got 4",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            hapo.Method(**{"group_size": 3, **arguments})


def test_a_huge_step_is_decided() -> None:
    n = 64 * 512
    method = hapo.Method("luffy", 64, schedule=hapo.Schedule(64, 10, annealing="off"))
    uids = np.repeat(np.arange(512), 64)
    got = hapo.decide(np.zeros(n), uids, np.full(n, 16), np.zeros(n, bool), np.ones(n, bool), 1, method=method)
    assert got.metrics["gate/beta"] == 1.0
    assert got.replaced.sum() == 512
