"""Fits from products alone: what is asked of H, what is made of the answers, and bad answers."""

import numpy as np
import pytest
from fitting.common import approximation, low_rank, relative_error, symmetric, synthetic

from swallowtail.fitting.core.completion import complete, orthonormal_samples, probe
from swallowtail.fitting.core.records import Stop
from swallowtail.fitting.methods import products
from swallowtail.fitting.methods.products import fit_products, fit_samples


class Counted:
    """X ↦ HX that remembers how many columns it has seen."""

    def __init__(self, H):
        self.H, self.columns = H, 0

    def __call__(self, X):
        self.columns += X.shape[1]
        return self.H @ X


@pytest.mark.parametrize(
    ("n", "m", "passes"), [(20, 7, None), (20, 7, 3), (20, 1, None), (5, 5, 2), (5, 99, 1)]
)
def test_product_budget_is_exact(n, m, passes):
    H = Counted(symmetric(n))
    probes = probe(H, n, m, passes, seed=1)
    assert H.columns == probes.X.shape[1] == min(m, n)
    np.testing.assert_allclose(probes.X.T @ probes.X, np.eye(min(m, n)), atol=1e-13)
    np.testing.assert_allclose(probes.Y, H.H @ probes.X, atol=1e-12)
    H = Counted(symmetric(n))
    assert fit_products(H, n, 3, m, passes=passes).n_products == H.columns == min(m, n)


def test_rank_one_is_recovered_and_fitted():
    H = low_rank(30, 1, 0.5)
    fit = fit_products(lambda X: H @ X, 30, 29, 6)
    assert relative_error(H, approximation(fit)) < 1e-6


def test_all_products_give_the_matrix_itself():
    H = symmetric(12)
    completion = complete(probe(lambda X: H @ X, 12, 12))
    assert relative_error(H, completion.factor.dense()) < 1e-13
    assert completion.relative_error == 0.0


def test_asymmetry_is_noticed_and_measured():
    S, A = symmetric(30), np.random.default_rng(5).standard_normal((30, 30))
    A = A - A.T
    assert probe(lambda X: S @ X, 30, 8).asymmetry < 1e-13
    assert probe(lambda X: A @ X, 30, 8).asymmetry == pytest.approx(1.0)
    slight, strong = (probe(lambda X, t=t: (S + t * A) @ X, 30, 8).asymmetry for t in (0.01, 0.3))
    assert 0.001 < slight < 0.1 < strong < 1.0
    assert fit_products(lambda X: (S + 0.3 * A) @ X, 30, 20, 8).asymmetry == strong


@pytest.mark.parametrize(
    ("product", "message"),
    [
        (lambda X: X.T, r"got \(2, 6\)"),
        (lambda X: X[:, 0], r"got \(6,\)"),
        (lambda X: X * np.nan, "12 of 12 NaN"),
        (lambda X: X + 1j, "complex128"),
        (lambda X: None, "object"),
    ],
)
def test_bad_products_raise(product, message):
    with pytest.raises(ValueError, match=message):
        fit_products(product, 6, 5, 4, passes=2)


def test_bad_budgets_raise():
    for arguments in [(0, 5, 4), (6, -1, 4), (6, 5, 0)]:
        with pytest.raises(ValueError, match="expected an integer"):
            fit_products(lambda X: X, *arguments)
    with pytest.raises(TypeError, match=r"got 2\.5"):
        fit_products(lambda X: X, 6, 5, 2.5)


@pytest.mark.parametrize("exponent", [-996, -100, 2, 100, 664])
def test_the_fit_does_not_depend_on_the_scale(exponent):
    """Powers of two round nothing, so the search must choose the same rotations."""
    H, scale = synthetic(24, 3, 1), 2.0**exponent
    plain, scaled = (fit_products(lambda X, s=s: s * (H @ X), 24, 40, 8) for s in (1.0, scale))
    assert scaled.wiring == plain.wiring
    np.testing.assert_allclose(scaled.angles, plain.angles, rtol=0, atol=1e-12)
    np.testing.assert_allclose(scaled.eigenvalues / scale, plain.eigenvalues, rtol=0, atol=1e-12)


@pytest.mark.parametrize("H", [np.zeros((5, 5)), 2.0 * np.eye(5), np.array([[3.0]])])
def test_trivial_matrices(H):
    n = len(H)
    for m in (1, 3):
        fit = fit_products(lambda X: H @ X, n, 4, m)
        np.testing.assert_allclose(fit.eigenvalues, np.diag(H), atol=1e-12)


@pytest.mark.parametrize("m", [6, 24, 60])
def test_samples_of_the_user_say_the_same(m):
    """Columns need not be orthonormal; dependent and superfluous ones do no harm."""
    n, H, generator = 24, synthetic(24, 3, 2), np.random.default_rng(3)
    X = generator.standard_normal((n, m))
    X[:, -1] = X[:, 0]
    probes = orthonormal_samples(X, H @ X)
    assert probes.asymmetry < 1e-8
    np.testing.assert_allclose(probes.Y, H @ probes.X, atol=1e-9)
    fit = fit_samples(X, H @ X, 40)
    assert fit.n_products == m
    if m > n:
        assert relative_error(H, fit.completion.factor.dense()) < 1e-9


def test_bad_samples_raise():
    X = np.ones((4, 2))
    with pytest.raises(ValueError, match=r"got \(4, 2\) and \(2, 4\)"):
        fit_samples(X, X.T, 3)
    with pytest.raises(ValueError, match="Y: expected finite"):
        fit_samples(X, X * np.inf, 3)
    with pytest.raises(ValueError, match="2 zero columns"):
        fit_samples(0.0 * X, X, 3)


def test_factor_route_is_taken_above_the_dense_size(monkeypatch):
    monkeypatch.setattr(products, "DENSE", 10)
    H = synthetic(64, 5, 7)
    fit = fit_products(lambda X: H @ X, 64, 192, 16)
    assert {stage for stage, _, _ in fit.history} <= {"start", "grow", "polish"}
    A = fit.completion.factor.dense()
    assert fit.history[-1][2] == pytest.approx(relative_error(A, approximation(fit)) ** 2, rel=1e-6)


def test_callback_sees_every_stage_and_stops_once():
    seen = []

    def callback(stage, done, objective):
        seen.append(stage)
        if stage == "polish":
            raise Stop

    H = synthetic(64, 5, 8)
    fit = fit_products(lambda X: H @ X, 64, 192, 16, callback=callback)
    assert seen[:2] == ["probe", "probe"]
    assert seen.count("polish") == 1
    assert 0 < fit.wiring.n_rotations <= 192


def test_quality_on_the_papers_matrices():
    """Means over four seeds; eight products already see the five large eigenvalues."""
    for m, bar in ((8, 22.0), (16, 17.5), (32, 16.2)):
        angles = []
        for seed in range(4):
            H = synthetic(64, 5, 900 + seed)
            fit = fit_products(lambda X, H=H: H @ X, 64, 192, m, seed)
            X = np.random.default_rng(1).standard_normal((64, 2000))
            A, B = H @ X, approximation(fit) @ X
            cosine = (A * B).sum(0) / np.linalg.norm(A, axis=0) / np.linalg.norm(B, axis=0)
            angles.append(np.degrees(np.arccos(cosine)).mean())
        assert np.mean(angles) <= bar
