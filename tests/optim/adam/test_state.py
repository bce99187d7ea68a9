"""The records: the numbers of a step on host and device, and which columns a sketch takes."""

from __future__ import annotations

import pytest
import torch

from swallowtail.optim.adam.groups import new_groups
from swallowtail.optim.adam.state import LEFT, RIGHT, SIDES, DeviceNumbers, Numbers, Stack

GROUP = {
    "betas": (0.9, 0.99), "lr": 0.1, "eps": 1e-8, "weight_decay": 0.5, "refresh": 10, "maximize": False,
    "statistics_decay": 0.9,
}  # fmt: skip


def numbers(t, sizes=None, state=None):
    return Numbers.of_step(t, state or {}, sizes, GROUP)


def test_numbers_are_adams_corrections():
    found = numbers(3)
    root = (1 - 0.99**3) ** 0.5
    assert found.eps == pytest.approx(1e-8 * root)
    assert found.factor == pytest.approx(root / (1 - 0.9**3))
    assert (found.lr, found.kept, found.used) == (0.1, 1 - 0.1 * 0.5, 1)


def test_the_device_has_the_same_fields():
    found = numbers(2)
    rows = torch.tensor([[0.0] * len(found), found], dtype=torch.float64)
    on_device = DeviceNumbers(rows, 1)
    for name in ("eps", "factor", "lr", "kept"):
        assert getattr(on_device, name).item() == getattr(found, name)
    target = torch.zeros(3)
    on_device.assign(target, torch.ones(3))
    assert target.tolist() == [1, 1, 1]
    rows[1, DeviceNumbers.index("used")] = 0
    on_device.assign(target, torch.full((3,), torch.nan))
    assert target.tolist() == [1, 1, 1]


@pytest.mark.parametrize("side", SIDES, ids=lambda side: side.name)
@pytest.mark.parametrize("columns", [1, 3, 7])
def test_all_columns_get_their_turn(side, columns):
    sizes, slots = (11, 7), 4
    other = sizes[1 - side.axis]
    state = {side.sketch: torch.zeros(slots, columns, sizes[side.axis])}
    seen: set[int] = set()
    for t in range(1, 40):
        found = numbers(t, sizes, state)
        start, every = getattr(found, side.start), other // columns
        taken = [start + k * every for k in range(columns)]
        assert max(taken) < other
        assert found.slot == (t - 1) % slots
        seen.update(taken)
    assert seen == set(range(other))


def test_sides_keep_their_keys_apart():
    keys = [getattr(side, name) for side in (LEFT, RIGHT) for name in ("angles", "pairs", "covariance")]
    assert len(set(keys)) == len(keys)


def test_a_stack_counts_from_its_state():
    stack = Stack(GROUP, (4, 3), [torch.nn.Parameter(torch.ones(4, 3))], [{"step": torch.tensor(8.0)}])
    stack.begin_step()
    assert (stack.t, stack.refit) == (9, False)
    stack.states[0]["step"] += 1
    stack.begin_step()
    assert (stack.t, stack.refit) == (10, True)
    assert stack.numbers == numbers(10, (4, 3))
    assert stack.fits(early=True) == {1}


def test_a_fit_of_groups_may_turn_out_to_be_early():
    state = {"step": torch.tensor(9.0), **new_groups(LEFT, 4, torch.zeros(()))}
    stack = Stack(GROUP, (4, 3), [torch.nn.Parameter(torch.ones(4, 3))], [state])
    stack.begin_step()
    assert stack.fits(early=False) == {2}  # for the first time
    assert stack.fits(early=True) == {0, 2}  # the last step may not count: then this is the ninth
