"""Which rotations to take out of a product: what each is worth, exactly."""

from __future__ import annotations

import math

import numpy as np

from swallowtail.fitting.core.product import MATRIX, compiled, copy_rows, half_product, inlined


@inlined
def _block(V: np.ndarray, S: np.ndarray, i: int, j: int, c: float, s: float, C: np.ndarray) -> None:
    """Walk rows i and j back through a rotation; add their part of C: c_ii, c_ij, c_jj."""
    cii, cij, cjj = 0.0, 0.0, 0.0
    for r in range(V.shape[1]):
        a, b, x, y = V[i, r], V[j, r], S[i, r], S[j, r]
        a, b, x, y = c * a - s * b, s * a + c * b, c * x - s * y, s * x + c * y
        V[i, r], V[j, r], S[i, r], S[j, r] = a, b, x, y
        cii += a * x
        cij += a * y
        cjj += b * y
    C[0] += cii
    C[1] += cij
    C[2] += cjj


@inlined
def _loss(
    V: np.ndarray,
    S: np.ndarray,
    d: np.ndarray,
    i: int,
    j: int,
    c: float,
    s: float,
    C: np.ndarray,
    target: int,
    floor: float,
) -> float:
    """Walk rows i and j back through a rotation; what taking it out costs in these columns."""
    cii, cij, cjj, total = C[0], C[1], C[2], 0.0
    if target == MATRIX:
        for r in range(V.shape[1]):
            a, b, x, y = V[i, r], V[j, r], S[i, r], S[j, r]
            a, b, gx, gy = c * a - s * b, s * a + c * b, c * x - s * y, s * x + c * y
            V[i, r], V[j, r], S[i, r], S[j, r] = a, b, gx, gy
            u, v = x - gx, y - gy
            change = 2.0 * (u * a + v * b) + u * u * cii + 2.0 * u * v * cij + v * v * cjj
            total -= change * (2.0 * d[r] + change)
        return total
    for r in range(V.shape[1]):
        a, b, x, y = V[i, r], V[j, r], S[i, r], S[j, r]
        a, b, gx, gy = c * a - s * b, s * a + c * b, c * x - s * y, s * x + c * y
        V[i, r], V[j, r], S[i, r], S[j, r] = a, b, gx, gy
        u, v = x - gx, y - gy
        new = d[r] + 2.0 * (u * a + v * b) + u * u * cii + 2.0 * u * v * cij + v * v * cjj
        total += math.log(max(new, floor)) - math.log(max(d[r], floor))
    return total


def removal_losses(
    tiles: np.ndarray, pairs: np.ndarray, angles: np.ndarray, target: int, floor: float
) -> np.ndarray:
    """How much Σ f(dₖ) falls if a rotation is taken out, for each rotation: exact, all in O(nK).

    Taking G out of Q = A·G·B changes Q by a matrix of rank two, A[:, ij] (1 − G) B[ij, :]. Let V = AᵀHQ,
    S = B, m = (1 − G)·S[ij, k], and let C = (AᵀHA)[ij, ij] = V[ij, :]·(G·S[ij, :])ᵀ be a 2×2 block. Then dₖ
    becomes dₖ + 2 mᵀV[ij, k] + mᵀCm. V and S are walked back through the rotations as in the gradient, a tile of
    columns at a time, twice: C needs all columns, and the loss needs C.

    Returns:
        shape (K,); positive where the rotation helps.
    """
    c, s = np.cos(angles), np.sin(angles)
    whole = half_product(half_product(tiles, pairs, c, s), pairs, c, s)
    return _losses(whole, pairs, c, s, target, floor)


@compiled
def _losses(
    whole: np.ndarray, pairs: np.ndarray, c: np.ndarray, s: np.ndarray, target: int, floor: float
) -> np.ndarray:
    """The same from the tiles of QᵀHQ."""
    T, n, w = whole.shape
    K = len(pairs)
    C, loss, d = np.zeros((K, 3)), np.zeros(K), np.zeros(w)
    V, S, awake = np.empty((n, w)), np.empty((n, w)), np.empty(n, np.bool_)
    for last in (False, True):
        for t in range(T):
            copy_rows(whole[t], V)
            S[:] = 0.0
            awake[:] = False
            d[:] = 0.0
            for k in range(t * w, min(t * w + w, n)):
                d[k - t * w], S[k, k - t * w], awake[k] = V[k, k - t * w], 1.0, True
            for q in range(K - 1, -1, -1):
                i, j, cq, sq = pairs[q, 0], pairs[q, 1], c[q], s[q]
                # S is zero there: nothing in this tile depends on the rotation.
                if not (awake[i] or awake[j]):
                    for r in range(w):
                        a, b = V[i, r], V[j, r]
                        V[i, r], V[j, r] = cq * a - sq * b, sq * a + cq * b
                    continue
                awake[i] = awake[j] = True
                if last:
                    loss[q] += _loss(V, S, d, i, j, cq, sq, C[q], target, floor)
                else:
                    _block(V, S, i, j, cq, sq, C[q])
    return loss
