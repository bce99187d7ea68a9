"""Orders in which a butterfly may take the coordinates, so that those that should meet do so early."""

from __future__ import annotations

import numpy as np

from swallowtail.fitting.core.product import conjugate


def learned_order(H: np.ndarray) -> np.ndarray:  # shape: (n,)
    """An order of the coordinates in which those that should meet do: clusters paired level by level.

    The first layer pairs single coordinates with the largest total a_ij², rotates them by their Jacobi
    angles, the next one pairs those pairs, and so on. n that is not a power of two is filled up with empty
    coordinates, which are dropped at the end.
    """
    n = len(H)
    N = 1 << (n - 1).bit_length()
    A = np.zeros((N, N))
    A[:n, :n] = H
    clusters = np.arange(N)[:, None]  # shape: (number of clusters, coordinates in each)
    while len(clusters) > 1:
        weight = np.zeros((len(clusters), len(clusters)))
        for column in clusters.T:
            weight += A[np.ix_(column, column)] ** 2
        first, second = _matching(weight)
        pairs = np.stack([clusters[first].ravel(), clusters[second].ravel()], axis=1)
        A = conjugate(A, pairs, jacobi_angles(A, pairs))
        clusters = np.concatenate([clusters[first], clusters[second]], axis=1)
    # Merge number l joined places that differ in bit l; the butterfly's first layer is its highest bit.
    bits = N.bit_length() - 1
    place = np.arange(N)
    reversed_place = sum(((place >> bit) & 1) << (bits - 1 - bit) for bit in range(bits)) + 0 * place
    order = np.empty(N, dtype=np.int64)
    order[reversed_place] = clusters[0]
    return order[order < n]


def jacobi_angles(A: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    i, j = pairs.T
    angles = 0.5 * np.arctan2(2.0 * A[i, j], A[i, i] - A[j, j])
    return angles - 0.5 * np.pi * ((angles > 0.25 * np.pi).astype(float) - (angles < -0.25 * np.pi))


def _matching(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A perfect matching of heavy pairs, greedily: (first, second)."""
    m = len(weight)
    i, j = np.triu_indices(m, 1)
    free = np.ones(m, dtype=bool)
    first, second = [], []
    for k in np.argsort(-weight[i, j], kind="stable"):
        if free[i[k]] and free[j[k]]:
            free[i[k]] = free[j[k]] = False
            first.append(i[k])
            second.append(j[k])
    return np.array(first), np.array(second)
