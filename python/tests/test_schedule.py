"""The gate: equal to the binary's table at every step, and to hand-computed rungs."""

from __future__ import annotations

import json
import subprocess
from decimal import Decimal

import pytest

import hapo


@pytest.mark.parametrize(
    ("group_size", "steps", "settings", "arguments"),
    [
        (8, 62, {"turn_off_epoch": 1.5}, ["--turn-off-epoch", "1.5"]),
        (
            8,
            20,
            {"success_limit": 7, "turn_off_epoch": "1.25", "steepness": 2.5},
            ["--success-limit", "7", "--turn-off-epoch", "1.25", "--steepness", "2.5"],
        ),
        (
            16,
            31,
            {"gamma0": Decimal("0.3"), "turn_off_epoch": 2},
            ["--gamma0", "0.3", "--turn-off-epoch", "2"],
        ),
    ],
)
def test_the_table_is_the_binarys(binary, group_size, steps, settings, arguments) -> None:
    schedule = hapo.Schedule(group_size, steps, **settings)
    last = schedule.extinction + 10
    command = [binary, "schedule", "--json", "--group-size", str(group_size), "--steps-per-epoch", str(steps)]
    told = subprocess.run([*command, "--steps", str(last), *arguments], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    expected = json.loads(told.stdout)
    table = schedule.table(last)
    assert table["rungs"] == expected["rungs"]
    assert table["extinct_at_step"] == expected["extinct_at_step"] == schedule.extinction
    for rung in table["rungs"]:
        closed = rung["first_closed_step"]
        assert schedule.success_limit(closed) < rung["successes"]
        assert closed == 1 or schedule.success_limit(closed - 1) >= rung["successes"]
    limits = [it["success_limit"] for it in table["steps"]]
    assert limits == [schedule.success_limit(it) for it in range(1, last + 1)]
    assert limits == sorted(limits, reverse=True)
    if "steps" in expected:
        assert table["steps"] == expected["steps"]


def test_rungs_by_hand() -> None:
    # ⌈93⌉: the gate is closed where the epoch equals the turn-off epoch; ln 3 / 10 = 0.1098… on either side for m = 1.
    assert hapo.Schedule(8, 62, turn_off_epoch=1.5).extinction == 93
    one = hapo.Schedule(8, 62, success_limit=1, turn_off_epoch=1.5)
    assert [it["first_closed_step"] for it in one.table(0)["rungs"]] == [100, 87]
    assert hapo.Schedule(8, 62, annealing="off").extinction is None
    assert hapo.Schedule(8, 62, gate="always").success_limit(10**9) == 8
    assert hapo.Schedule(8, 62, gate="never").success_limit(1) == -1
    assert one.threshold(93) == pytest.approx(0.05 + 0.2 / 2)


def test_what_is_wrong_names_the_argument() -> None:
    for settings, message in [
        ({}, "turn_off_epoch: expected the epoch at which the gate closes"),
        ({"turn_off_epoch": "soon"}, "turn_off_epoch: decimal number"),
        ({"turn_off_epoch": -1.5}, "turn_off_epoch: decimal number"),
        (
            {"turn_off_epoch": 1.5, "success_limit": 8},
            "success limit for groups of 8: expected 0 to 7, got 8",
        ),
        ({"turn_off_epoch": 1.5, "success_limit": -1}, "success_limit: expected a number from 0, got -1"),
        ({"turn_off_epoch": 1.5, "gamma0": 0.05}, "gamma0"),
        ({"turn_off_epoch": 1.5, "gate": "open"}, "gate: expected one of confidence, always, never, got"),
        ({"turn_off_epoch": 1.5, "gate": "posterior"}, "cannot be written as a table .* `hapo train` runs it"),
        ({"turn_off_epoch": 1.5, "annealing": "linear"}, "annealing: unknown variant `linear`"),
    ]:
        with pytest.raises(ValueError, match=message):
            hapo.Schedule(8, 62, **settings)
    with pytest.raises(ValueError, match="step: expected a step from 1, got 0"):
        hapo.Schedule(8, 62, turn_off_epoch=1.5).success_limit(0)
    with pytest.raises(ValueError, match="group_size"):
        hapo.Schedule(-8, 62, turn_off_epoch=1.5)
