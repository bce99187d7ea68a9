"""Steps of groups of 16: the tables, walked through in NumPy, and where rows lie."""

from __future__ import annotations

import numpy as np
import pytest
from kernels.gpu.grouping import HUB, check_steps, free_groups

from swallowtail.kernels.gpu import half_plan as half
from swallowtail.wiring import Butterfly

WIRINGS = {"free": free_groups(104, 16, 3), "hub": HUB, "butterfly": Butterfly(64), "odd": Butterfly(72, 2)}
everything = pytest.mark.parametrize("wiring", WIRINGS.values(), ids=WIRINGS)


@everything
@pytest.mark.parametrize("complete", [False, True])
def test_steps_are_the_rotation(wiring, complete):
    plan = half.half_plan(wiring, 4, complete)
    check_steps(plan, wiring)
    named = plan.coordinates[plan.coordinates >= 0]
    if complete:
        assert set(named.tolist()) == set(range(wiring.n))


@everything
def test_steps_that_share_a_coordinate_have_a_barrier_between_them(wiring):
    plan = half.half_plan(wiring, 4, False)
    steps = plan.coordinates.reshape(plan.steps, -1)
    for order in (steps, steps[::-1]):
        flags, since = half.barriers(order), set()
        for step, flag in zip(order, flags, strict=True):
            named = step[step >= 0].tolist()
            assert len(set(named)) == len(named)
            assert since.isdisjoint(named)
            since = set() if flag else since | set(named)
        assert flags[-1]


@everything
def test_every_coordinate_has_a_row_of_its_own(wiring):
    slot = half.half_plan(wiring, 4, True).slot
    assert sorted(slot.tolist()) == list(range(len(slot)))
    assert (np.sort(slot[half.octets(len(slot))] & 7, axis=1) == np.arange(8)).all()


def worst(plan: half.HalfPlan) -> float:
    """How many rows of a half of a group have one bank, on average."""
    found = []
    for row in plan.coordinates.reshape(-1, 8):
        named = row[row >= 0]
        if len(named):
            found.append(np.bincount(plan.slot[named] & 7).max())
    return float(np.mean(found))


@pytest.mark.parametrize(("n", "most"), [(256, 1), (4096, 1), (512, 1.2), (2048, 1.2)])
def test_rows_of_butterflies_have_different_banks(n, most):
    assert worst(half.half_plan(Butterfly(n), 8, False)) <= most


def test_rows_of_other_groups_are_spread():
    wiring = free_groups(784, 16, 4)
    plan = half.half_plan(wiring, 8, False)
    scattered = plan._replace(slot=np.random.default_rng(0).permutation(len(plan.slot)))
    assert worst(plan) < 0.8 * worst(scattered)


@pytest.mark.parametrize("lanes", [16, 24, 32, 48, 64])
def test_places_of_rows(lanes):
    n = 72
    plan = half.half_plan(Butterfly(n), 4, False)
    place, rows = half.group_places(plan, n, lanes), half.rows(n)
    inside = plan.coordinates >= 0
    np.testing.assert_array_equal(place[inside] // (2 * lanes), plan.slot[plan.coordinates[inside]])
    assert (place[~inside] // (2 * lanes) >= rows - half.SPARE).all()
    entry = half.entries(plan, n, lanes, 256)
    assert entry.shape == (8, 32)
    assert (entry[:3].ravel() // (2 * lanes)).tolist() == plan.slot[half.octets(96)].ravel().tolist()
    assert (entry[3:] // (2 * lanes) >= rows - half.SPARE).all()
    assert entry.max() < rows * 2 * lanes


@everything
def test_every_eigenvalue_has_its_place(wiring):
    plan = half.half_plan(wiring, 4, True)
    found = half.last_of(plan)
    assert sorted(found[found >= 0].tolist()) == list(range(wiring.n))
    for c in range(wiring.n):
        (q,), _ = np.nonzero(found == c)
        later = plan.coordinates[q + 1 :]
        assert plan.inner < plan.steps or not (later == c).any()


def test_the_inner_steps_of_a_butterfly():
    plan = half.half_plan(Butterfly(4096), 16, True)
    assert (plan.steps, plan.inner) == (48, 32)
    free = half.half_plan(free_groups(784, 16, 3), 8, True)
    assert free.inner == free.steps
