"""Gradients that a step cannot use: none, zero, not finite, sparse, complex, too large."""

from __future__ import annotations

import copy

import pytest
import torch
from optim.torch_cases import EACH, problem, run

from swallowtail.optim import GivensAdam


@pytest.mark.parametrize("info", EACH)
def test_parameters_without_gradients_stay(info):
    params, loss = problem()
    alone = torch.nn.Parameter(torch.ones(3, 3))
    optimizer = info.optim_cls([*params, alone])
    run(optimizer, loss, 3)
    assert torch.equal(alone, torch.ones(3, 3))


@pytest.mark.parametrize("info", EACH)
def test_zero_gradients_change_nothing(info):
    p = torch.nn.Parameter(torch.randn(4, 5))
    start, optimizer = p.detach().clone(), info.optim_cls([p])
    for _ in range(3):
        p.grad = torch.zeros_like(p)
        optimizer.step(lambda: torch.zeros(()))
    assert torch.equal(p, start)


@pytest.mark.parametrize("info", EACH)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_non_finite_gradients_are_skipped_with_a_warning(info, bad):
    params, loss = problem()
    optimizer = info.optim_cls(params)
    run(optimizer, loss, 3)
    saved, before = copy.deepcopy(optimizer.state_dict()), [p.detach().clone() for p in params]

    def closure():
        for p in params:
            p.grad = torch.full_like(p, bad)
        return torch.ones(())

    with pytest.warns(RuntimeWarning, match="skipped"):
        optimizer.step(closure)
    assert all(torch.equal(p, q) for p, q in zip(params, before, strict=True))
    after = optimizer.state_dict()
    for key, state in saved["state"].items():
        assert all(torch.equal(value, after["state"][key][name]) for name, value in state.items())


@pytest.mark.parametrize("info", EACH)
def test_sparse_and_complex_are_clear_errors(info):
    p = torch.nn.Parameter(torch.ones(4, 3))
    optimizer = info.optim_cls([p])

    def closure():
        p.grad = torch.eye(4, 3).to_sparse()
        return torch.ones(())

    with pytest.raises(RuntimeError, match="dense gradients"):
        optimizer.step(closure)
    with pytest.raises(TypeError, match="real part"):
        info.optim_cls([torch.nn.Parameter(torch.ones(3, dtype=torch.complex64))])
    with pytest.raises(TypeError, match="real part"):
        optimizer.add_param_group({"params": torch.nn.Parameter(torch.ones(3, dtype=torch.complex64))})
    assert len(optimizer.param_groups) == 1


def test_gradients_whose_squares_overflow_are_skipped():
    p = torch.nn.Parameter(torch.ones(3, 3))
    optimizer = GivensAdam([p])
    p.grad = torch.full_like(p, 1e30)
    with pytest.warns(RuntimeWarning, match="overflows"):
        optimizer.step()
    assert torch.equal(p, torch.ones(3, 3))
    assert not optimizer.state[p]


def test_parameters_that_would_overflow_are_not_written():
    p = torch.nn.Parameter(torch.full((3,), 6e4, dtype=torch.float16))
    optimizer = GivensAdam([p], lr=1e5)
    p.grad = -torch.ones_like(p)
    with pytest.warns(RuntimeWarning, match="would become"):
        optimizer.step()
    assert bool(torch.isfinite(p).all())


def test_a_skipped_step_is_reported_where_it_was_asked_for():
    p = torch.nn.Parameter(torch.ones(3))
    p.grad = torch.full((3,), float("nan"))
    optimizer = GivensAdam([p])
    with pytest.warns(RuntimeWarning, match="skipped") as seen:
        optimizer.step()
    assert seen[0].filename == __file__
