"""c·I + Z diag(w) Zᵀ: the record and its gradient, against dense matrices."""

import numpy as np
import pytest

from swallowtail.fitting.core.factor import Factor, value_and_gradient
from swallowtail.fitting.core.objectives import Objective


def random_factor(n, rank, seed=0, orthonormal=True):
    generator = np.random.default_rng(seed)
    Z = generator.standard_normal((n, rank))
    return Factor(0.3, np.linalg.qr(Z)[0] if orthonormal else Z, generator.standard_normal(rank))


def random_rotations(n, count, seed=0):
    generator = np.random.default_rng(seed)
    pairs = np.array([generator.permutation(n)[:2] for _ in range(count)], np.int64)
    return pairs, generator.uniform(-np.pi, np.pi, count)


@pytest.mark.parametrize("orthonormal", [True, False])
def test_factor_is_its_dense_matrix(orthonormal):
    factor = random_factor(9, 4, orthonormal=orthonormal)
    A = 0.3 * np.eye(9) + factor.basis @ np.diag(factor.weights) @ factor.basis.T
    np.testing.assert_allclose(factor.dense(), A, atol=1e-14)
    np.testing.assert_allclose(factor @ np.eye(9), A, atol=1e-14)
    low = A - 0.3 * np.eye(9)
    np.testing.assert_allclose(factor.norms2(), [(A * A).sum(), (low * low).sum()], rtol=1e-12)


def test_cut_is_the_best_shift_plus_low_rank():
    factor = random_factor(12, 5)
    cut = factor.cut(3)
    assert cut.basis.shape == (12, 3)
    assert np.trace(cut.dense()) == pytest.approx(np.trace(factor.dense()))
    np.testing.assert_allclose(factor.cut(5).dense(), factor.dense(), atol=1e-14)


def test_gradient_matches_finite_differences():
    factor = random_factor(11, 4, orthonormal=False)
    pairs, angles = random_rotations(11, 30)
    _, gradient, _ = value_and_gradient(factor.basis, factor.weights, pairs, angles)
    step = 1e-6
    for k in range(30):
        ends = [angles + sign * step * (np.arange(30) == k) for sign in (1.0, -1.0)]
        high, low = (value_and_gradient(factor.basis, factor.weights, pairs, x)[0] for x in ends)
        assert gradient[k] == pytest.approx((high - low) / (2 * step), rel=1e-6, abs=1e-6)


def test_objective_is_the_dense_one():
    factor = random_factor(16, 6)
    pairs, angles = random_rotations(16, 40)
    total, gradient, e = value_and_gradient(factor.basis, factor.weights, pairs, angles)
    dense = Objective(factor.dense())
    norm2, low2 = factor.norms2()
    value, dense_gradient = dense(pairs, angles)
    assert (low2 - total) / norm2 == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(-gradient / norm2, dense_gradient, atol=1e-13)
    np.testing.assert_allclose(e + factor.shift, dense.eigenvalues(pairs, angles), atol=1e-13)
