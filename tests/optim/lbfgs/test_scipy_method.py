"""minimize_givens against closed forms and as SciPy calls it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import OptimizeResult, OptimizeWarning, minimize, rosen, rosen_der

from swallowtail.optim import minimize_givens
from swallowtail.optim.lbfgs.settings import PRECONDITIONERS

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


def test_callbacks_in_both_forms_and_stopping():
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
        ({"options": {"damping": 0.0}}, "damping"),
        ({"options": {"gate_decay": 1.0}}, "gate_decay"),
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


def test_options_as_scipys_own_methods_take_them(capsys):
    minimize(rosen, ROSEN, jac=rosen_der, method=minimize_givens, options={"disp": True})
    assert "iterations" in capsys.readouterr().out
    with pytest.warns(OptimizeWarning, match="Unknown solver options: eps"):
        minimize(rosen, ROSEN, jac=rosen_der, method=minimize_givens, options={"eps": 1e-8})
