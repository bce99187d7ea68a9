"""Which basis a side gets, what its fit does to gradients, and when it comes."""

from __future__ import annotations

import copy

import pytest
import torch

from swallowtail.optim import GivensAdam
from swallowtail.optim.adam import small as adam_small
from swallowtail.optim.adam.bases import Bases
from swallowtail.optim.adam.fit import matrix_shape, new_side, refit
from swallowtail.optim.adam.state import SIDES, Stack
from swallowtail.optim.adam.statistics import observe

SETTINGS = {
    "depth": 2, "statistics": "sketch", "sketch_columns": 4, "sketch_steps": 5, "statistics_decay": 0.9,
    "lr": 1e-3, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.0, "maximize": False, "refresh": 10,
}  # fmt: skip
REFRESH = 4


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((), None), ((5,), None), ((5, 1), None), ((1, 5), None), ((4, 5), (4, 5)), ((8, 3, 2, 2), (8, 12))],
)
def test_matrix_shape(shape, expected):
    assert matrix_shape(torch.Size(shape)) == expected


@pytest.mark.parametrize("statistics", ["sketch", "covariance"])
@pytest.mark.parametrize("kind", ["pairs", "butterfly"])
def test_bases_decorrelate_planted_gradients(kind, statistics):
    """Gradients a bᵀ + noise: in the learned basis most of the energy is in one entry."""
    group = {**SETTINGS, "statistics": statistics}
    like = torch.zeros((), dtype=torch.float64)
    state = {"step": torch.zeros(()), "exp_avg": like}
    for side in SIDES:
        state.update(new_side(side, kind, (16, 8), group, like))
    stack = Stack(group, (16, 8), [torch.nn.Parameter(like)], [state])
    a, b = torch.randn(16, 1, dtype=torch.float64), torch.randn(1, 8, dtype=torch.float64)
    for _ in range(10):
        G = (a @ b) * torch.randn((), dtype=torch.float64) + 0.01 * torch.randn(16, 8, dtype=torch.float64)
        stack.begin_step()
        observe(stack, G[None])
        state["step"] += 1
    refit([state], (16, 8), group["depth"])
    bases = Bases([state], (16, 8), 2)
    Z = bases.to_basis(G[None])
    assert torch.allclose(bases.from_basis(Z)[0], G)
    assert float(Z.abs().max() / Z.norm()) > 0.95


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


@pytest.mark.usefixtures("either_way")
def test_fits_are_spread_over_steps():
    optimizer = optimizer_of(8)
    fits = {t: fitted(optimizer, draw(t, 8)) for t in range(1, 13)}
    assert [fits[t] for t in (1, 2, 3)] == [[], [], []]
    assert fits[4] == list(range(8))  # the first ones
    assert [fits[t] for t in range(5, 9)] == [[1, 5], [2, 6], [3, 7], [0, 4]]
    assert [fits[t] for t in range(9, 13)] == [[1, 5], [2, 6], [3, 7], [0, 4]]


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


@pytest.mark.usefixtures("either_way")
def test_parameters_that_come_later_have_a_place_too():
    optimizer = optimizer_of(2)
    fitted(optimizer, draw(1, 2))
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(6, 5, dtype=torch.float64))]})
    fits = [fitted(optimizer, [*draw(t, 2), None if t < 4 else draw(t, 3)[2]]) for t in range(2, 13)]
    # The third began at step 4: its own steps are those of the optimiser less 3.
    assert fits == [[], [], [0, 1], [1], [], [2], [0], [1, 2], [], [], [0]]
