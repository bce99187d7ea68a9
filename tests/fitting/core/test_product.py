"""QᵀHQ, the two objectives and their gradients, against dense products built with the reference kernel."""

import numpy as np
import pytest
import torch
from fitting.core.matrices import covariance, random_pairs

from swallowtail import Butterfly, Pairs
from swallowtail.fitting.core.product import (
    LIKELIHOOD,
    MATRIX,
    conjugate,
    layered,
    permuted,
    rotate_rows,
    tile,
    untile,
    value_and_gradient,
)
from swallowtail.kernels import reference

SIZES = [1, 2, 3, 5, 8, 33, 64, 65, 130]


def dense(wiring, angles):
    """Q by the specification: rotate the rows of the identity, which are the vectors e_k."""
    identity = torch.eye(wiring.n, dtype=torch.float64)[None]
    return reference.rotate(wiring, torch.from_numpy(angles)[None], identity)[0].numpy().T


@pytest.mark.parametrize("n", SIZES)
def test_conjugate_is_the_dense_product(n):
    H, (pairs, angles) = covariance(n), random_pairs(n, 3 * n)
    wiring, ordered = layered(n, pairs, angles)
    Q = dense(wiring, ordered)
    np.testing.assert_allclose(conjugate(H, pairs, angles), Q.T @ H @ Q, atol=1e-12)


@pytest.mark.parametrize("n", SIZES)
def test_tiles_hold_the_matrix(n):
    H = covariance(n)
    np.testing.assert_array_equal(untile(tile(H)), H)


def test_rows_rotate_both_ways():
    pairs, angles = random_pairs(12, 30)
    wiring, ordered = layered(12, pairs, angles)
    X = np.random.default_rng(1).standard_normal((12, 5))
    Y = X.copy()
    rotate_rows(Y, pairs, np.cos(angles), np.sin(angles), False)
    np.testing.assert_allclose(Y, dense(wiring, ordered) @ X, atol=1e-13)
    rotate_rows(Y, pairs, np.cos(angles), np.sin(angles), True)
    np.testing.assert_allclose(Y, X, atol=1e-13)


@pytest.mark.parametrize("target", [MATRIX, LIKELIHOOD])
@pytest.mark.parametrize("n", [2, 3, 17, 64, 65, 130])
def test_gradient_against_finite_differences(n, target):
    tiles, (pairs, angles) = tile(covariance(n)), random_pairs(n, 2 * n)
    value, gradient, d = value_and_gradient(tiles, pairs, angles, target, 1e-12)
    assert value == pytest.approx(np.sum(d**2) if target == MATRIX else -np.sum(np.log(d)))
    for k in np.linspace(0, len(angles) - 1, 5).astype(int):
        step = np.zeros(len(angles))
        step[k] = 1e-5
        up, down = (value_and_gradient(tiles, pairs, angles + e, target, 1e-12)[0] for e in (step, -step))
        assert gradient[k] == pytest.approx((up - down) / 2e-5, rel=1e-5, abs=1e-7)


def test_layered_keeps_the_product_and_packs_as_wiring_does():
    pairs, angles = random_pairs(9, 40)
    wiring, ordered = layered(9, pairs, angles)
    expected, order = Pairs.from_sequence(9, pairs)
    assert wiring == expected
    np.testing.assert_array_equal(ordered, angles[order])


def test_permuted_butterfly():
    order = np.array([2, 0, 3, 1])
    assert permuted(Butterfly(4), None) == Butterfly(4)
    assert permuted(Butterfly(4), np.arange(4)) == Butterfly(4)
    assert permuted(Butterfly(4), order).layer(0).tolist() == [[2, 3], [0, 1]]
    assert Butterfly(1).flat_pairs().shape == (0, 2)
