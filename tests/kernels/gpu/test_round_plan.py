"""Steps of small groups: the tables, walked through in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from kernels.gpu.grouping import HUB, check_steps, free_groups

from swallowtail.kernels.gpu.round_plan import LONG_SHAPES, SHAPES, places, round_plan, slots, wide_places
from swallowtail.wiring import Butterfly, Grouped, Pairs

WIRINGS = {"free": free_groups(100, 16, 3), "hub": HUB, "butterfly": Grouped.from_wiring(Butterfly(70), 8)}


@pytest.mark.parametrize("shapes", [*((shape,) for shape in SHAPES), LONG_SHAPES])
@pytest.mark.parametrize("wiring", WIRINGS.values(), ids=WIRINGS)
def test_steps_are_the_rotation(wiring, shapes):
    plan = round_plan(wiring, shapes)
    check_steps(plan, wiring)


@pytest.mark.parametrize("wiring", WIRINGS.values(), ids=WIRINGS)
def test_the_groups_of_a_step_are_disjoint(wiring):
    plan = round_plan(wiring, SHAPES)
    for step in plan.coordinates.reshape(plan.steps, -1):
        named = step[step >= 0]
        assert len(set(named.tolist())) == len(named)


def test_the_shape_that_costs_least_is_taken():
    assert round_plan(free_groups(800, 16, 3), SHAPES).shape == SHAPES[0]  # many groups may go together
    chain = Pairs.from_sequence(300, [(0, k) for k in range(1, 300)])[0]
    assert round_plan(chain, SHAPES).shape in SHAPES[1:]


@pytest.mark.parametrize("lanes", [8, 16, 32])
def test_every_coordinate_has_a_row_of_its_own(lanes):
    n = 37
    assert sorted(slots(np.arange(48))) == list(range(48))
    plan = round_plan(Pairs(n, [[(k, k + 1) for k in range(0, 36, 2)]]), SHAPES)
    rows = places(plan, n, lanes) // (4 * lanes)
    inside = plan.coordinates >= 0
    np.testing.assert_array_equal(rows[inside], slots(plan.coordinates[inside]))
    assert rows[~inside].min() >= 48
    assert rows.max() < 52


def test_wide_rows_have_room_of_their_own():
    """A row of 16 vectors and their gradients has 128 bytes, and begins at one of its four quarters."""
    wiring = free_groups(37, 16, 2)
    plan = round_plan(wiring, SHAPES)
    at = wide_places(plan, 37, 16)
    inside = plan.coordinates >= 0
    np.testing.assert_array_equal(at[inside] // 128, slots(plan.coordinates[inside]))
    assert set((at % 128).ravel().tolist()) <= {0, 32, 64, 96}
    assert (at[~inside] // 128 >= 48).all()
