"""GivensNewton: its modes, its arguments, its errors."""

from __future__ import annotations

import pytest
import torch
from optim.newton.quadratics import quadratic, run

from swallowtail.optim import GivensNewton


def test_first_step_is_gradient_descent():
    u, loss, _ = quadratic()
    (g,) = torch.autograd.grad(loss(), u)
    run(u, loss, GivensNewton([u], lr=0.3), 1)
    assert torch.allclose(u.detach(), -0.3 * g)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"normalized_step": None},
        {"inverse": "direct", "lr": 0.05},
        {"gradients": "twice"},
        {"gradients": "reuse", "reuse": 3},
        {"criterion": "psgd", "replay": 16, "sweeps": 2},
        {"criterion": "logdet", "replay": 16, "sweeps": 2},
        {"criterion": "psgd", "replay": 8, "normalized_step": None, "rate": 0.01},
        {"replay": 8, "sweeps": 3},
        {"momentum": 0.5},
        {"weight_decay": 1e-4},
    ],
    ids=str,
)
def test_every_mode_descends(options):
    u, loss, _ = quadratic()
    before = loss().item()
    assert run(u, loss, GivensNewton([u], **{"lr": 0.2, **options}), 100) < 0.1 * before


def test_learning_helps():
    u, loss, _ = quadratic()
    learned = run(u, loss, GivensNewton([u], 0.3), 300)
    u, loss, _ = quadratic()
    assert learned < 0.1 * run(u, loss, torch.optim.SGD([u], 0.3), 300)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lr": float("inf")}, "lr"),
        ({"rate": -0.1}, "rate"),
        ({"rate": (0.1, 0.1, 0.1)}, "rate"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"inverse": "pinv"}, "inverse"),
        ({"gradients": "three"}, "gradients"),
        ({"criterion": "l1"}, "criterion"),
        ({"probes": "random"}, "probes"),
        ({"normalized_step": 0.0}, "normalized_step"),
        ({"replay": 0}, "replay"),
        ({"momentum": 1.0}, "momentum"),
    ],
)
def test_bad_hyper_parameters(arguments, message):
    with pytest.raises(ValueError, match=message):
        GivensNewton([torch.nn.Parameter(torch.ones(2))], **arguments)


def test_modes_that_need_a_closure_say_so():
    u = torch.nn.Parameter(torch.ones(2))
    for options in ({"gradients": "twice"}, {"probes": "hessian"}):
        with pytest.raises(TypeError, match="closure"):
            GivensNewton([u], **options).step()
    with pytest.raises(TypeError, match="graph"):
        GivensNewton([u], probes="hessian").step(lambda: torch.ones(()))
