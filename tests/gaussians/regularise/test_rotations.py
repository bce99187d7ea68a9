"""Choosing rotations for a covariance."""

import numpy as np
import pytest

from swallowtail.fitting.core.growth import parallel_jacobi
from swallowtail.fitting.core.product import LIKELIHOOD
from swallowtail.gaussians.regularise.rotations import (
    LEAST_WEIGHT,
    ROUNDING,
    THRESHOLD,
    _grow_among,
    grow,
    variances_along,
)


def test_columns_that_stand_alone_are_left_out_of_the_search():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 60))
    X[:, :30] = X[:, :30] @ rng.standard_normal((30, 30))
    S = np.cov(X.T, bias=True)
    S[:30, 30:] *= 0.01  # far below what a sample of this size would show
    S[30:, :30] *= 0.01
    S[30:, 30:] = np.diag(np.diagonal(S)[30:])
    whole, part = S.copy(), S.copy()
    expected = parallel_jacobi(whole, 200, THRESHOLD, LIKELIHOOD, ROUNDING, LEAST_WEIGHT, 0)
    found = _grow_among(part, 200, "likelihood")
    assert found is not None
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(part, whole, atol=1e-10)


def test_a_correlation_that_rotations_bring_to_light_is_found():
    """Columns 0 and 1 are z ± e with z large, column 2 is e: it correlates with neither, but with their difference."""
    n, S = 20, np.eye(20)
    z, e = 1000.0, 1.0
    S[:2, :2] = z + e * np.array([[1.0, -1.0], [-1.0, 1.0]])
    S[2, :2] = S[:2, 2] = [0.999 * e, -0.999 * e]
    assert _grow_among(S.copy(), 10, "likelihood") is None
    pairs, angles = grow(S, 0.0, 10, "likelihood")
    d = variances_along(S, pairs, angles)
    assert np.log(d).sum() == pytest.approx(np.linalg.slogdet(S)[1], abs=1e-6)
    assert n == len(d)
