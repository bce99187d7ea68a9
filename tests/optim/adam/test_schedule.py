"""When bases are fitted: spread over steps, seldom where they stand still, and the same after a checkpoint."""

from __future__ import annotations

import copy

import pytest
import torch

from swallowtail.optim import GivensAdam
from swallowtail.optim.adam import schedule
from swallowtail.optim.adam import small as adam_small

REFRESH = 4


def optimizer_of(count, **options):
    params = [torch.nn.Parameter(torch.ones(6, 5, dtype=torch.float64)) for _ in range(count)]
    return GivensAdam(params, 1e-3, refresh=REFRESH, **options)


def params_of(optimizer):
    return [p for group in optimizer.param_groups for p in group["params"]]


def draw(step, count):
    draws = torch.Generator().manual_seed(step)
    return [torch.randn(6, 5, generator=draws, dtype=torch.float64) for _ in range(count)]


def fitted(optimizer, gradients):
    """Take a step; which of the parameters got new bases in it."""
    before = [optimizer.state[p].get("left_groups", torch.eye(6)[None]).clone() for p in params_of(optimizer)]
    for p, g in zip(params_of(optimizer), gradients, strict=True):
        p.grad = g
    optimizer.step()
    found = [optimizer.state[p].get("left_groups") for p in params_of(optimizer)]
    return [
        k
        for k, (old, new) in enumerate(zip(before, found, strict=True))
        if new is not None and (old != new).any()
    ]


@pytest.fixture(params=["compiled", "plain"])
def either_way(request, monkeypatch):
    if request.param == "plain":
        monkeypatch.setattr(adam_small, "switched_off", lambda: "a test says so")


@pytest.fixture
def moving(monkeypatch):
    monkeypatch.setattr(schedule, "MOVED", 0.0)


@pytest.mark.usefixtures("either_way", "moving")
def test_fits_are_spread_over_steps():
    optimizer = optimizer_of(8)
    fits = {t: fitted(optimizer, draw(t, 8)) for t in range(1, 13)}
    assert [fits[t] for t in (1, 2, 3)] == [[], [], []]
    assert fits[4] == list(range(8))  # the first ones
    assert [fits[t] for t in range(5, 9)] == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert [fits[t] for t in range(9, 13)] == [[0, 4], [1, 5], [2, 6], [3, 7]]


@pytest.mark.usefixtures("either_way")
def test_bases_that_stand_still_are_fitted_less_often():
    optimizer, (G,) = optimizer_of(1), draw(0, 1)
    noise = [1 + 0.01 * g for g in draw(1, 60)]  # the basis goes on moving a little
    fits = [t for t in range(1, 60) if fitted(optimizer, [G * noise[t]])]
    assert fits == [4, 5, 13, 29, 45]
    moved = [t for t in range(60, 80) if fitted(optimizer, [1e3 * g for g in draw(t, 1)])]
    assert moved[:3] == [61, 65, 69]


def test_the_plain_rule_where_nothing_is_decided():
    found = [schedule.fit_of(t, {}, True, REFRESH) for t in range(1, 13)]
    assert found == [0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1]


@pytest.mark.usefixtures("either_way")
def test_a_resumed_run_fits_in_the_same_steps():
    ours, theirs = optimizer_of(3), optimizer_of(3)
    for t in range(1, 12):
        fitted(ours, draw(t, 3))
    for p, q in zip(params_of(theirs), params_of(ours), strict=True):
        p.data.copy_(q.data)
    theirs.load_state_dict(copy.deepcopy(ours.state_dict()))
    for t in range(12, 40):
        assert fitted(ours, draw(t, 3)) == fitted(theirs, draw(t, 3))
    assert all(torch.equal(p, q) for p, q in zip(params_of(ours), params_of(theirs), strict=True))


@pytest.mark.usefixtures("either_way", "moving")
def test_checkpoints_that_say_nothing_go_on():
    """Of earlier versions, and of GPUs."""
    ours = optimizer_of(2)
    for t in range(1, 8):
        fitted(ours, draw(t, 2))
    saved = copy.deepcopy(ours.state_dict())
    for state in saved["state"].values():
        del state[schedule.NEXT], state[schedule.TIMES]
    ours.load_state_dict(saved)
    assert [fitted(ours, draw(t, 2)) for t in range(8, 16)] == [[0], [1], [], [], [0], [1], [], []]


@pytest.mark.usefixtures("either_way", "moving")
def test_parameters_that_come_later_have_a_place_too():
    optimizer = optimizer_of(2)
    fitted(optimizer, draw(1, 2))
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(6, 5, dtype=torch.float64))]})
    fits = [fitted(optimizer, [*draw(t, 2), None if t < 4 else draw(t, 3)[2]]) for t in range(2, 13)]
    # The third began at step 4: its own steps are those of the optimiser less 3.
    assert fits == [[], [], [0, 1], [0], [1], [2], [], [0], [1, 2], [], []]


@pytest.mark.usefixtures("moving")
def test_a_gpu_is_not_asked():
    optimizer = optimizer_of(1)
    fitted(optimizer, draw(1, 1))
    (p,) = params_of(optimizer)
    assert schedule.NEXT in optimizer.state[p]
    schedule.stop(optimizer.state[p])
    assert not {schedule.NEXT, schedule.TIMES} & set(optimizer.state[p])
