"""One round of growth inside groups: it does to the matrix what its rotations say, and stays inside."""

import numpy as np
import pytest

from swallowtail.fitting.core.confined import cluster, grow_clusters, grow_round
from swallowtail.fitting.core.groups import apart, joined, meeting
from swallowtail.fitting.core.newton import newton_rotations
from swallowtail.fitting.core.product import TARGETS, conjugate


def covariance(n, seed=0):
    X = np.random.default_rng(seed).standard_normal((3 * n, n))
    return np.cov((X * np.linspace(0.3, 2, n)).T)


def grow(kind, A, size, count, target):
    groups = apart(len(A), size)
    if kind == "pairs":
        return grow_round(A, *groups, count, 0.1, TARGETS[target], 1e-12, 1e-30)
    cluster(A * A, size, groups.label, groups.sizes)
    return grow_clusters(A, groups.label, count, TARGETS[target], 1e-12, 1e-30)


@pytest.mark.parametrize("kind", ["pairs", "clusters"])
@pytest.mark.parametrize("target", ["matrix", "likelihood"])
@pytest.mark.parametrize(("n", "size", "count"), [(2, 2, 1), (17, 4, 20), (40, 16, 60), (40, 40, 10)])
def test_a_round_is_what_it_did_to_the_matrix(kind, target, n, size, count):
    H = covariance(n)
    A = H.copy()
    pairs, angles = grow(kind, A, size, count, target)
    assert 0 < len(pairs) <= count
    assert meeting(pairs, n)[1].max() <= size
    assert np.allclose(A, conjugate(H, pairs, angles), atol=1e-12)
    assert (np.diagonal(A) ** 2).sum() > (np.diagonal(H) ** 2).sum()


@pytest.mark.parametrize("kind", ["pairs", "clusters"])
def test_a_matrix_of_small_blocks_is_diagonalised_in_one_round(kind):
    H = np.zeros((12, 12))
    for start in range(0, 12, 3):
        H[start : start + 3, start : start + 3] = covariance(3, start)
    A = H.copy()
    grow(kind, A, 3, 100, "matrix")
    assert np.abs(A - np.diag(np.diagonal(A))).max() < 1e-9


def test_nothing_is_rotated_in_a_diagonal_matrix():
    for kind in ("pairs", "clusters"):
        assert len(grow(kind, np.diag([3.0, 1.0, 2.0]), 2, 5, "matrix")[0]) == 0


def test_clusters_take_the_largest_entries_first():
    weights = np.zeros((5, 5))
    weights[0, 1] = weights[1, 2] = 1.0
    weights[2, 3] = 2.0
    label, sizes, _ = apart(5, 2)
    cluster(weights + weights.T, 2, label, sizes)
    assert label[2] == label[3]
    assert label[0] == label[1] != label[2]
    assert len({int(q) for q in label}) == 3


def test_newton_rotations_keep_to_the_groups():
    groups = joined(np.array([[0, 1], [1, 2], [5, 6]]), 24, 4)
    M, B = covariance(24), np.linalg.qr(covariance(24, 1))[0]
    pairs, angles = newton_rotations(M, B, 30, 8, 0.05, TARGETS["matrix"], 1e-12, groups)
    assert len(pairs) == len(angles) > 4
    united, counts = meeting(np.concatenate([[[0, 1], [1, 2], [5, 6]], pairs]), 24)
    assert counts.max() <= 4
    assert united[0] == united[2]
