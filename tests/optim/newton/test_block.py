"""Where samples come from: minibatches, products with the Hessian; one Ĥ per group."""

from __future__ import annotations

import torch
from optim.newton.quadratics import quadratic

from swallowtail.optim import GivensNewton


def test_two_gradients_per_step_are_taken_on_the_same_minibatch():
    u, calls = torch.nn.Parameter(torch.ones(4, dtype=torch.float64)), []
    optimizer = GivensNewton([u], 0.1, gradients="twice")
    for batch in range(3):

        def closure(batch=batch):
            calls.append((batch, u.detach().clone()))
            optimizer.zero_grad()
            loss = (batch + 1) * u.square().sum()
            loss.backward()
            return loss

        optimizer.step(closure)
    assert [batch for batch, _ in calls] == [0, 1, 1, 2, 2]
    assert torch.equal(calls[1][1], calls[0][1])  # first at the last point, then at this one
    assert not torch.equal(calls[2][1], calls[1][1])


def test_reuse_makes_no_sample_across_minibatches():
    u = torch.nn.Parameter(torch.ones(4, dtype=torch.float64))
    optimizer = GivensNewton([u], 0.1, gradients="reuse", reuse=3)
    for _ in range(7):
        u.grad = torch.randn_like(u)
        optimizer.step()
    assert int(optimizer.state[u]["n_samples"]) == 4  # two after each first of three


def test_hessian_probes_learn_without_moving_far():
    u, loss, H = quadratic()
    optimizer = GivensNewton([u], 0.0, probes="hessian", criterion="psgd", replay=32, sweeps=3)
    before = optimizer.hessian().to_dense()
    for _ in range(60):
        optimizer.step(loss)
    error = lambda A: float(torch.linalg.norm(A - H) / torch.linalg.norm(H))
    assert error(optimizer.hessian().to_dense()) < 0.5 * error(before)
    assert u.grad is None


def test_hessian_probes_by_autograd_are_products_with_the_hessian():
    a, b = (torch.nn.Parameter(torch.ones(3, dtype=torch.float64)) for _ in range(2))
    unused = torch.nn.Parameter(torch.ones(2, dtype=torch.float64))
    optimizer = GivensNewton([a, b, unused], 0.1, probes="hessian", criterion="psgd")
    optimizer.step(lambda: 2 * a.square().sum() + b.sum())
    x, y = optimizer.state[a]["inputs"][0], optimizer.state[a]["outputs"][0]
    assert torch.allclose(y[:3], 4 * x[:3])
    assert not y[3:].any()


def test_each_group_has_its_own_hessian():
    a, b = (torch.nn.Parameter(torch.ones(k, dtype=torch.float64)) for k in (4, 6))
    optimizer = GivensNewton([{"params": [a], "lr": 0.1}, {"params": [b], "lr": 0.2, "epsilon": 0.1}])
    for _ in range(5):
        a.grad, b.grad = a.detach().clone(), 2 * b.detach()
        optimizer.step()
    assert optimizer.hessian(0).n == 4
    assert optimizer.hessian(1).n == 6
