"""Growth of rotations, against dense products and a plain search."""

import numpy as np
import pytest
from fitting.core.matrices import covariance

from swallowtail.fitting.core.growth import jacobi_angle, parallel_jacobi
from swallowtail.fitting.core.product import LIKELIHOOD, MATRIX, conjugate


@pytest.mark.parametrize("target", [MATRIX, LIKELIHOOD])
@pytest.mark.parametrize("threshold", [0.1, 1.0])
def test_parallel_jacobi_returns_the_matrix_it_describes(target, threshold):
    H = covariance(40)
    A = H.copy()
    pairs, angles = parallel_jacobi(A, 150, threshold, target, 1e-12, 0.0, 0)
    assert len(angles) == 150
    assert np.abs(angles).max() <= np.pi / 4 + 1e-15
    np.testing.assert_allclose(A, conjugate(H, pairs, angles), atol=1e-12)


def test_one_at_a_time_takes_the_largest_entry():
    H = covariance(20)
    pairs, _ = parallel_jacobi(H.copy(), 1, 1.0, MATRIX, 0.0, 0.0, 0)
    off = np.abs(np.triu(H, 1))
    assert tuple(pairs[0]) == np.unravel_index(off.argmax(), off.shape)


def test_jacobi_angle_diagonalises():
    H = np.array([[2.0, -0.7], [-0.7, 0.5]])
    A = conjugate(H, np.array([[0, 1]]), np.array([jacobi_angle.py_func(2.0, -0.7, 0.5)]))
    assert abs(A[0, 1]) < 1e-15
    np.testing.assert_allclose(np.sort(np.diag(A)), np.linalg.eigvalsh(H))


@pytest.mark.parametrize("target", [MATRIX, LIKELIHOOD])
def test_layers_are_those_of_a_plain_search(target):
    """Row maxima that are kept from layer to layer choose what a search of the whole matrix chooses."""
    H = covariance(30, seed=3)
    A, k = H.copy(), 0
    pairs, angles = parallel_jacobi(H.copy(), 80, 0.3, target, 1e-12, 0.0, 0)
    while k < 80:
        q = np.ones(30) if target == MATRIX else 1.0 / np.diagonal(A)
        weights = A**2 * q[:, None] * q - np.diag(np.full(30, np.inf))
        best, free, layer = weights.max(1), np.ones(30, bool), set()
        for i in np.argsort(-best):
            j = weights[i].argmax()
            if best[i] >= 0.3 * best.max() and free[i] and free[j]:
                free[[i, j]] = False
                layer.add((min(i, j), max(i, j)))
        count = min(len(layer), 80 - k)
        assert len(layer & set(map(tuple, pairs[k : k + count].tolist()))) == count
        A, k = conjugate(A, pairs[k : k + count], angles[k : k + count]), k + count
