"""Fits from products alone: what is asked of H, what is made of the answers, and bad answers."""

import numpy as np
import pytest

from swallowtail.fitting.core.product import conjugate
from swallowtail.fitting.core.records import Stop
from swallowtail.fitting.methods import products
from swallowtail.fitting.methods.products import (
    complete,
    fit_products,
    fit_samples,
    orthonormal_samples,
    probe,
)


class Counted:
    """X ↦ HX that remembers how many columns it has seen."""

    def __init__(self, H):
        self.H, self.columns = H, 0

    def __call__(self, X):
        self.columns += X.shape[1]
        return self.H @ X


def symmetric(n, seed=0):
    A = np.random.default_rng(seed).standard_normal((n, n))
    return A + A.T


def low_rank(n, rank, shift, seed=0):
    generator = np.random.default_rng(seed)
    U = np.linalg.qr(generator.standard_normal((n, rank)))[0]
    return shift * np.eye(n) + (U * generator.uniform(1.0, 3.0, rank)) @ U.T


def synthetic(n, n_large, seed):
    generator = np.random.default_rng(seed)
    mu = 0.1 * generator.standard_normal(n)
    mu[generator.permutation(n)[:n_large]] = 1.0 + 0.4 * generator.standard_normal(n_large)
    Q, R = np.linalg.qr(generator.standard_normal((n, n)))
    Q = Q * np.sign(np.diag(R))
    return (Q * np.abs(mu)) @ Q.T


def approximation(fit):
    return conjugate(np.diag(fit.eigenvalues), fit.wiring.pairs[::-1].copy(), -fit.angles[::-1])


def relative_error(H, A):
    return np.linalg.norm(H - A) / np.linalg.norm(H)


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


@pytest.mark.parametrize("m", [3, 8, 13])
def test_completion_is_the_dense_formula(m):
    n = 16
    H = symmetric(n)
    probes = probe(lambda X: H @ X, n, m, passes=1)
    factor = complete(probes).factor
    X, Y = probes.X, probes.Y
    P, T = X @ X.T, X.T @ Y
    known = Y @ X.T + X @ Y.T - X @ T @ X.T
    out = np.eye(n) - P
    A = factor.dense()
    np.testing.assert_allclose(A - out @ A @ out, known, atol=1e-12)
    np.testing.assert_allclose(A @ X, Y, atol=1e-12)
    assert np.trace(A) == pytest.approx(probes.trace)
    # The unseen block: R (T − c)⁻¹ Rᵀ where a Ritz value stands out from c by more than its residual.
    theta, V = np.linalg.eigh(T)
    R, gap = (Y - X @ T) @ V, theta - factor.shift
    kept = np.abs(gap) > np.linalg.norm(R, axis=0)
    block = (R[:, kept] / gap[kept]) @ R[:, kept].T + factor.shift * out
    np.testing.assert_allclose(out @ A @ out, block, atol=1e-6)


def test_plain_completion_when_nothing_stands_out(monkeypatch):
    """With no Ritz value trusted, Ĥ = YXᵀ + XYᵀ − XTXᵀ + c(1 − XXᵀ)."""
    monkeypatch.setattr(products, "BREAKDOWN", 1e9)
    n, m = 16, 6
    H = symmetric(n)
    probes = probe(lambda X: H @ X, n, m, passes=1)
    X, Y = probes.X, probes.Y
    T = X.T @ Y
    c = (probes.trace - np.trace(T)) / (n - m)
    expected = Y @ X.T + X @ Y.T - X @ T @ X.T + c * (np.eye(n) - X @ X.T)
    np.testing.assert_allclose(complete(probes).factor.dense(), expected, atol=1e-12)


@pytest.mark.parametrize("shift", [0.0, 0.7, -0.4])
@pytest.mark.parametrize("passes", [2, 4])
def test_shift_plus_low_rank_is_recovered(shift, passes):
    n, rank = 40, 3
    H = low_rank(n, rank, shift)
    completion = complete(probe(lambda X: H @ X, n, 16, passes))
    assert relative_error(H, completion.factor.dense()) < 1e-9
    assert completion.relative_error < 1e-5
    assert len(completion.factor.weights) == rank
    fit = fit_products(lambda X: H @ X, n, 40 * rank, 16, passes=passes)
    assert fit.history[-1][2] == pytest.approx(relative_error(H, approximation(fit)) ** 2, rel=1e-4)


def test_rank_one_is_recovered_and_fitted():
    H = low_rank(30, 1, 0.5)
    fit = fit_products(lambda X: H @ X, 30, 29, 6)
    assert relative_error(H, approximation(fit)) < 1e-6


def test_all_products_give_the_matrix_itself():
    H = symmetric(12)
    completion = complete(probe(lambda X: H @ X, 12, 12))
    assert relative_error(H, completion.factor.dense()) < 1e-13
    assert completion.relative_error == 0.0


def test_trace_and_norm_estimates():
    H = synthetic(200, 10, 0)
    probes = probe(lambda X: H @ X, 200, 60, seed=2)
    assert probes.trace == pytest.approx(np.trace(H), rel=0.1)
    assert probes.norm == pytest.approx(np.linalg.norm(H), rel=0.05)


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


# Powers of two change no bit of a mantissa, so every choice of the search must be the same.
@pytest.mark.parametrize("scale", [2.0**-996, 2.0**-100, 2.0**100, 2.0**664])
def test_scale_does_not_matter(scale):
    H = synthetic(24, 3, 1)
    plain = fit_products(lambda X: H @ X, 24, 40, 8)
    scaled = fit_products(lambda X: scale * (H @ X), 24, 40, 8)
    np.testing.assert_allclose(scaled.eigenvalues / scale, plain.eigenvalues, rtol=1e-12)
    assert scaled.completion.relative_error == pytest.approx(plain.completion.relative_error, rel=1e-6)


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
def test_pairs_of_the_user_say_the_same(m):
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


def test_noisy_pairs_are_fitted_in_least_squares():
    n, m, generator = 8, 30, np.random.default_rng(4)
    H, X = symmetric(n), generator.standard_normal((n, m))
    Y = H @ X + 0.1 * generator.standard_normal((n, m))
    A = complete(orthonormal_samples(X, Y)).factor.dense()
    # The gradient of ‖AX − Y‖² over symmetric A vanishes.
    G = (A @ X - Y) @ X.T
    np.testing.assert_allclose(G + G.T, 0.0, atol=1e-10)


def test_noise_does_not_spoil_a_low_rank():
    H, generator = low_rank(60, 4, 0.0), np.random.default_rng(6)
    X = generator.standard_normal((60, 20))
    Y = H @ X
    Y += 0.01 * np.linalg.norm(Y) / np.sqrt(Y.size) * generator.standard_normal(Y.shape)
    assert relative_error(H, complete(orthonormal_samples(X, Y)).factor.dense()) < 0.05


def test_bad_pairs_raise():
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
