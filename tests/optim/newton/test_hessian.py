"""Ĥ learned from samples: the numbers of Algorithm 2, divergence, the Hessians of groups."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from optim.newton.quadratics import N, quadratic, run

from swallowtail import SymmetricOperator, Tracker
from swallowtail.optim import GivensNewton


def test_is_algorithm_2_line_by_line():
    """The same numbers as a loop over the tracker: identity start, 1/‖δu‖, ε at projection and at inversion."""
    u, loss, _ = quadratic()
    alpha, beta, epsilon = (0.05, 0.02), 0.2, 0.03
    optimizer = GivensNewton([u], beta, alpha, epsilon, normalized_step=None)
    tracker = Tracker(
        N,
        rate=alpha,
        rescale=False,
        unit_inputs=True,
        floor=epsilon,
        angles=np.zeros(N * 4 // 2),
        eigenvalues=1.0,
    )
    point, last = u.detach().clone(), None
    for _ in range(30):
        (g,) = torch.autograd.grad(loss(), u)
        run(u, loss, optimizer, 1)
        if last is not None:
            tracker.update((point - last[0]).numpy(), (g - last[1]).numpy())
        last = point, g
        assert isinstance(tracker.operator, SymmetricOperator)
        point = point - beta * tracker.operator.solve(g, epsilon=epsilon)
        assert torch.allclose(u.detach(), point, rtol=1e-9)
    H_hat = optimizer.hessian()
    assert isinstance(H_hat, SymmetricOperator)
    assert torch.allclose(H_hat.eigenvalues, torch.from_numpy(tracker.eigenvalues))
    assert torch.allclose(H_hat.rotation.angles, torch.from_numpy(tracker.angles))


def test_a_diverging_rate_is_said_and_undone():
    u = torch.nn.Parameter(torch.ones(4, dtype=torch.float64))
    optimizer = GivensNewton([u], 1e-12, 1e300, normalized_step=None)
    u.grad = 1e12 * torch.randn_like(u)
    optimizer.step()
    u.grad = 1e12 * torch.randn_like(u)
    with pytest.warns(RuntimeWarning, match="tracking diverged"):
        optimizer.step()
    assert bool(torch.isfinite(u).all())
    assert bool(torch.isfinite(optimizer.hessian().eigenvalues).all())
