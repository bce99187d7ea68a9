"""Growth and removal of rotations, against dense products and differences."""

import numpy as np
import pytest

from swallowtail.fitting.core.growth import jacobi_angle, parallel_jacobi, removal_losses
from swallowtail.fitting.core.product import (
    LIKELIHOOD,
    MATRIX,
    conjugate,
    tile,
    value_and_gradient,
)


def covariance(n, seed=0):
    X = np.random.default_rng(seed).standard_normal((n, n + 5))
    return X @ X.T / n


def random_pairs(n, count, seed=0):
    generator = np.random.default_rng(seed)
    if n == 1:
        return np.zeros((0, 2), np.int64), np.zeros(0)
    pairs = np.array([generator.permutation(n)[:2] for _ in range(count)], dtype=np.int64)
    return pairs, generator.uniform(-np.pi, np.pi, count)


@pytest.mark.parametrize("target", [MATRIX, LIKELIHOOD])
@pytest.mark.parametrize("n", [2, 17, 65])
def test_removal_losses_are_exact(n, target):
    tiles, (pairs, angles) = tile(covariance(n)), random_pairs(n, 2 * n)
    whole = value_and_gradient(tiles, pairs, angles, target, 1e-12)[0]
    losses = removal_losses(tiles, pairs, angles, target, 1e-12)
    for k in range(0, len(angles), 7):
        rest = np.delete(np.arange(len(angles)), k)
        less = value_and_gradient(tiles, pairs[rest], angles[rest], target, 1e-12)[0]
        assert losses[k] == pytest.approx(whole - less, abs=1e-10)


@pytest.mark.parametrize("target", [MATRIX, LIKELIHOOD])
@pytest.mark.parametrize("threshold", [0.1, 1.0])
def test_parallel_jacobi_returns_the_matrix_it_describes(target, threshold):
    H = covariance(40)
    A = H.copy()
    pairs, angles = parallel_jacobi(A, 150, threshold, target, 1e-12, 0.0)
    assert len(angles) == 150
    assert np.abs(angles).max() <= np.pi / 4 + 1e-15
    np.testing.assert_allclose(A, conjugate(H, pairs, angles), atol=1e-12)


def test_one_at_a_time_takes_the_largest_entry():
    H = covariance(20)
    pairs, _ = parallel_jacobi(H.copy(), 1, 1.0, MATRIX, 0.0, 0.0)
    off = np.abs(np.triu(H, 1))
    assert tuple(pairs[0]) == np.unravel_index(off.argmax(), off.shape)


def test_jacobi_angle_diagonalises():
    H = np.array([[2.0, -0.7], [-0.7, 0.5]])
    A = conjugate(H, np.array([[0, 1]]), np.array([jacobi_angle(2.0, -0.7, 0.5)]))
    assert abs(A[0, 1]) < 1e-15
    np.testing.assert_allclose(np.sort(np.diag(A)), np.linalg.eigvalsh(H))
