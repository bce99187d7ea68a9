"""Which rotations to add to a product, and which to take away: the compiled parts of the data-chosen fit."""

from __future__ import annotations

import numpy as np

from swallowtail.fitting.core.product import MATRIX, compiled, half_product, longer, rotate_rows


@compiled
def jacobi_angle(a: float, b: float, d: float) -> float:
    """The θ in [−45°, 45°] for which Gᵀ [[a, b], [b, d]] G is diagonal, G = [[c, −s], [s, c]]."""
    t = 0.5 * np.arctan2(2.0 * b, a - d)
    if t > 0.25 * np.pi:
        return t - 0.5 * np.pi
    if t < -0.25 * np.pi:
        return t + 0.5 * np.pi
    return t


@compiled
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


@compiled
def _choose_layer(
    A: np.ndarray,
    weight: np.ndarray,
    partner: np.ndarray,
    threshold: float,
    limit: int,
    pairs: np.ndarray,
    angles: np.ndarray,
    c: np.ndarray,
    s: np.ndarray,
    k: int,
    mate: np.ndarray,
) -> int:
    """Take disjoint pairs (i, partner of i) in decreasing weight, from place k on; return the place after."""
    first = k
    mate[:] = -1
    order = np.argsort(-weight)
    least = threshold * weight[order[0]]
    for i in order:
        if weight[i] < least or k - first >= limit:
            break
        j = partner[i]
        if mate[i] >= 0 or mate[j] >= 0:
            continue
        mate[i], mate[j] = j, i
        lo, hi = min(i, j), max(i, j)
        pairs[k, 0], pairs[k, 1] = lo, hi
        angles[k] = jacobi_angle(A[lo, lo], A[lo, hi], A[hi, hi])
        c[k], s[k] = np.cos(angles[k]), np.sin(angles[k])
        k += 1
    return k


@compiled
def _rotate_columns(
    A: np.ndarray,
    r: int,
    pairs: np.ndarray,
    c: np.ndarray,
    s: np.ndarray,
    q: np.ndarray,
    best: float,
    where: int,
) -> tuple[int, float]:
    """Row r of A times the layer; the best weight / q_r among ``best`` and the changed entries, and where."""
    for k in range(len(pairs)):
        i, j = pairs[k, 0], pairs[k, 1]
        a, b = A[r, i], A[r, j]
        x, y = c[k] * a + s[k] * b, c[k] * b - s[k] * a
        A[r, i], A[r, j] = x, y
        if x * x * q[i] > best:
            best, where = x * x * q[i], i
        if y * y * q[j] > best:
            best, where = y * y * q[j], j
    return where, best


@compiled
def parallel_jacobi(
    A: np.ndarray,
    n_rotations: int,
    threshold: float,
    target: int,
    floor: float,
    least_weight: float,
    enough: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Parallel truncated Jacobi: A ← QᵀAQ in place, for ``n_rotations`` rotations chosen greedily.

    Each layer takes, of the pairs (i, argmax_j w_ij), disjoint ones in decreasing order as long as
    w ≥ threshold · max w, and rotates each by its exact Jacobi angle. The weight is a_ij² (matrix: half of
    what the rotation gains) or a_ij²/(a_ii a_jj) (likelihood). Row maxima are kept from layer to layer: a
    row is searched anew only if it was rotated or its best partner was, so a layer of m pairs costs O(nm),
    not O(n²).

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
    pairs, angles, c, s = np.zeros((room, 2), np.int64), np.zeros(room), np.zeros(room), np.zeros(room)
    weight, partner, q = np.zeros(n), np.zeros(n, np.int64), np.ones(n)
    mate = np.empty(n, np.int64)
    if target != MATRIX:
        for i in range(n):
            q[i] = 1.0 / max(A[i, i], floor)
    for i in range(n):
        partner[i], weight[i] = _row_best(A, i, q, target)
    k = 0
    while k < n_rotations and np.max(weight) > least_weight:
        lo, room = k, k + min(n_rotations - k, n // 2)
        pairs, angles, c, s = longer(pairs, room), longer(angles, room), longer(c, room), longer(s, room)
        k = _choose_layer(A, weight, partner, threshold, n_rotations - k, pairs, angles, c, s, k, mate)
        if target != MATRIX:
            for p in range(lo, k):  # the new variances, a_ii + a_ij tan θ and a_jj − a_ij tan θ
                i, j = pairs[p, 0], pairs[p, 1]
                change = A[i, j] * s[p] / c[p]
                q[i], q[j] = 1.0 / max(A[i, i] + change, floor), 1.0 / max(A[j, j] - change, floor)
        rotate_rows(A, pairs[lo:k], c[lo:k], s[lo:k], True)
        for r in range(n):  # one visit per row: a large A does not fit the cache
            partner_r, weight_r = _rotate_columns(
                A, r, pairs[lo:k], c[lo:k], s[lo:k], q, weight[r] / q[r], partner[r]
            )
            if mate[r] >= 0:
                A[r, mate[r]] = 0.0
            if mate[r] >= 0 or mate[partner[r]] >= 0:
                partner[r], weight[r] = _row_best(A, r, q, target)
            else:
                partner[r], weight[r] = partner_r, weight_r * q[r]
        if 0 < enough <= k:
            break
    return pairs[:k], angles[:k]


@compiled
def removal_losses(
    tiles: np.ndarray, pairs: np.ndarray, angles: np.ndarray, target: int, floor: float
) -> np.ndarray:
    """How much Σ f(dₖ) falls if a rotation is taken out, for each rotation: exact, all in O(nK).

    Taking G out of Q = A·G·B changes Q by a matrix of rank two, A[:, ij] (1 − G) B[ij, :]. Let V = AᵀHQ,
    S = B, m = (1 − G)·S[ij, k], and let C = (AᵀHA)[ij, ij] = V[ij, :]·(G·S[ij, :])ᵀ be a 2×2 block. Then dₖ
    becomes dₖ + 2 mᵀV[ij, k] + mᵀCm. V and S are walked back through the rotations as in the gradient.

    Returns:
        shape (K,); positive where the rotation helps.
    """
    T, n, w = tiles.shape
    K = len(pairs)
    c, s = np.cos(angles), np.sin(angles)
    V = np.empty((n, n))
    half = half_product(half_product(tiles, pairs, c, s), pairs, c, s)
    for t in range(T):
        for i in range(n):
            for k in range(t * w, min(t * w + w, n)):
                V[i, k] = half[t, i, k - t * w]
    S, d, loss = np.eye(n), np.empty(n), np.empty(K)
    for k in range(n):
        d[k] = V[k, k]
    for q in range(K - 1, -1, -1):
        i, j, cq, sq = pairs[q, 0], pairs[q, 1], c[q], s[q]
        cii, cij, cjj = 0.0, 0.0, 0.0
        for k in range(n):
            a, b, x, y = V[i, k], V[j, k], S[i, k], S[j, k]
            V[i, k], V[j, k] = cq * a - sq * b, sq * a + cq * b  # now AᵀHQ without G
            cii += V[i, k] * (cq * x - sq * y)
            cij += V[i, k] * (sq * x + cq * y)
            cjj += V[j, k] * (sq * x + cq * y)
        total = 0.0
        for k in range(n):
            x, y = S[i, k], S[j, k]
            gx, gy = cq * x - sq * y, sq * x + cq * y
            u, v = x - gx, y - gy
            new = d[k] + 2.0 * (u * V[i, k] + v * V[j, k]) + u * u * cii + 2.0 * u * v * cij + v * v * cjj
            if target == MATRIX:
                total += d[k] * d[k] - new * new
            else:
                total += np.log(max(new, floor)) - np.log(max(d[k], floor))
            S[i, k], S[j, k] = gx, gy
        loss[q] = total
    return loss
