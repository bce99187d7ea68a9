"""Inverses and functions of H without its entries: from products, samples, and large sparse matrices."""

import numpy as np
import pytest
from function_cases import LINE, A, N, heat

import swallowtail as st
from swallowtail.fitting import fit_symmetric, functions


@pytest.mark.parametrize("target", ["inverse", heat], ids=["inverse", "heat"])
def test_from_products_alone(target):
    """Kernels on 80 points: few products, a limit that holds, estimates that are about right on average."""
    over = []
    for seed in range(4):  # an estimate is of one or two columns
        points = np.sort(np.random.default_rng(seed).random(80))
        H = np.exp(-20.0 * np.abs(points[:, None] - points)) + 0.3 * np.eye(80)
        result, exact, made = from_products_alone(H, target)
        over.append(result.angle / st.error_angle(exact, made))
        if target is heat:
            Q = result.operator.rotation.to_dense().numpy()
            d = np.diagonal(Q.T @ H @ Q)  # H is known by products too
            assert np.abs(result.of_H.eigenvalues.numpy() - d).mean() < 0.05 * d.std()
    assert np.mean(over) == pytest.approx(1.0, abs=0.2)


def from_products_alone(H, target):
    """The fit, the function of H, and what the fit makes of it."""
    seen = []

    def product(X):
        seen.append(X.shape[1])
        return H @ X

    result = fit_symmetric(product, 80, target=target, max_products=66)
    d, V = np.linalg.eigh(H)
    exact = np.linalg.inv(H) if target == "inverse" else (V * np.exp(-3.0 * d)) @ V.T
    made = result.operator.inverse() if target == "inverse" else result.operator
    assert result.n_products == sum(seen) <= 66
    assert result.estimated
    assert "Lanczos steps" in result.message
    assert any(rival.angle > 0 for rival in result.rivals)
    return result, exact, made


def test_an_inverse_from_samples():
    X = np.random.default_rng(0).standard_normal((N, N))
    made, inverse = fit_symmetric((X, A @ X), target="inverse").operator.inverse(), np.linalg.inv(A)
    assert st.error_angle(inverse, made) < 1.2 * fit_symmetric(A, target="inverse").angle


def test_a_large_sparse_inverse_is_never_dense(monkeypatch):
    monkeypatch.setattr(st.fitting.inputs, "DENSE_SPARSE", 16)
    monkeypatch.setattr(functions, "dense_inverse", None)
    exact = np.linalg.inv(LINE.toarray())
    solved = fit_symmetric(LINE, target="inverse", max_products=24)
    assert solved.n_products == 24
    assert st.error_angle(exact, solved.operator.inverse()) < 40
    monkeypatch.setattr(functions, "LARGEST_BAND", 10)  # as if its band were wide: by products with H
    by_products = fit_symmetric(LINE, target="inverse", max_products=24)
    assert st.error_angle(exact, by_products.operator.inverse()) < 40
