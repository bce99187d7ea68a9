"""Growth confined to small groups of coordinates: one round of rotations, in two ways.

`grow_round` is `parallel_jacobi` with the pairs left out that would make a group too large. `grow_clusters` fixes the
groups first, by the largest entries, and rotates away the largest entry of each again and again. The first suits
matrices with many alike pairs (kernels, graphs), the second those whose few large entries matter (MNIST: 1.2°).
"""

from __future__ import annotations

import numpy as np

from swallowtail.fitting.core.groups import join, may_meet
from swallowtail.fitting.core.growth import jacobi_angle
from swallowtail.fitting.core.product import (
    MATRIX,
    compiled,
    copy_rows,
    cosines,
    falling_order,
    inner,
    rows_to_basis,
)

CANDIDATES = 40  # entries per coordinate that clusters are made from, largest first
TURNS = 6  # rotations per coordinate that a cluster may offer in one round


@inner
def _allowed_best(
    A: np.ndarray, i: int, q: np.ndarray, target: int, label: np.ndarray, count: np.ndarray, size: int
) -> tuple[int, float]:
    """The j ≠ i of the largest weight that i may meet, and that weight."""
    best, where = -1.0, 0
    for j in range(len(A)):
        if j == i:
            continue
        w = A[i, j] * A[i, j] * (1.0 if target == MATRIX else q[i] * q[j])
        if w > best and may_meet(label, count, i, j, size):
            best, where = w, j
    return where, best


@compiled
def grow_round(
    A: np.ndarray,
    label: np.ndarray,
    count: np.ndarray,
    size: int,
    n_rotations: int,
    threshold: float,
    target: int,
    floor: float,
    least: float,
) -> tuple[np.ndarray, np.ndarray]:
    """One round of `parallel_jacobi`: A ← QᵀAQ in place, by pairs that keep every group within ``size``.

    Args:
        A: symmetric, shape (n, n); overwritten.
        label, count, size: of `core.groups.Groups`; the first two are changed.
        n_rotations: at most this many.
        threshold, target, floor, least: as in `parallel_jacobi`.

    Returns:
        pairs (K, 2) and angles (K,).
    """
    n = len(A)
    pairs, angles = np.zeros((n_rotations, 2), np.int64), np.zeros(n_rotations)
    weight, partner, q = np.empty(n), np.empty(n, np.int64), np.ones(n)
    k = 0
    while k < n_rotations:
        if target != MATRIX:
            for i in range(n):
                q[i] = 1.0 / max(A[i, i], floor)
        for i in range(n):
            partner[i], weight[i] = _allowed_best(A, i, q, target, label, count, size)
        order = falling_order(weight)
        best = weight[order[0]]
        if best <= least:
            break
        lo, free = k, np.ones(n, np.bool_)
        for i in order:
            j = partner[i]
            if weight[i] < threshold * best or k == n_rotations:
                break
            if free[i] and free[j] and join(label, count, i, j, size):
                free[i] = free[j] = False
                first, second = min(i, j), max(i, j)
                pairs[k, 0], pairs[k, 1] = first, second
                angles[k] = jacobi_angle(A[first, first], A[first, second], A[second, second])
                k += 1
        c, s = cosines(angles[lo:k])
        rows_to_basis(A, pairs[lo:k], c, s)
        for r in range(n):
            for p in range(lo, k):
                i, j = pairs[p, 0], pairs[p, 1]
                a, b = A[r, i], A[r, j]
                A[r, i], A[r, j] = c[p - lo] * a + s[p - lo] * b, c[p - lo] * b - s[p - lo] * a
    return pairs[:k], angles[:k]


def cluster(weights: np.ndarray, size: int, label: np.ndarray, count: np.ndarray) -> None:
    """Unite coordinates, largest weight first, into groups of at most ``size``; label and count (n,) are changed."""
    n = len(weights)
    upper = np.flatnonzero(np.triu(np.ones((n, n), np.bool_), 1))
    w = weights.ravel()[upper]
    most = min(len(w), CANDIDATES * n)
    top = np.argpartition(-w, most - 1)[:most] if most < len(w) else np.arange(len(w))
    top = top[np.argsort(-w[top], kind="stable")]
    i, j = np.divmod(upper[top[w[top] > 0.0]], n)
    _unite(label, count, i, j, size)


@compiled
def _unite(label: np.ndarray, count: np.ndarray, i: np.ndarray, j: np.ndarray, size: int) -> None:
    for k in range(len(i)):
        join(label, count, i[k], j[k], size)


@compiled
def grow_clusters(
    A: np.ndarray, label: np.ndarray, n_rotations: int, target: int, floor: float, least: float
) -> tuple[np.ndarray, np.ndarray]:
    """One round: A ← QᵀAQ in place, for at most ``n_rotations`` rotations inside the groups.

    In each group the largest entry is rotated away, again and again, on a copy; then the round's rotations go to
    the groups whose next one gains most.

    Args:
        A: symmetric, shape (n, n); overwritten.
        label: the group of each coordinate, shape (n,).
        n_rotations: at most this many.
        target, floor: as in `parallel_jacobi`.
        least: the smallest weight worth a rotation.

    Returns:
        pairs (K, 2) and angles (K,), group by group.
    """
    n = len(A)
    order = np.argsort(label, kind="mergesort")
    room = TURNS * n
    gains, angles = np.empty(room), np.empty(room)
    pairs = np.empty((room, 2), np.int64)
    starts = np.zeros(n + 1, np.int64)  # where each group's offer begins
    groups = first = 0
    while first < n:
        stop = first + 1
        while stop < n and label[order[stop]] == label[order[first]]:
            stop += 1
        members, k = order[first:stop], starts[groups]
        starts[groups + 1] = _offer(A, members, target, floor, least, pairs[k:], angles[k:], gains[k:]) + k
        groups, first = groups + 1, stop
    taken = np.zeros(groups, np.int64)
    for _ in range(n_rotations):
        best, where = 0.0, -1
        for q in range(groups):
            k = starts[q] + taken[q]
            if k < starts[q + 1] and gains[k] > best:
                best, where = gains[k], q
        if where < 0:
            break
        taken[where] += 1
    K = taken.sum()
    chosen, by, k = np.empty((K, 2), np.int64), np.empty(K), 0
    for q in range(groups):
        for t in range(starts[q], starts[q] + taken[q]):
            chosen[k, 0], chosen[k, 1], by[k] = pairs[t, 0], pairs[t, 1], angles[t]
            k += 1
    c, s = cosines(by)
    rows_to_basis(A, chosen, c, s)
    turned = A.T.copy()
    rows_to_basis(turned, chosen, c, s)
    copy_rows(turned, A)
    return chosen, by


@inner
def _offer(
    A: np.ndarray,
    members: np.ndarray,
    target: int,
    floor: float,
    least: float,
    pairs: np.ndarray,
    angles: np.ndarray,
    gains: np.ndarray,
) -> int:
    """Classical Jacobi on the block of ``members``: fill in rotations and what each gains; returns how many."""
    m = len(members)
    B = np.empty((m, m))
    for i in range(m):
        for j in range(m):
            B[i, j] = A[members[i], members[j]]
    most = min(TURNS * m, len(gains))
    for k in range(most):
        best, p, q = least, -1, -1
        for i in range(m):
            for j in range(i + 1, m):
                w = B[i, j] * B[i, j]
                if target != MATRIX:
                    w /= max(B[i, i], floor) * max(B[j, j], floor)
                if w > best:
                    best, p, q = w, i, j
        if p < 0:
            return k
        angle = jacobi_angle(B[p, p], B[p, q], B[q, q])
        c, s = np.cos(angle), np.sin(angle)
        for i in range(m):
            a, b = B[i, p], B[i, q]
            B[i, p], B[i, q] = c * a + s * b, c * b - s * a
        for i in range(m):
            a, b = B[p, i], B[q, i]
            B[p, i], B[q, i] = c * a + s * b, c * b - s * a
        pairs[k, 0], pairs[k, 1], angles[k], gains[k] = members[p], members[q], angle, best
    return most
