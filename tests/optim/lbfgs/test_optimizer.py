"""GivensLBFGS: its H₀, its arguments. What it shares with the other optimisers is in test_base and test_optimizers."""

from __future__ import annotations

import pytest
import torch

from swallowtail import SymmetricOperator
from swallowtail.optim import GivensLBFGS


def test_initial_inverse_hessian_is_an_operator():
    u = torch.nn.Parameter(torch.randn(6, dtype=torch.float64))
    optimizer = GivensLBFGS([u], max_iter=10)

    def closure():
        optimizer.zero_grad()
        loss = (u.square() * torch.arange(1.0, 7.0)).sum()
        loss.backward()
        return loss

    before = optimizer.initial_inverse_hessian
    assert isinstance(before, SymmetricOperator)
    assert torch.equal(before.eigenvalues, torch.ones(6, dtype=torch.float64))
    optimizer.step(closure)
    assert bool((optimizer.initial_inverse_hessian.eigenvalues > 0).all())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lr": -1.0}, "lr"),
        ({"lr": float("nan")}, "lr"),
        ({"max_iter": 0}, "max_iter"),
        ({"history_size": 0}, "history_size"),
        ({"tolerance_grad": -1.0}, "tolerance_grad"),
        ({"line_search_fn": "armijo"}, "line_search_fn"),
        ({"preconditioner": "full"}, "preconditioner"),
        ({"damping": 0.0}, "damping"),
        ({"gate_decay": 1.0}, "gate_decay"),
    ],
)
def test_bad_hyper_parameters(arguments, message):
    with pytest.raises(ValueError, match=message):
        GivensLBFGS([torch.nn.Parameter(torch.ones(2))], **arguments)


def test_groups_must_agree():
    a, b = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    with pytest.raises(ValueError, match="same in all groups"):
        GivensLBFGS([{"params": [a]}, {"params": [b], "lr": 0.5}])
