"""QᵀHQ, the two objectives and their gradients, against dense products built with the reference kernel."""

import numpy as np
import pytest
import torch

from swallowtail.fitting.core.groups import together
from swallowtail.fitting.core.growth import jacobi_angle, newton_rotations, parallel_jacobi, removal_losses
from swallowtail.fitting.core.objectives import Objective
from swallowtail.fitting.core.product import (
    LIKELIHOOD,
    MATRIX,
    conjugate,
    flat_pairs,
    layered,
    permuted,
    rotate_rows,
    tile,
    untile,
    value_and_gradient,
)
from swallowtail.kernels import reference
from swallowtail.wiring import Butterfly, Pairs

SIZES = [1, 2, 3, 5, 8, 33, 64, 65, 130]


def covariance(n, seed=0):
    X = np.random.default_rng(seed).standard_normal((n, n + 5))
    return X @ X.T / n


def random_pairs(n, count, seed=0):
    generator = np.random.default_rng(seed)
    if n == 1:
        return np.zeros((0, 2), np.int64), np.zeros(0)
    pairs = np.array([generator.permutation(n)[:2] for _ in range(count)], dtype=np.int64)
    return pairs, generator.uniform(-np.pi, np.pi, count)


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
    assert flat_pairs(Butterfly(1)).shape == (0, 2)


@pytest.mark.parametrize("target", ["matrix", "likelihood"])
def test_polish_goes_down_to_a_stationary_point(target):
    objective = Objective(covariance(24), target)
    pairs, angles = random_pairs(24, 60)
    reported = []
    x, value = objective.polish(pairs, angles, 2000, 1e-14, lambda _, f: reported.append(f))
    assert value < objective(pairs, angles)[0]
    assert value == pytest.approx(objective(pairs, x)[0], abs=1e-14)
    assert reported == sorted(reported, reverse=True)
    assert np.abs(objective(pairs, x)[1]).max() < 1e-5


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e30, 1e150])
def test_objective_has_no_unit(scale):
    H, (pairs, angles) = covariance(10), random_pairs(10, 20)
    plain, scaled = Objective(H), Objective(H * scale)
    assert scaled(pairs, angles)[0] == pytest.approx(plain(pairs, angles)[0], rel=1e-12)
    np.testing.assert_allclose(
        scaled.eigenvalues(pairs, angles) / scale, plain.eigenvalues(pairs, angles), rtol=1e-12
    )


@pytest.mark.parametrize("target", [MATRIX, LIKELIHOOD])
@pytest.mark.parametrize("at", [0, 7, 15])
def test_newton_rotations_raise_the_objective_wherever_they_stand(target, at):
    """Against differences: the first layer's pairs and turns are −g/h of the objective itself."""
    H, (pairs, angles) = covariance(10), random_pairs(10, 15, at)
    M, B = conjugate(H, pairs[:at], angles[:at]), np.eye(10)
    rotate_rows(B, pairs[at:], np.cos(angles[at:]), np.sin(angles[at:]), False)
    more, turns = newton_rotations(M, B, 1, 1, 1.0, target, 1e-12, *together(10), 10)

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
