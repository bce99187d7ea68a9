"""Rotations to put anywhere into a product, by what they promise to second order."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from swallowtail.fitting.core.groups import Groups, join, may_meet
from swallowtail.fitting.core.product import MATRIX, compiled, inlined, rotate_rows

LONGEST_TURN = 0.5  # radians: beyond it a second-order promise is worth little
PIECE = 4e9  # multiply-adds of a product between two reports: about 0.1 s
CANDIDATES = 4  # partners per row whose curvature is looked at


class RowSums(NamedTuple):
    """Sums that the curvatures of many pairs share, shape (n,) each."""

    slope: np.ndarray  # f′(dₖ)
    bend: np.ndarray  # f″(dₖ)
    t: np.ndarray  # Σₖ f′(dₖ) B_ik W_ik
    e: np.ndarray  # Σₖ f′(dₖ) B_ik²


@inlined
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


def _row_sums(B: np.ndarray, W: np.ndarray, target: int, floor: float) -> RowSums:
    """The sums for W = M·B."""
    BW = B * W
    d = BW.sum(axis=0)
    if target == MATRIX:
        slope, bend = 2.0 * d, np.full(len(d), 2.0)
    else:
        inverse = np.divide(1.0, d, out=np.zeros(len(d)), where=d > floor)
        slope, bend = -inverse, inverse * inverse
    return RowSums(slope, bend, BW @ slope, (B * B) @ slope)


@compiled
def _turns(
    M: np.ndarray,
    B: np.ndarray,
    W: np.ndarray,
    first: np.ndarray,
    rows: RowSums,
    label: np.ndarray,
    count: np.ndarray,
    size: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each i the j whose rotation, put between A and B of Q = A·B, promises most: −g²/h, j, and −g/h.

    With W = M·B, J a quarter turn of coordinates i, j and Σ f(dₖ) to be made large, a small turn changes dₖ at
    the rate 2(B_ik W_jk − B_jk W_ik). A product of n × n matrices, ``first``, gives the gradient g of all pairs.
    The curvature h takes O(n) per pair. It is taken for the `CANDIDATES` best of each row, judged by the part of it
    that is known for all.
    """
    n = len(M)
    weight, partner, turn = np.empty(n), np.empty(n, np.int64), np.empty(n)
    best, score = np.empty(CANDIDATES, np.int64), np.empty(CANDIDATES)
    for i in range(n):
        weight[i], partner[i], turn[i] = -1.0, 0, 0.0
        for q in range(CANDIDATES):
            score[q] = -1.0
        for j in range(n):
            if j == i or not may_meet(label, count, i, j, size):
                continue
            g = 2.0 * (first[i, j] - first[j, i])
            h = M[i, i] * rows.e[j] + M[j, j] * rows.e[i] - rows.t[i] - rows.t[j]
            promise = g * g / (abs(2.0 * h) + 1e-300)
            if promise > score[CANDIDATES - 1]:
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
    return weight, partner, turn


@compiled
def take(
    order: np.ndarray,
    weight: np.ndarray,
    partner: np.ndarray,
    least: float,
    most: int,
    label: np.ndarray,
    count: np.ndarray,
    size: int,
) -> np.ndarray:  # shape: (m,)
    """The rows, in ``order``, whose pairs make a layer: disjoint, of at least the ``least`` weight, in small groups.

    At most ``most``; labels and counts of the groups are changed.
    """
    free, taken, m = np.ones(len(order), np.bool_), np.empty(len(order), np.int64), 0
    for i in order:
        j = partner[i]
        if m == most or weight[i] < least or weight[i] <= 0.0:
            break
        if free[i] and free[j] and join(label, count, i, j, size):
            free[i] = free[j] = False
            taken[m] = i
            m += 1
    return taken[:m]


def _product(A: np.ndarray, B: np.ndarray, report: Callable[[], None] | None) -> np.ndarray:
    """A·B, some rows at a time if somebody wants to interrupt it."""
    if report is None:
        return np.asarray(A @ B)
    out, step = np.empty((len(A), B.shape[1]), A.dtype), max(1, int(PIECE / B.size))
    for row in range(0, len(A), step):
        report()
        np.matmul(A[row : row + step], B, out=out[row : row + step])
    return out


def newton_rotations(
    M: np.ndarray,
    B: np.ndarray,
    n_rotations: int,
    layers: int,
    threshold: float,
    target: int,
    floor: float,
    groups: Groups,
    report: Callable[[], None] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Rotations to put between A and B of Q = A·B, layer by layer, by their promise to second order.

    What `core.growth.parallel_jacobi` is at the end of Q, where B = 1 and the gain is known exactly; O(n³) per layer.

    Args:
        M, B: AᵀHA and B, shape (n, n); M is overwritten.
        layers: at most this many.
        n_rotations, threshold, target, floor: as in `core.growth.parallel_jacobi`.
        groups: that rotations keep to; they are changed. `core.groups.together` allows all.
        report: called every now and then; it may raise to interrupt.

    Returns:
        pairs (K, 2) and angles (K,), K ≤ n_rotations.
    """
    pairs, angles, left = [np.zeros((0, 2), np.int64)], [np.zeros(0)], n_rotations
    single = B.astype(np.float32)  # enough to choose by, and twice as fast
    for _ in range(layers):
        W = _product(M.astype(np.float32), single, report)
        rows = _row_sums(B, W, target, floor)
        first = _product((B * rows.slope).astype(np.float32), W.T, report)
        weight, partner, turn = _turns(M, B, W, first, rows, *groups)
        least = threshold * float(weight.max())
        taken = take(np.argsort(-weight), weight, partner, least, left, *groups)
        if not len(taken):
            break
        pairs.append(np.stack([taken, partner[taken]], axis=1))
        angles.append(np.clip(turn[taken], -LONGEST_TURN, LONGEST_TURN))
        left -= len(taken)
        c, s = np.cos(angles[-1]), np.sin(angles[-1])
        rotate_rows(M, pairs[-1], c, s, True)
        M = M.T.copy()
        rotate_rows(M, pairs[-1], c, s, True)
    return np.concatenate(pairs), np.concatenate(angles)
