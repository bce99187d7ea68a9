"""Rotations to put anywhere into a product, by what they promise to second order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from swallowtail.fitting.core.groups import join, may_meet
from swallowtail.fitting.core.product import MATRIX, compiled, rotate_rows

LONGEST_TURN = 0.5  # radians: beyond it a second-order promise is worth little
CANDIDATES = 4  # partners per row whose curvature is looked at


class RowSums(NamedTuple):
    """Sums that the curvatures of many pairs share, shape (n,) each."""

    slope: np.ndarray  # f′(dₖ)
    bend: np.ndarray  # f″(dₖ)
    t: np.ndarray  # Σₖ f′(dₖ) B_ik W_ik
    e: np.ndarray  # Σₖ f′(dₖ) B_ik²


@compiled
def _curvature(M: np.ndarray, B: np.ndarray, W: np.ndarray, rows: RowSums, i: int, j: int) -> float:
    """The second derivative of Σ f(dₖ) by a turn of i and j; O(n)."""
    steep, cross = 0.0, 0.0
    for k in range(len(M)):
        rate = B[i, k] * W[j, k] - B[j, k] * W[i, k]
        steep += rows.bend[k] * rate * rate
        cross += rows.slope[k] * B[i, k] * B[j, k]
    return float(
        4.0 * steep
        - 2.0 * (rows.t[i] + rows.t[j])
        + 2.0 * (M[i, i] * rows.e[j] + M[j, j] * rows.e[i] - 2.0 * M[i, j] * cross)
    )


@compiled
def _newton_turns(
    M: np.ndarray,
    B: np.ndarray,
    target: int,
    floor: float,
    label: np.ndarray,
    count: np.ndarray,
    size: int,
    weight: np.ndarray,
    partner: np.ndarray,
    turn: np.ndarray,
) -> None:
    """For each i the j whose rotation, put between A and B of Q = A·B, promises most: −g²/h, and −g/h.

    With W = M·B, J a quarter turn of coordinates i, j and Σ f(dₖ) to be made large, a small turn changes dₖ at
    the rate 2(B_ik W_jk − B_jk W_ik). A product of n × n matrices gives the gradient g of all pairs together. The
    curvature h takes O(n) per pair. It is taken for the `CANDIDATES` best of each row, judged by the part of it that
    is known for all.

    Args:
        M, B: AᵀHA and B, shape (n, n).
        target, floor: as in `core.growth.parallel_jacobi`.
        label, count, size: as in `newton_rotations`.
        weight, partner, turn: the answer, shape (n,) each.
    """
    n = len(M)
    # Single precision is enough to choose by, and twice as fast.
    W = np.dot(M.astype(np.float32), B.astype(np.float32))
    rows = RowSums(np.empty(n), np.empty(n), np.zeros(n), np.zeros(n))
    d = np.zeros(n)
    for i in range(n):
        for k in range(n):
            d[k] += B[i, k] * W[i, k]
    for k in range(n):
        if target == MATRIX:
            rows.slope[k], rows.bend[k] = 2.0 * d[k], 2.0
        else:
            rows.slope[k], rows.bend[k] = (-1.0 / d[k], 1.0 / (d[k] * d[k])) if d[k] > floor else (0.0, 0.0)
    for i in range(n):
        for k in range(n):
            rows.t[i] += rows.slope[k] * B[i, k] * W[i, k]
            rows.e[i] += rows.slope[k] * B[i, k] * B[i, k]
    first = np.dot((B * rows.slope).astype(np.float32), W.T)
    best, score = np.empty(CANDIDATES, np.int64), np.empty(CANDIDATES)
    for i in range(n):
        weight[i], partner[i], turn[i] = -1.0, 0, 0.0
        score[:] = -1.0
        for j in range(n):
            if j == i or not may_meet(label, count, i, j, size):
                continue
            g = 2.0 * (first[i, j] - first[j, i])
            h = M[i, i] * rows.e[j] + M[j, j] * rows.e[i] - rows.t[i] - rows.t[j]
            promise = g * g / (abs(2.0 * h) + 1e-300)
            if promise > score[-1]:
                place = CANDIDATES - 1
                while place > 0 and promise > score[place - 1]:
                    score[place], best[place] = score[place - 1], best[place - 1]
                    place -= 1
                score[place], best[place] = promise, j
        for q in range(CANDIDATES):
            if score[q] <= 0.0:
                break
            j = best[q]
            g = 2.0 * (first[i, j] - first[j, i])
            steepness = abs(_curvature(M, B, W, rows, i, j)) + 1e-300
            if g * g > weight[i] * steepness:
                weight[i], partner[i], turn[i] = g * g / steepness, j, g / steepness


@compiled
def newton_rotations(
    M: np.ndarray,
    B: np.ndarray,
    n_rotations: int,
    layers: int,
    threshold: float,
    target: int,
    floor: float,
    label: np.ndarray,
    count: np.ndarray,
    size: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Rotations to put between A and B of Q = A·B, layer by layer, by their promise to second order.

    What `core.growth.parallel_jacobi` is at the end of Q, where B = 1 and the gain is known exactly; O(n³) per layer.

    Args:
        M, B: AᵀHA and B, shape (n, n); M is overwritten.
        layers: at most this many.
        n_rotations, threshold, target, floor: as in `core.growth.parallel_jacobi`.
        label, count, size: the group of each coordinate, how many each group has, and the most it may have;
            shape (n,), (n,). Groups that a rotation brings together are united; `core.groups.together` allows all.

    Returns:
        pairs (K, 2) and angles (K,), K ≤ n_rotations.
    """
    n = len(M)
    room = min(n_rotations, layers * (n // 2))
    pairs, angles = np.zeros((room, 2), np.int64), np.zeros(room)
    weight, partner, turn = np.empty(n), np.empty(n, np.int64), np.empty(n)
    k = 0
    for _ in range(layers):
        _newton_turns(M, B, target, floor, label, count, size, weight, partner, turn)
        lo, free, order = k, np.ones(n, np.bool_), np.argsort(-weight)
        least = threshold * weight[order[0]]
        for i in order:
            j = partner[i]
            if k == n_rotations or weight[i] < least or weight[i] <= 0.0:
                break
            if free[i] and free[j] and join(label, count, i, j, size):
                free[i] = free[j] = False
                pairs[k, 0], pairs[k, 1] = i, j
                angles[k] = max(-LONGEST_TURN, min(LONGEST_TURN, turn[i]))
                k += 1
        if k == lo:
            break
        c, s = np.cos(angles[lo:k]), np.sin(angles[lo:k])
        rotate_rows(M, pairs[lo:k], c, s, True)
        M = M.T.copy()
        rotate_rows(M, pairs[lo:k], c, s, True)
    return pairs[:k], angles[:k]
