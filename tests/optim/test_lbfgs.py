"""GivensLBFGS and minimize_givens: against closed forms, SciPy and torch; the gate; the line search."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import OptimizeResult, OptimizeWarning, minimize, rosen, rosen_der

from swallowtail import SymmetricOperator
from swallowtail.optim import GivensLBFGS, minimize_givens
from swallowtail.optim.basis import jacobi_pass, jacobi_pass_matrix
from swallowtail.optim.line_search import Trial, strong_wolfe
from swallowtail.optim.quasi_newton import PRECONDITIONERS, Settings, direction, learn, new_memory
from swallowtail.wiring import Butterfly

ROSEN = np.tile([-1.2, 1.0], 5)


@pytest.mark.parametrize("preconditioner", PRECONDITIONERS)
def test_minimizes_rosenbrock_through_scipy(preconditioner):
    result = minimize(
        rosen, ROSEN, jac=rosen_der, method=minimize_givens, options={"preconditioner": preconditioner}
    )
    assert result.success
    assert np.allclose(result.x, 1.0, atol=1e-4)
    assert np.abs(result.jac).max() <= 1e-5
    assert result.nfev < 300


def test_jac_true_none_and_callable_agree():
    both = lambda x: (rosen(x), rosen_der(x))
    a = minimize(both, ROSEN, jac=True, method=minimize_givens)
    b = minimize(rosen, ROSEN, jac=rosen_der, method=minimize_givens)
    c = minimize(rosen, ROSEN, method=minimize_givens, tol=1e-4)
    d = minimize_givens(both, ROSEN, jac=True)
    assert np.array_equal(a.x, b.x)
    assert np.array_equal(a.x, d.x)
    assert np.allclose(c.x, 1.0, atol=1e-2)
    assert c.nfev > a.nfev


def test_hess_inv_is_a_symmetric_positive_operator_near_the_inverse():
    rng = np.random.default_rng(0)
    U = np.linalg.qr(rng.standard_normal((8, 8)))[0]
    H = (U * np.logspace(0, 1, 8)) @ U.T
    result = minimize(
        lambda x: (0.5 * x @ H @ x, H @ x), rng.standard_normal(8), jac=True, method=minimize_givens,
        options={"maxcor": 30, "gtol": 1e-9},
    )  # fmt: skip
    M = result.hess_inv @ np.eye(8)
    assert np.allclose(M, M.T, atol=1e-8)
    assert np.linalg.eigvalsh(M).min() > 0
    assert np.linalg.norm(M @ H - np.eye(8)) < 0.5


def test_callbacks_in_both_manners_and_stopping():
    seen: list[OptimizeResult] = []
    minimize(
        rosen,
        ROSEN,
        jac=rosen_der,
        method=minimize_givens,
        callback=lambda intermediate_result: seen.append(intermediate_result),
    )
    assert seen[-1].fun < 1e-8

    def stop(x):
        raise StopIteration

    result = minimize(rosen, ROSEN, jac=rosen_der, method=minimize_givens, callback=stop)
    assert result.nit == 1
    assert not result.success
    assert "callback" in result.message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bounds": [(0, 1)] * 10}, "L-BFGS-B"),
        ({"constraints": {"type": "eq", "fun": rosen}}, "SLSQP"),
        ({"options": {"maxcor": 0}}, "maxcor"),
        ({"options": {"preconditioner": "magic"}}, "preconditioner"),
        ({"options": {"gtol": -1.0}}, "gtol"),
    ],
)
def test_bad_arguments_of_the_scipy_method(arguments, message):
    with pytest.raises(ValueError, match=message):
        minimize(rosen, ROSEN, jac=rosen_der, method=minimize_givens, **arguments)


def test_bad_functions():
    with pytest.raises(TypeError, match="one number"):
        minimize(lambda x: None, ROSEN, jac=rosen_der, method=minimize_givens)
    with pytest.raises(ValueError, match="10 numbers"):
        minimize(rosen, ROSEN, jac=lambda x: np.zeros(3), method=minimize_givens)
    with pytest.raises(ValueError, match="finite"):
        minimize(lambda x: np.nan, ROSEN, jac=rosen_der, method=minimize_givens)


def test_a_function_that_overflows_is_survived():
    fun = lambda x: (float(np.exp(x @ x) if x @ x < 700 else np.inf), 2 * x * np.exp(min(x @ x, 700.0)))
    result = minimize(fun, np.full(4, 3.0), jac=True, method=minimize_givens)
    assert result.success
    assert np.allclose(result.x, 0, atol=1e-3)


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


def test_a_planted_diagonal_opens_the_gate():
    d = torch.logspace(-3, 0, 64, dtype=torch.float64)
    memory, settings = new_memory(d, 10), Settings(preconditioner="diagonal")
    generator = torch.Generator().manual_seed(0)
    for _ in range(24):
        s = torch.randn(64, generator=generator, dtype=torch.float64)
        learn(memory, s, d * s, settings)
    assert float(memory["gate"]) > 0
    learned = memory["inverse_eigenvalues"]
    assert float(torch.corrcoef(torch.stack([learned.log(), -d.log()]))[0, 1]) > 0.8


def test_secant_equation_holds_for_the_newest_pair():
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


@pytest.mark.parametrize("n", [1, 2, 7, 16, 33])
def test_one_pass_concentrates_rank_one_exactly(n):
    generator = torch.Generator().manual_seed(0)
    v = torch.randn(n, generator=generator, dtype=torch.float64)
    samples = v[:, None] * torch.randn(1, 5, generator=generator, dtype=torch.float64)
    wiring = Butterfly(n)
    angles, turned = jacobi_pass(samples, wiring)
    assert torch.allclose(turned.norm(), samples.norm())
    if n & (n - 1) == 0:  # with dropped pairs, a remainder may stay behind
        assert torch.allclose(turned[0].norm(), samples.norm())
    same = jacobi_pass_matrix(samples @ samples.T, wiring)
    again, _ = jacobi_pass(samples[None], wiring)
    assert torch.allclose(again[0], angles)
    assert same.shape == angles.shape


def test_matrix_and_samples_give_the_same_angles():
    Z = torch.randn(9, 40, dtype=torch.float64)
    wiring = Butterfly(9, 2)
    assert torch.allclose(jacobi_pass(Z, wiring)[0], jacobi_pass_matrix(Z @ Z.T, wiring), atol=1e-8)


@pytest.mark.parametrize("first", [1e-6, 0.1, 1.0, 50.0, 1e6])
@pytest.mark.parametrize(
    ("f", "slope"),
    [
        (lambda t: (t - 2) ** 2, lambda t: 2 * (t - 2)),
        (lambda t: -t / (t * t + 2), lambda t: (t * t - 2) / (t * t + 2) ** 2),  # Moré & Thuente's first
        (
            lambda t: (t + 0.004) ** 5 - 2 * (t + 0.004) ** 4,
            lambda t: 5 * (t + 0.004) ** 4 - 8 * (t + 0.004) ** 3,
        ),
        (lambda t: float("nan") if t > 3 else -t + t**4 / 40, lambda t: -1 + t**3 / 10),
    ],
)
def test_line_search_satisfies_strong_wolfe(f, slope, first):
    phi = lambda t: Trial(t, f(t), slope(t), torch.zeros(1), torch.zeros(1))
    found, count = strong_wolfe(phi, phi(0.0), first, c2=0.5, max_evaluations=60)
    assert found is not None
    assert found.f <= f(0.0) + 1e-4 * found.t * slope(0.0)
    assert abs(found.slope) <= 0.5 * abs(slope(0.0))
    assert count <= 60


def test_line_search_without_descent_gives_up():
    phi = lambda t: Trial(t, t, -1.0 if t == 0 else 1.0, torch.zeros(1), torch.zeros(1))  # a slope that lies
    assert strong_wolfe(phi, phi(0.0), 1.0, max_evaluations=10)[0] is None


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


def test_options_as_scipys_own_methods_take_them(capsys):
    minimize(rosen, ROSEN, jac=rosen_der, method=minimize_givens, options={"disp": True})
    assert "iterations" in capsys.readouterr().out
    with pytest.warns(OptimizeWarning, match="Unknown solver options: eps"):
        minimize(rosen, ROSEN, jac=rosen_der, method=minimize_givens, options={"eps": 1e-8})
