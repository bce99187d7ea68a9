"""A layer of disjoint pairs, largest weight first, until nobody is left to meet."""

from __future__ import annotations

import numpy as np

from swallowtail.fitting.core.growth import jacobi_angle
from swallowtail.fitting.core.product import MATRIX, compiled, cosines, falling_order, inner, rows_to_basis

# So many per coordinate may meet, those of the largest weights; MNIST's covariance ends 8 % worse if all may.
PAIRS = 10
PASSES = 40  # over the coordinates, each up to n² steps; who is left then is matched greedily
SAMPLE = 64  # rows that show how large these are


def sampled(n: int) -> np.ndarray:  # shape: (SAMPLE or n,)
    """The rows that `least_weight` looks at."""
    return np.linspace(0, n - 1, min(SAMPLE, n)).astype(np.int64)


def least_weight(weights: np.ndarray) -> float:
    """What a pair has to weigh; rotations of less weight are better spent elsewhere.

    Args:
        weights: of the rows `sampled` with all coordinates, and 0 with their own; shape (m, n). It is changed.
    """
    m, n = weights.shape
    count = 2 * PAIRS * m  # every pair stands in two rows
    if count > m * (n - 2):
        return 0.0
    weights = weights.ravel()
    weights.partition(weights.size - count)
    return float(weights[weights.size - count]) * (1.0 - 1e-9)  # so that of equal pairs all may meet


@compiled
def grow_matching(
    A: np.ndarray, n_rotations: int, target: int, floor: float, least: float
) -> tuple[np.ndarray, np.ndarray]:
    """A ← QᵀAQ in place, for one layer; two coordinates meet if each is the other's best among those still free.

    That finds the pairs of a greedy choice without sorting n² weights: the largest weight left is always such a pair.

    Args:
        A: symmetric, shape (n, n); overwritten.
        n_rotations: at most this many; those of the largest weights.
        target, floor: as in `core.growth.parallel_jacobi`.
        least: a pair that weighs no more is none.

    Returns:
        pairs (K, 2) and angles (K,).
    """
    n = len(A)
    q, weight, partner = np.ones(n), np.empty(n), np.empty(n, np.int64)
    free = np.ones(n, np.bool_)
    if target != MATRIX:
        for i in range(n):
            q[i] = 1.0 / max(A[i, i], floor)
    for i in range(n):
        partner[i], weight[i] = _best(A, i, q, target, free)
    pairs, weights = np.empty((n // 2, 2), np.int64), np.empty(n // 2)
    m, before = 0, -1
    for _ in range(PASSES):
        if m == before:
            break
        before = m
        for i in range(n):
            if not free[i] or weight[i] <= least:
                continue
            if not free[partner[i]]:
                partner[i], weight[i] = _best(A, i, q, target, free)
            j = partner[i]
            if not free[partner[j]]:
                partner[j], weight[j] = _best(A, j, q, target, free)
            if weight[i] > least and partner[j] == i:
                free[i] = free[j] = False
                pairs[m, 0], pairs[m, 1], weights[m] = min(i, j), max(i, j), weight[i]
                m += 1
    for i in falling_order(weight):  # who is left, as where few are everybody's best
        if free[i] and weight[i] > least:
            j, w = _best(A, i, q, target, free)
            if w > least:
                free[i] = free[j] = False
                pairs[m, 0], pairs[m, 1], weights[m] = min(i, j), max(i, j), w
                m += 1
    order = falling_order(weights[:m])
    m = min(m, n_rotations)
    chosen, angles = np.empty((m, 2), np.int64), np.empty(m)
    for k in range(m):
        i, j = pairs[order[k], 0], pairs[order[k], 1]
        chosen[k, 0], chosen[k, 1] = i, j
        angles[k] = jacobi_angle(A[i, i], A[i, j], A[j, j])
    c, s = cosines(angles)
    rows_to_basis(A, chosen, c, s)
    for r in range(n):
        for k in range(m):
            i, j = chosen[k, 0], chosen[k, 1]
            a, b = A[r, i], A[r, j]
            A[r, i], A[r, j] = c[k] * a + s[k] * b, c[k] * b - s[k] * a
    return chosen, angles


@inner
def _best(A: np.ndarray, i: int, q: np.ndarray, target: int, free: np.ndarray) -> tuple[int, float]:
    """The free j ≠ i of the largest weight, the first of equals, and that weight; (i, −1) if there is none."""
    best, where = -1.0, i
    for j in range(len(A)):
        if free[j] and j != i:
            w = A[i, j] * A[i, j] * (1.0 if target == MATRIX else q[i] * q[j])
            if w > best:
                best, where = w, j
    return where, best
