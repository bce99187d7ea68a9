"""The L-BFGS iteration: its direction, its limits."""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import minimize, rosen, rosen_der

from swallowtail.optim import GivensLBFGS, minimize_givens
from swallowtail.optim.lbfgs.iteration import direction
from swallowtail.optim.lbfgs.memory import learn, new_memory
from swallowtail.optim.lbfgs.settings import Settings

ROSEN = np.tile([-1.2, 1.0], 5)


def test_secant_equation_holds_for_the_newest_sample():
    memory, settings = (
        new_memory(torch.zeros(12, dtype=torch.float64), 5),
        Settings(history_size=5, refresh=2),
    )
    generator = torch.Generator().manual_seed(0)
    for _ in range(9):
        s = torch.randn(12, generator=generator, dtype=torch.float64)
        y = s * torch.linspace(1, 5, 12, dtype=torch.float64)
        learn(memory, s, y, settings)
    assert torch.allclose(direction(memory, y, settings), s)


def test_limits_are_kept():
    count = 0

    def fun(x):
        nonlocal count
        count += 1
        return rosen(x), rosen_der(x)

    result = minimize(fun, ROSEN, jac=True, method=minimize_givens, options={"maxfun": 20})
    assert count == result.nfev <= 20
    assert not result.success
    assert minimize(fun, ROSEN, jac=True, method=minimize_givens, options={"maxiter": 3}).nit == 3


def test_the_torch_class_and_the_scipy_method_take_the_same_path():
    u = torch.nn.Parameter(torch.tensor(ROSEN))
    optimizer = GivensLBFGS([u], max_iter=30, max_eval=1000, tolerance_change=0.0)

    def closure():
        u.grad = torch.from_numpy(rosen_der(u.detach().numpy()))
        return torch.tensor(rosen(u.detach().numpy()))

    first = optimizer.step(closure)
    result = minimize(rosen, ROSEN, jac=rosen_der, method=minimize_givens, options={"maxiter": 30})
    assert first == rosen(ROSEN)
    assert np.allclose(u.detach().numpy(), result.x, rtol=1e-9)


def test_no_worse_than_lbfgs_on_a_quadratic_it_cannot_help():
    rng = np.random.default_rng(3)
    U = np.linalg.qr(rng.standard_normal((64, 64)))[0]
    H = (U * np.logspace(0, -3, 64)) @ U.T
    fun, start = (lambda x: (0.5 * x @ H @ x, H @ x)), rng.standard_normal(64)
    counts = {
        p: minimize(
            fun, start, jac=True, method=minimize_givens, options={"preconditioner": p, "gtol": 1e-6}
        ).nfev
        for p in ("none", "rotated")
    }
    assert counts["rotated"] <= 1.2 * counts["none"]
