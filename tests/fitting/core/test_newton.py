"""Rotations put anywhere into a product, against differences."""

import numpy as np
import pytest
from fitting.core.matrices import covariance, random_pairs

from swallowtail.fitting.core.groups import together
from swallowtail.fitting.core.newton import newton_rotations
from swallowtail.fitting.core.product import (
    LIKELIHOOD,
    MATRIX,
    conjugate,
    rotate_rows,
    tile,
    value_and_gradient,
)


@pytest.mark.parametrize("target", [MATRIX, LIKELIHOOD])
@pytest.mark.parametrize("at", [0, 7, 15])
def test_newton_rotations_raise_the_objective_wherever_they_stand(target, at):
    """Against differences: the first layer's pairs and turns are −g/h of the objective itself."""
    H, (pairs, angles) = covariance(10), random_pairs(10, 15, at)
    M, B = conjugate(H, pairs[:at], angles[:at]), np.eye(10)
    rotate_rows(B, pairs[at:], np.cos(angles[at:]), np.sin(angles[at:]), False)
    more, turns = newton_rotations(M, B, 1, 1, 1.0, target, 1e-12, together(10))

    def value(theta):
        p = np.concatenate([pairs[:at], more, pairs[at:]])
        a = np.concatenate([angles[:at], [theta], angles[at:]])
        return value_and_gradient(tile(H), np.ascontiguousarray(p), a, target, 1e-12)[0]

    step = 1e-4
    g = (value(step) - value(-step)) / (2 * step)
    h = (value(step) - 2 * value(0.0) + value(-step)) / step**2
    assert turns[0] == pytest.approx(np.clip(g / abs(h), -0.5, 0.5), rel=1e-4)
    if h < 0:
        assert value(turns[0]) > value(0.0)
