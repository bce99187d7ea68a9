"""Rotations to put anywhere into a product, by what they promise to second order."""

from __future__ import annotations

import numpy as np

from swallowtail.fitting.core.groups import join, may_meet
from swallowtail.fitting.core.product import MATRIX, compiled, rotate_rows

LONGEST_TURN = 0.5  # radians: beyond it a second-order promise is worth little


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
    the rate 2(B_ik W_jk − B_jk W_ik), and so on for the second derivative: products of n × n matrices give the
    gradient g and the curvature h for all pairs together.

    Args:
        M, B: AᵀHA and B, shape (n, n).
        target, floor: as in `core.growth.parallel_jacobi`.
        label, count, size: as in `newton_rotations`.
        weight, partner, turn: the answer, shape (n,) each.
    """
    n = len(M)
    W = np.dot(M, B)
    slope, bend = np.empty(n), np.empty(n)  # f′(dₖ) and f″(dₖ)
    for k in range(n):
        d = 0.0
        for i in range(n):
            d += B[i, k] * W[i, k]
        if target == MATRIX:
            slope[k], bend[k] = 2.0 * d, 2.0
        else:
            slope[k], bend[k] = (-1.0 / d, 1.0 / (d * d)) if d > floor else (0.0, 0.0)
    S, BW = B * slope, B * W
    first = np.dot(S, W.T)
    squares, mixed = np.dot(B * B * bend, (W * W).T), np.dot(BW * bend, BW.T)
    E, t = np.dot(S, B.T), np.sum(S * W, axis=1)
    for i in range(n):
        weight[i], partner[i], turn[i] = -1.0, 0, 0.0
        for j in range(n):
            g = 2.0 * (first[i, j] - first[j, i])
            h = 4.0 * (squares[i, j] + squares[j, i] - 2.0 * mixed[i, j]) - 2.0 * (t[i] + t[j])
            h += 2.0 * (M[i, i] * E[j, j] + M[j, j] * E[i, i] - 2.0 * M[i, j] * E[i, j])
            steepness = abs(h) + 1e-300
            if j != i and g * g > weight[i] * steepness and may_meet(label, count, i, j, size):
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
