"""GivensNewton: Algorithm 2 line by line, its modes, its options, its errors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from swallowtail import SymmetricOperator, Tracker, random_symmetric
from swallowtail.optim import GivensNewton

N = 16


def quadratic(seed=0):
    H = np.asarray(random_symmetric(N, 4, seed))
    d, U = np.linalg.eigh(H)
    H = torch.tensor((U * (np.abs(d) + 0.05)) @ U.T)
    target = torch.randn(N, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    u = torch.nn.Parameter(torch.zeros(N, dtype=torch.float64))
    return u, lambda: 0.5 * (u - target) @ H @ (u - target), H


def run(u, loss, optimizer, steps):
    def closure():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    for _ in range(steps):
        optimizer.step(closure)
    return loss().item()


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


def test_two_gradients_a_step_are_taken_on_the_same_minibatch():
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


def test_reuse_makes_no_pair_across_minibatches():
    u = torch.nn.Parameter(torch.ones(4, dtype=torch.float64))
    optimizer = GivensNewton([u], 0.1, gradients="reuse", reuse=3)
    for _ in range(7):
        u.grad = torch.randn_like(u)
        optimizer.step()
    assert int(optimizer.state[u]["n_pairs"]) == 4  # two after each first of three


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
