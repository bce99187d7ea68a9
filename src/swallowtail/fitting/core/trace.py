"""How well rotations align with an orthogonal matrix: tr(QᵀR), its gradient, exact updates, greedy growth.

‖R − Q‖²_F = 2n − 2 tr(QᵀR) for orthogonal R, so the best Q maximises the trace of M = QᵀR. A rotation product
is given flat, as in `core.product`: ``pairs`` (K, 2) and ``angles`` (K,), Q₁ first. Split Q = A·G·B around one
rotation G on (i, j) and let C = AᵀRBᵀ: the trace is tr(GᵀC), whose part that depends on G's angle θ is

    (c_ii + c_jj) cos θ + (c_ji − c_ij) sin θ,    largest at θ = atan2(c_ji − c_ij, c_ii + c_jj).
"""

from __future__ import annotations

import numpy as np

from swallowtail.fitting.core.product import (
    compiled,
    copy_rows,
    cosines,
    falling_order,
    inner,
    longer,
    rows_to_basis,
)

SWAP = 1e-6  # how far the entries of a swap may be from 1


@compiled
def trace_parts(
    tiles: np.ndarray, pairs: np.ndarray, angles: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """tr(QᵀR), its gradient w, and p, such that turning rotation k by φ more makes the trace change by
    p_k (cos φ − 1) + w_k sin φ; O(nK).

    Column k of M = QᵀR is all that m_kk needs; so a tile of columns goes forward through all rotations and
    straight back while it is in the cache. On the way back V = (AG)ᵀR and U = B are at hand, and with a
    rotation's rows of both, p = UᵢVᵢ + UⱼVⱼ and w = UᵢVⱼ − UⱼVᵢ. U starts as the identity: a rotation whose
    two rows of U are still zero is skipped.

    Args:
        tiles: `core.product.tile` of R (n, n).
        pairs: shape (K, 2), Q₁ first.
        angles: shape (K,).

    Returns:
        The trace, w (K,) and p (K,).
    """
    T, n, width = tiles.shape
    K = len(pairs)
    c, s = cosines(angles)
    V, U, awake = np.empty((n, width)), np.empty((n, width)), np.empty(n, np.bool_)
    w, p, total = np.zeros(K), np.zeros(K), 0.0
    for t in range(T):
        copy_rows(tiles[t], V)
        rows_to_basis(V, pairs, c, s)
        U[:] = 0.0
        awake[:] = False
        for k in range(t * width, min(t * width + width, n)):
            total += V[k, k - t * width]
            U[k, k - t * width] = 1.0
            awake[k] = True
        for q in range(K - 1, -1, -1):
            i, j, cq, sq = pairs[q, 0], pairs[q, 1], c[q], s[q]
            if awake[i] or awake[j]:
                awake[i] = awake[j] = True
                inner, wedge = 0.0, 0.0
                for r in range(width):
                    a, b, x, y = V[i, r], V[j, r], U[i, r], U[j, r]
                    inner += x * a + y * b
                    wedge += x * b - y * a
                    V[i, r] = cq * a - sq * b
                    V[j, r] = sq * a + cq * b
                    U[i, r] = cq * x - sq * y
                    U[j, r] = sq * x + cq * y
                p[q] += inner
                w[q] += wedge
            else:
                for r in range(width):
                    a, b = V[i, r], V[j, r]
                    V[i, r] = cq * a - sq * b
                    V[j, r] = sq * a + cq * b
    return total, w, p


@compiled
def sweep_layers(R: np.ndarray, pairs: np.ndarray, offsets: np.ndarray, angles: np.ndarray) -> float:
    """Give each layer in turn, last to first, its best angles with all others fixed; in place. O(nK).

    C = AᵀRBᵀ is carried from layer to layer: A loses the layer, which rotates rows of C back, and B gains it
    with its new angles, which rotates columns.

    Returns:
        The trace with the new angles; no sweep lowers it.
    """
    n, L = R.shape[0], len(offsets) - 1
    C, (c, s) = R.copy(), cosines(angles)
    rows_to_basis(C, pairs, c, s)
    for layer in range(L - 1, -1, -1):
        lo, hi = offsets[layer], offsets[layer + 1]
        for k in range(lo, hi):
            i, j = pairs[k, 0], pairs[k, 1]
            more = np.arctan2(C[j, i] - C[i, j], C[i, i] + C[j, j])
            for r in range(n):
                a, b = C[i, r], C[j, r]
                C[i, r], C[j, r] = c[k] * a - s[k] * b, s[k] * a + c[k] * b
            angles[k] += more
            c[k], s[k] = np.cos(angles[k]), np.sin(angles[k])
        for r in range(n):
            for k in range(lo, hi):
                i, j = pairs[k, 0], pairs[k, 1]
                a, b = C[r, i], C[r, j]
                C[r, i], C[r, j] = c[k] * a - s[k] * b, s[k] * a + c[k] * b
    total = 0.0
    for i in range(n):
        total += C[i, i]
    return total


@inner
def _gain(a: float, b: float) -> float:
    """√(a² + b²) − a without cancellation."""
    root = np.sqrt(a * a + b * b)
    return b * b / (root + a) if a > 0.0 else root - a


@inner
def _find_partners(M: np.ndarray, stale: np.ndarray, gain: np.ndarray, partner: np.ndarray) -> None:
    """For each stale i the j ≠ i whose rotation raises the trace of M most, and by how much.

    Rows that are not stale keep their partner unless a stale row is a better one.
    """
    n = len(M)
    for i in range(n):
        if stale[i]:
            gain[i] = -1.0
    for i in range(n):
        if not stale[i]:
            continue
        for j in range(n):
            if j != i:
                g = _gain(M[i, i] + M[j, j], M[j, i] - M[i, j])
                if g > gain[i]:
                    gain[i], partner[i] = g, j
                if g > gain[j]:
                    gain[j], partner[j] = g, i


@inner
def _two_swaps(M: np.ndarray) -> tuple[int, int]:
    """A coordinate of one swap and one of another, where M is a swap ±(0 1; 1 0); −1 for none."""
    n, first, other = len(M), -1, -1
    for i in range(n):
        for j in range(n):
            swapped = i != j and M[i, j] * M[j, i] > 1.0 - SWAP
            if swapped and first < 0:
                first, other = i, j
            elif swapped and i != other:
                return first, i
    return first, -1


@compiled
def grow_aligned(
    M: np.ndarray, n_rotations: int, threshold: float, least: float, enough: int
) -> tuple[np.ndarray, np.ndarray]:
    """Append rotations to Q that raise tr(QᵀR) most: M ← GᵀM in place, a layer of disjoint pairs at a time.

    A rotation on (i, j) can raise the trace by √((m_ii + m_jj)² + (m_ji − m_ij)²) − (m_ii + m_jj). Each layer
    takes, of the pairs (i, best partner of i), disjoint ones in decreasing gain as long as it is at least
    ``threshold`` of the largest. A pair's gain changes only if one of its rows is rotated, so a layer of m pairs
    costs O(nm), not O(n²).

    What is left of a permutation, with signs or without, may be swaps, ±(0 1; 1 0) twice or more often, which no single
    rotation improves. Then a quarter turn that joins two of them, at no loss, is taken first.

    Args:
        M: QᵀR, shape (n, n); overwritten.
        n_rotations: at most this many.
        threshold: in [0, 1]; 1 takes one at a time, up to ties.
        least: stop when no pair gains more.
        enough: stop behind a whole layer once there are this many; 0: go on.

    Returns:
        pairs (K, 2) and angles (K,), K ≤ n_rotations.
    """
    n = len(M)
    room = min(n_rotations, 4 * n)  # for a start: a budget may be far larger than what M can use
    pairs, angles = np.zeros((room, 2), np.int64), np.zeros(room)
    gain, partner = np.empty(n), np.zeros(n, np.int64)
    taken, stale = np.empty(n, np.bool_), np.ones(n, np.bool_)
    k = 0
    while k < n_rotations:
        _find_partners(M, stale, gain, partner)
        order = falling_order(gain)
        lowest, lo, room = threshold * gain[order[0]], k, k + min(n_rotations - k, n // 2)
        pairs, angles = longer(pairs, angles, room)
        taken[:] = False
        if not gain[order[0]] > least:
            first, second = _two_swaps(M)
            if second < 0 or k + 1 == n_rotations:  # alone, the turn is worth nothing
                break
            taken[first] = taken[second] = True
            pairs[k, 0], pairs[k, 1], angles[k] = first, second, 0.5 * np.pi
            k, lowest = k + 1, np.inf
        for i in order:
            j = partner[i]
            if gain[i] < lowest or k == n_rotations:
                break
            if taken[i] or taken[j]:
                continue
            taken[i] = taken[j] = True
            first, second = min(i, j), max(i, j)
            pairs[k, 0], pairs[k, 1] = first, second
            angles[k] = np.arctan2(M[second, first] - M[first, second], M[first, first] + M[second, second])
            k += 1
        c, s = cosines(angles[lo:k])
        rows_to_basis(M, pairs[lo:k], c, s)
        for i in range(n):
            stale[i] = taken[i] or taken[partner[i]]
        if 0 < enough <= k:
            break
    return pairs[:k], angles[:k]
