"""Matchings beside a greedy choice that sorts all weights."""

import numpy as np
import pytest
from fitting.core.matrices import covariance, scrambled_kernel

from swallowtail.fitting.core.matching import PAIRS, grow_matching, least_weight, sampled
from swallowtail.fitting.core.product import TARGETS

MATRICES = {
    "covariance": covariance(23),
    "equal entries": scrambled_kernel(5),
    "all equal": np.ones((9, 9)),
    "some zeros": np.kron(np.eye(3), covariance(5)),
    "one": np.ones((1, 1)),
    "two": covariance(2),
}


def greedy(H, target, least):
    """Pairs of the largest weights, each coordinate once; the first of equal ones."""
    d = np.diag(H) if target == "likelihood" else np.ones(len(H))
    i, j = np.triu_indices(len(H), 1)
    weights, pairs, seen = H[i, j] ** 2 / (d[i] * d[j]), [], set()
    for k in np.argsort(-weights, kind="stable"):
        if weights[k] > least and not seen & {i[k], j[k]}:
            seen |= {i[k], j[k]}
            pairs.append((i[k], j[k]))
    return np.array(pairs, np.int64).reshape(-1, 2)


@pytest.mark.parametrize("target", ["matrix", "likelihood"])
@pytest.mark.parametrize("name", MATRICES)
def test_pairs_of_the_largest_weights(name, target):
    H = MATRICES[name]
    expected = greedy(H, target, 1e-20)
    for most in (100, 3, 0):
        A = H.copy()
        pairs, angles = grow_matching(A, most, TARGETS[target], 1e-12, 1e-20)
        np.testing.assert_array_equal(pairs, expected[:most])
        Q = np.eye(len(H))
        for (i, j), t in zip(pairs, angles, strict=True):
            Q[np.ix_([i, j], [i, j])] = [[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]]
        np.testing.assert_allclose(A, Q.T @ H @ Q, atol=1e-12)
        np.testing.assert_allclose(A[tuple(pairs.T)], 0.0, atol=1e-12)


@pytest.mark.parametrize("n", [30, 200])
def test_the_least_weight_lets_so_many_pairs_meet(n):
    weights = covariance(n) ** 2
    np.fill_diagonal(weights, 0.0)
    least = least_weight(weights[sampled(n)])
    assert (weights > least).sum() / 2 == pytest.approx(PAIRS * n, rel=0.1)
    assert least_weight(weights[:3, :12].copy()) == 0.0


def test_equal_pairs_all_weigh_enough():
    weights = 1.0 - np.eye(50)
    assert 0.0 < least_weight(weights) < 1.0


@pytest.mark.parametrize("n", [300, 1500])
def test_hubs_that_are_everybodys_best(n):
    """Weights rise towards one end, so that passes over all would find one pair each."""
    v = 1 + 1e-9 * np.arange(n) / n
    pairs, _ = grow_matching(np.outer(v, v), n, TARGETS["matrix"], 1e-12, 1e-20)
    assert len(np.unique(pairs)) == n


def test_halves_that_differ_in_the_last_digit():
    """Then nobody need be the best of its own best."""
    v = 1 + np.random.default_rng(1).random(200)
    A = (0.7 * v[:, None]) * v
    assert (A != A.T).any()
    pairs, _ = grow_matching(A, 200, TARGETS["matrix"], 1e-12, 1e-20)
    assert len(np.unique(pairs)) == 200
