"""Low rank beside c·I or a diagonal, against brute force; factor models; likelihoods."""

from itertools import combinations

import numpy as np
import pytest

from swallowtail import datasets
from swallowtail.fitting.methods import low_rank as module
from swallowtail.fitting.methods.low_rank import (
    DiagonalLowRank,
    diagonal_low_rank,
    factor_analysis,
    gaussian_loss,
    low_rank,
    probabilistic_pca,
)


def symmetric(n, seed=0):
    A = np.random.default_rng(seed).standard_normal((n, n))
    return (A + A.T) / 2


def brute_force(H, r):
    """The least ‖H − cI − rank r‖_F: r eigenvalues are taken away, c is the mean of the others."""
    values = np.linalg.eigvalsh(H)
    left = [np.delete(values, taken) for taken in combinations(range(len(values)), r)]
    return min(float(np.sum((rest - rest.mean()) ** 2)) if len(rest) else 0.0 for rest in left) ** 0.5


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shift", [0.0, 5.0, -5.0])
def test_low_rank_is_the_best_there_is(seed, shift):
    H = symmetric(7, seed) + shift * np.eye(7)
    for r, cut in low_rank(H, list(range(8))).items():
        assert cut.V.shape == (7, r)
        np.testing.assert_allclose(cut.V.T @ cut.V, np.eye(r), atol=1e-12)
        assert np.linalg.norm(H - cut @ np.eye(7)) == pytest.approx(brute_force(H, r), abs=1e-12)


@pytest.mark.parametrize("H", [np.zeros((4, 4)), np.eye(4), np.array([[3.0]]), np.ones((4, 4))])
def test_low_rank_of_simple_matrices(H):
    for r, cut in low_rank(H, list(range(len(H) + 1))).items():
        if r or H[0, -1] == 0 or len(H) == 1:
            np.testing.assert_allclose(cut @ np.eye(len(H)), H, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e30, 1e200])
def test_scale_is_no_matter(scale):
    H = symmetric(9)
    for r in (0, 2, 5):
        plain, scaled = low_rank(H, [r])[r], low_rank(H * scale, [r])[r]
        np.testing.assert_allclose(scaled @ np.eye(9) / scale, plain @ np.eye(9), atol=1e-12)


@pytest.mark.parametrize("definite", [True, False])
def test_few_extremes_are_found_without_all_eigenvectors(definite, monkeypatch):
    monkeypatch.setattr(module, "FULL_EIGH", 10)
    generator = np.random.default_rng(0)
    Q = np.linalg.qr(generator.standard_normal((60, 60)))[0]
    values = np.concatenate(
        [[9.0, 7.0, 5.0 if definite else -5.0], 1.0 + 0.1 * generator.standard_normal(57)]
    )
    H = (Q * values) @ Q.T
    for r, cut in low_rank((H + H.T) / 2, [0, 2, 3]).items():
        best = module.cut(*np.linalg.eigh(H), r)
        error = np.linalg.norm(H - cut @ np.eye(60))
        assert error == pytest.approx(np.linalg.norm(H - best @ np.eye(60)), rel=1e-6)


def error(H, form):
    scale = np.abs(H).max()
    return np.linalg.norm(H / scale - form @ np.eye(len(H)) / scale) / np.linalg.norm(H / scale)


def factor_model(n, rank, noise, seed):
    generator = np.random.default_rng(seed)
    F = generator.standard_normal((n, rank))
    return F @ F.T + noise * np.diag(generator.uniform(0.5, 2.0, n))


@pytest.mark.parametrize(("n", "rank", "noise"), [(30, 2, 1.0), (64, 5, 10.0), (150, 8, 1.0)])
def test_factor_models_are_met_exactly(n, rank, noise):
    H = factor_model(n, rank, noise, n)
    assert error(H, low_rank(H, [rank])[rank]) > 1e-3
    assert error(H, diagonal_low_rank(H, rank)) < 1e-12
    assert error(1e200 * H, diagonal_low_rank(1e200 * H, rank)) < 1e-12


@pytest.mark.parametrize("large", [False, True])
def test_a_diagonal_and_low_rank_as_good_as_plain_turns(large, monkeypatch):
    if large:
        monkeypatch.setattr(module, "SMALL", 10)  # without the eigendecomposition at the start
    for H in (datasets.sensor_laplacian(32, seed=1), datasets.grid_kernel((5, 5), "rbf", 1.5)):
        for rank in (1, 4):
            d = np.diagonal(H).copy()
            for _ in range(60):
                values, vectors = np.linalg.eigh(H - np.diag(d))
                order = np.argsort(-np.abs(values))[:rank]
                L = (vectors[:, order] * values[order]) @ vectors[:, order].T
                d = np.diagonal(H - L).copy()
            plain = np.linalg.norm(H - np.diag(d) - L) / np.linalg.norm(H)
            assert error(H, diagonal_low_rank(H, rank)) <= min(
                plain * 1.02, error(H, low_rank(H, [rank])[rank])
            )


def lollipop():
    """The Laplacian of a path of 22 that ends in a clique of 15."""
    A = np.zeros((37, 37))
    A[:15, :15] = 1.0 - np.eye(15)
    for i in range(14, 36):
        A[i, i + 1] = A[i + 1, i] = 1.0
    return np.diag(A.sum(0)) - A


def arrow():
    H = np.diag(np.arange(1.0, 32))
    H[0, 1:] = H[1:, 0] = 1.0
    return H


@pytest.mark.parametrize(
    ("H", "rank", "reached"),
    [(lollipop(), 6, 0.083), (arrow(), 2, 1e-6), (1 / (1.0 + np.add.outer(range(23), range(23))), 2, 0.0206)],
)
def test_a_second_start_leaves_local_minima(H, rank, reached):
    """From c·I + low rank alone: 0.113, 0.0004 and 0.040."""
    assert error(H, diagonal_low_rank(H, rank)) < reached


def test_no_terms_leave_the_diagonal():
    H = symmetric(6)
    np.testing.assert_array_equal(diagonal_low_rank(H, 0) @ np.eye(6), np.diag(np.diagonal(H)))


def test_the_loss_of_a_gaussian_is_the_dense_formula():
    S = factor_model(12, 2, 1.0, 0)
    form = DiagonalLowRank(np.linspace(1.0, 2.0, 12), np.array([2.0, 0.5]), symmetric(12)[:, :2])
    B = form @ np.eye(12)
    expected = (np.linalg.slogdet(B)[1] + np.trace(np.linalg.solve(B, S))) / 12
    assert gaussian_loss(S, form) == pytest.approx(expected)
    assert gaussian_loss(S, DiagonalLowRank(0.0, form.w, form.V)) == np.inf


def test_likely_forms():
    S = factor_model(20, 3, 2.0, 1)
    exact = np.linalg.slogdet(S)[1] / 20 + 1
    pca, factors = probabilistic_pca(S, [3])[3], factor_analysis(S, 3)
    assert gaussian_loss(S, factors) == pytest.approx(exact, abs=1e-6)
    assert gaussian_loss(S, factors) < gaussian_loss(S, pca)
    for other in (0.8, 1.25):  # c is the most likely one
        assert gaussian_loss(S, DiagonalLowRank(pca.d * other, pca.w, pca.V)) > gaussian_loss(S, pca)
