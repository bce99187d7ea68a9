"""Removal of rotations, against products without them."""

import numpy as np
import pytest
from fitting.core.matrices import covariance, random_pairs

from swallowtail.fitting.core.product import LIKELIHOOD, MATRIX, tile, value_and_gradient
from swallowtail.fitting.core.removal import removal_losses


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
