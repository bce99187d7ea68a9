"""GivensAdam: state and shapes of all kinds, loading, arguments."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from optim.adam.training import trained

from swallowtail.optim import GivensAdam


def test_long_sides_are_left_alone():
    (E,), optimizer = trained(lambda p: GivensAdam(p, max_side=50), [(100, 8)], steps=3)
    assert "left_groups" not in optimizer.state[E]
    assert "right_groups" in optimizer.state[E]


def test_sides_have_groups_where_they_can_be_cut():
    (W,), optimizer = trained(lambda p: GivensAdam(p), [(600, 131)], steps=2)
    assert optimizer.state[W]["left_groups"].shape == (5, 120, 120)
    assert "right_groups" not in optimizer.state[W]
    assert "right_angles" in optimizer.state[W]  # 131 is prime


def test_state_is_smaller_than_soaps():
    (W,), optimizer = trained(lambda p: GivensAdam(p), [(1024, 1024)], steps=2, dtype=torch.float32)
    floats = sum(v.numel() for v in optimizer.state[W].values())
    assert floats < 0.42 * 6 * 1024**2  # SOAP's: m, v, two covariances and two bases


def test_half_precision_parameters_have_float32_state_also_after_loading():
    params, optimizer = trained(lambda p: GivensAdam(p), [(8, 6), (5,)], dtype=torch.bfloat16)
    twin = GivensAdam([torch.nn.Parameter(p.detach().clone()) for p in params])
    twin.load_state_dict(optimizer.state_dict())
    for state in twin.state.values():
        assert {v.dtype for v in state.values()} <= {torch.float32, torch.int64}
    assert params[0].dtype == torch.bfloat16


def test_loaded_state_is_a_copy():
    params, optimizer = trained(lambda p: GivensAdam(p), [(8, 6)])
    saved = optimizer.state_dict()
    kept = copy.deepcopy(saved)
    twin = GivensAdam([torch.nn.Parameter(params[0].detach().clone())])
    twin.load_state_dict(saved)
    twin.param_groups[0]["params"][0].grad = torch.ones(8, 6, dtype=torch.float64)
    twin.step()
    assert all(torch.equal(v, saved["state"][0][k]) for k, v in kept["state"][0].items())


def test_empty_parameters_and_closures():
    p, empty = torch.nn.Parameter(torch.ones(2, 2)), torch.nn.Parameter(torch.ones(0, 4))
    optimizer = GivensAdam([p, empty])

    def closure():
        optimizer.zero_grad()
        loss = p.square().sum() + empty.sum()
        loss.backward()
        return loss

    assert float(optimizer.step(closure)) == 4.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lr": -1.0}, "lr"),
        ({"betas": (1.0, 0.9)}, r"betas\[0\]"),
        ({"betas": (0.9,)}, "betas"),
        ({"eps": -1e-8}, "eps"),
        ({"weight_decay": -0.1}, "weight_decay"),
        ({"wiring": "full"}, "wiring"),
        ({"statistics": "exact"}, "statistics"),
        ({"depth": 0}, "depth"),
        ({"refresh": 0}, "refresh"),
        ({"sketch_columns": 0}, "sketch_columns"),
        ({"statistics_decay": math.nan}, "statistics_decay"),
        ({"maximize": "no"}, "maximize"),
        ({"foreach": "no"}, "foreach"),
    ],
)
def test_bad_hyper_parameters(arguments, message):
    with pytest.raises(ValueError, match=message):
        GivensAdam([torch.nn.Parameter(torch.ones(2))], **arguments)
