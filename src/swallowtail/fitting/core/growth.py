"""Which rotations to add to a product: greedy growth at its end, a layer of disjoint pairs at a time."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from swallowtail.fitting.core.product import (
    MATRIX,
    compiled,
    cosines,
    falling_order,
    inlined,
    inner,
    longer,
    rows_to_basis,
)


@inner
def jacobi_angle(a: float, b: float, d: float) -> float:
    """The θ in [−45°, 45°] for which Gᵀ [[a, b], [b, d]] G is diagonal, G = [[c, −s], [s, c]]."""
    t = 0.5 * math.atan2(2.0 * b, a - d)
    if t > 0.25 * math.pi:
        return t - 0.5 * math.pi
    if t < -0.25 * math.pi:
        return t + 0.5 * math.pi
    return t


@inlined
def _row_best(A: np.ndarray, i: int, q: np.ndarray, target: int) -> tuple[int, float]:
    """The j ≠ i of the largest weight a_ij², or a_ij² q_i q_j for the likelihood, and that weight."""
    n = A.shape[0]
    best = -1.0
    if target == MATRIX:
        for j in range(n):
            v = A[i, j] * A[i, j] if j != i else -1.0
            best = max(best, v)
        for j in range(n):
            if j != i and A[i, j] * A[i, j] >= best:
                return j, best
        return 0, -1.0
    where = 0
    for j in range(n):
        v = A[i, j] * A[i, j] * q[j]
        if v > best and j != i:
            best, where = v, j
    return where, best * q[i]


class Rows(NamedTuple):
    """The largest weight of every row, kept from layer to layer, and how up to date the rows themselves are.

    A layer changes few rows and the same columns. The columns of other rows lie far apart in memory, so they are
    written only when such a row is needed: the same numbers stand in the rows that changed.
    """

    weight: np.ndarray  # shape: (n,): no entry of the row weighs more
    partner: np.ndarray  # shape: (n,): where that weight was found
    exact: np.ndarray  # shape: (n,): whether it is still there
    turned: np.ndarray  # shape: (n,): the last layer that rotated the row
    fresh: np.ndarray  # shape: (n,): the row has the entries of all layers up to this one
    q: np.ndarray  # shape: (n,): 1, or one over the variance for the likelihood
    layers: np.ndarray  # shape: (1,): how many there have been


@inner
def _refresh(A: np.ndarray, rows: Rows, r: int) -> None:
    """Bring row r up to date: entries in columns that have been rotated since come from the rotated rows."""
    since = rows.fresh[r]
    for k in range(len(A)):
        if rows.turned[k] > since:
            A[r, k] = A[k, r]
    rows.fresh[r] = rows.layers[0]


@inner
def _search(A: np.ndarray, rows: Rows, r: int, target: int) -> None:
    _refresh(A, rows, r)
    rows.partner[r], rows.weight[r] = _row_best(A, r, rows.q, target)
    rows.exact[r] = True


@inner
def _heaviest(weight: np.ndarray) -> int:
    best = 0
    for r in range(len(weight)):
        if weight[r] > weight[best]:
            best = r
    return best


@inlined
def _candidates(A: np.ndarray, rows: Rows, threshold: float, least_weight: float, target: int) -> np.ndarray:
    """The rows whose largest weight is at least threshold times the largest of all, that one first."""
    n, best = len(A), _heaviest(rows.weight)
    while not rows.exact[best]:
        _search(A, rows, best, target)
        best = _heaviest(rows.weight)
    if rows.weight[best] <= least_weight:
        return np.empty(0, np.int64)
    least = threshold * rows.weight[best]
    found, weight, count = np.empty(n, np.int64), np.empty(n), 0
    for r in range(n):
        if rows.weight[r] >= least and not rows.exact[r]:
            _search(A, rows, r, target)
        if rows.weight[r] >= least:
            found[count], weight[count] = r, rows.weight[r]
            count += 1
    order = falling_order(weight[:count])
    for k in range(count):
        order[k] = found[order[k]]
    return order


@inlined
def _turn(A: np.ndarray, rows: Rows, pairs: np.ndarray, c: np.ndarray, s: np.ndarray, target: int) -> None:
    """A ← GᵀAG for one layer of rotations, in the rows that it rotates; the others keep to `Rows`."""
    n, m = len(A), len(pairs)
    active = np.empty(2 * m, np.int64)  # i and j of the first pair, of the second, …
    for k in range(m):
        active[2 * k], active[2 * k + 1] = pairs[k, 0], pairs[k, 1]
    for r in active:
        _refresh(A, rows, r)
    rows_to_basis(A, pairs, c, s)
    rows.layers[0] += 1
    layer = rows.layers[0]
    for r in active:
        rows.turned[r] = rows.fresh[r] = layer
        for k in range(m):
            i, j = pairs[k, 0], pairs[k, 1]
            a, b = A[r, i], A[r, j]
            A[r, i], A[r, j] = c[k] * a + s[k] * b, c[k] * b - s[k] * a
    for k in range(m):
        i, j = pairs[k, 0], pairs[k, 1]
        A[i, j] = A[j, i] = 0.0
    for k in range(n):
        if rows.turned[rows.partner[k]] == layer:
            rows.exact[k] = False
    largest = np.zeros(n)  # of each column's new entries
    for r in active:
        for k in range(n):
            largest[k] = max(largest[k], A[r, k] * A[r, k] * rows.q[r])
    for k in range(n):
        if largest[k] * rows.q[k] >= rows.weight[k] and rows.turned[k] != layer:
            for r in active:
                if A[r, k] * A[r, k] * rows.q[r] >= largest[k]:
                    rows.weight[k], rows.partner[k], rows.exact[k] = largest[k] * rows.q[k], r, True
    for r in active:
        _search(A, rows, r, target)


@compiled
def parallel_jacobi(
    A: np.ndarray,
    n_rotations: int,
    threshold: float,
    target: int,
    floor: float,
    least_weight: float,
    enough: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Parallel truncated Jacobi: A ← QᵀAQ in place, for ``n_rotations`` rotations chosen greedily.

    Each layer takes, of the pairs (i, argmax_j w_ij), disjoint ones in decreasing order as long as
    w ≥ threshold · max w, and rotates each by its exact Jacobi angle. The weight is a_ij² (matrix: half of
    what the rotation gains) or a_ij²/(a_ii a_jj) (likelihood). A layer of m pairs costs O(nm), not O(n²): see `Rows`.

    Args:
        A: symmetric, shape (n, n); overwritten.
        n_rotations: at most this many.
        threshold: in [0, 1]; 1 is the classical one-at-a-time Jacobi, up to ties.
        target: MATRIX or LIKELIHOOD.
        floor: smallest variance the likelihood weights see.
        least_weight: stop when no pair weighs more.
        enough: stop behind a whole layer once there are this many; 0: go on.

    Returns:
        pairs (K, 2) and angles (K,), K ≤ n_rotations.
    """
    n = A.shape[0]
    room = min(n_rotations, 4 * n)  # for a start: a budget may be far larger than what A can use
    pairs, angles = np.zeros((room, 2), np.int64), np.zeros(room)
    rows = Rows(
        np.zeros(n),
        np.zeros(n, np.int64),
        np.zeros(n, np.bool_),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.ones(n),
        np.zeros(1, np.int64),
    )
    if target != MATRIX:
        for i in range(n):
            rows.q[i] = 1.0 / max(A[i, i], floor)
    for i in range(n):
        _search(A, rows, i, target)
    taken, k = np.zeros(n, np.int64), 0  # the last layer that has taken a coordinate
    while k < n_rotations and not 0 < enough <= k:
        order = _candidates(A, rows, threshold, least_weight, target)
        if len(order) == 0:
            break
        lo, room, layer = k, k + min(n_rotations - k, n // 2), rows.layers[0] + 1
        pairs, angles = longer(pairs, angles, room)
        for i in order:
            j = rows.partner[i]
            if k == n_rotations:
                break
            if taken[i] == layer or taken[j] == layer:
                continue
            taken[i] = taken[j] = layer
            first, second = min(i, j), max(i, j)
            _refresh(A, rows, first)
            pairs[k, 0], pairs[k, 1] = first, second
            angles[k] = jacobi_angle(A[first, first], A[first, second], A[second, second])
            if target != MATRIX:  # the new variances, a_ii + a_ij tan θ and a_jj − a_ij tan θ
                change = A[first, second] * math.tan(angles[k])
                rows.q[first] = 1.0 / max(A[first, first] + change, floor)
                rows.q[second] = 1.0 / max(A[second, second] - change, floor)
            k += 1
        c, s = cosines(angles[lo:k])
        _turn(A, rows, pairs[lo:k], c, s, target)
    for r in range(n):
        _refresh(A, rows, r)
    return pairs[:k], angles[:k]
