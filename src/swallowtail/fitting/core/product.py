"""Conjugating a dense symmetric matrix by rotations: A = QᵀHQ, its objectives and their gradients.

A rotation product is given flat, as `Wiring` numbers it: ``pairs`` (K, 2) int64 and ``angles`` (K,), Q₁
first. Rotations of one layer act on disjoint coordinates, so "layer by layer" and "one rotation after
another" are the same thing, and none of these functions needs to know where a layer ends.

With D eliminated, both targets depend on Q through d = diag(QᵀHQ) alone:

    matrix       minimise ‖H − QDQᵀ‖²_F / ‖H‖²_F = 1 − Σ dᵢ² / ‖H‖²_F   (D = diag d is best)
    likelihood   minimise Σ log dᵢ / n                                   (the same D is best)
"""

from __future__ import annotations

import numpy as np

from swallowtail.kernels.cpu.jit import njit
from swallowtail.wiring import Butterfly, Pairs, Wiring

MATRIX, LIKELIHOOD, ROTATION = 0, 1, 2  # the last is the target of `core.trace`
TARGETS = {"matrix": MATRIX, "likelihood": LIKELIHOOD}
WIDTH = 64  # columns a tile: two (n, 64) float64 tiles stay in a 1 MiB cache up to n = 1024
FLOOR = 1e-12  # likelihood: variances below this fraction of the mean count as it, so that log is finite

# One way to compile for the whole core: sums may be reordered, no NaN is expected, no lock is held.
compiled = njit(cache=True, nogil=True, fastmath=True, error_model="numpy")


def flat_pairs(wiring: Wiring) -> np.ndarray:  # shape: (K, 2)
    """The pairs of all layers, Q₁ first."""
    if isinstance(wiring, Pairs):
        return wiring.pairs
    return np.concatenate([*wiring.layers(), np.zeros((0, 2), np.int64)])


def permuted(wiring: Butterfly, order: np.ndarray | None) -> Wiring:
    """The wiring on coordinates in another order: its position i is coordinate order[i]."""
    if order is None or np.array_equal(order, np.arange(wiring.n)):
        return wiring
    return Pairs.from_flat(wiring.n, np.asarray(order, np.int64)[flat_pairs(wiring)], wiring.offsets)


def layered(n: int, pairs: np.ndarray, angles: np.ndarray) -> tuple[Pairs, np.ndarray]:
    """Pack a sequence of rotations into layers; return the wiring and its angles."""
    order, offsets = _pack(n, np.ascontiguousarray(pairs))
    return Pairs.from_flat(n, pairs[order], offsets), angles[order]


@compiled
def _pack(n: int, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each rotation into the first layer after those it shares a coordinate with. Order and offsets."""
    K = len(pairs)
    level, layer_of = np.zeros(n, np.int64), np.zeros(K, np.int64)
    for k in range(K):
        i, j = pairs[k, 0], pairs[k, 1]
        layer_of[k] = max(level[i], level[j])
        level[i] = level[j] = layer_of[k] + 1
    offsets = np.zeros((level.max() if K else 0) + 1, np.int64)
    for k in range(K):
        offsets[layer_of[k] + 1] += 1
    offsets = np.cumsum(offsets)
    order, filled = np.empty(K, np.int64), offsets.copy()
    for k in range(K):
        order[filled[layer_of[k]]] = k
        filled[layer_of[k]] += 1
    return order, offsets


@compiled
def rotate_rows(X: np.ndarray, pairs: np.ndarray, c: np.ndarray, s: np.ndarray, transpose: bool) -> None:
    """X ← Q X, or Qᵀ X: row i and row j of every rotation, in place. X (n, m) contiguous."""
    K, m = len(pairs), X.shape[1]
    for q in range(K):
        k = q if transpose else K - 1 - q
        i, j, ck, sk = pairs[k, 0], pairs[k, 1], c[k], -s[k] if transpose else s[k]
        for r in range(m):
            a, b = X[i, r], X[j, r]
            X[i, r] = ck * a - sk * b
            X[j, r] = sk * a + ck * b


@compiled
def longer(array: np.ndarray, size: int) -> np.ndarray:
    """The array if it has ``size`` rows; else a copy with at least so many, and twice as many as it had."""
    if size <= len(array):
        return array
    result = np.zeros((max(size, 2 * len(array)), *array.shape[1:]), array.dtype)
    result[: len(array)] = array
    return result


def tile(H: np.ndarray) -> np.ndarray:  # shape: (T, n, w)
    """Cut H (n, n) into T column tiles of at most `WIDTH` columns, the last one filled up with zeros.

    Rotating rows of a tile touches nothing but that tile, and a tile lies in one piece of memory.
    """
    n = len(H)
    T = max(1, -(-n // WIDTH))
    w = min(n, -(-n // (8 * T)) * 8)  # a multiple of the vector length
    tiles = np.zeros((T, n, w))
    for t in range(T):
        part = H[:, t * w : (t + 1) * w]
        tiles[t, :, : part.shape[1]] = part
    return tiles


def untile(tiles: np.ndarray) -> np.ndarray:  # shape: (n, n)
    """Undo `tile`."""
    T, n, w = tiles.shape
    return np.ascontiguousarray(tiles.transpose(1, 0, 2).reshape(n, T * w)[:, :n])


@compiled
def half_product(tiles: np.ndarray, pairs: np.ndarray, c: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Tiles of H Q from those of H: QᵀH tile by tile, each written back transposed (H is symmetric)."""
    T, n, w = tiles.shape
    out, X = np.empty((T, n, w)), np.empty((n, w))
    for t in range(T):
        X[:] = tiles[t]
        rotate_rows(X, pairs, c, s, True)
        rows = min(w, n - t * w)
        for u in range(T):
            columns = min(w, n - u * w)
            for r in range(rows):
                for k in range(columns):
                    out[u, t * w + r, k] = X[u * w + k, r]
                for k in range(columns, w):
                    out[u, t * w + r, k] = 0.0
    return out


@compiled
def conjugate_tiles(tiles: np.ndarray, pairs: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """The tiles of QᵀHQ from those of symmetric H; O(nK)."""
    c, s = np.cos(angles), np.sin(angles)
    return half_product(half_product(tiles, pairs, c, s), pairs, c, s)


def conjugate(H: np.ndarray, pairs: np.ndarray, angles: np.ndarray) -> np.ndarray:  # shape: (n, n)
    """QᵀHQ for symmetric H (n, n); O(nK)."""
    return untile(conjugate_tiles(tile(H), pairs, angles))


@compiled
def value_and_gradient(
    tiles: np.ndarray, pairs: np.ndarray, angles: np.ndarray, target: int, floor: float
) -> tuple[float, np.ndarray, np.ndarray]:
    """Σ dₖ² (matrix) or −Σ log max(dₖ, floor) (likelihood), d = diag(QᵀHQ), and the gradient; O(nK).

    Both are sums Σ f(dₖ), and column k of QᵀHQ is all that dₖ needs; so a tile of columns goes forward
    through all rotations and straight back while it is in the cache. Split Q = A·B behind a rotation on
    (i, j). On the way back V = AᵀHQ and U = B·diag(2f′(d)) are at hand, and the derivative by its angle is
    Σₖ UᵢₖVⱼₖ − UⱼₖVᵢₖ. U starts diagonal: a rotation whose two rows of U are still zero is skipped.

    Args:
        tiles: `tile` of the symmetric matrix H.
        pairs: shape (K, 2), Q₁ first.
        angles: shape (K,).
        target: MATRIX or LIKELIHOOD.
        floor: smallest dₖ the logarithm sees.

    Returns:
        The value (to be maximised), its gradient (K,), and d (n,).
    """
    T, n, w = tiles.shape
    K = len(pairs)
    c, s = np.cos(angles), np.sin(angles)
    half = half_product(tiles, pairs, c, s)
    U, awake = np.empty((n, w)), np.empty(n, np.bool_)
    gradient, d, total = np.zeros(K), np.empty(n), 0.0
    for t in range(T):
        V = half[t]
        rotate_rows(V, pairs, c, s, True)
        U[:] = 0.0
        awake[:] = False
        for k in range(t * w, min(t * w + w, n)):
            dk = V[k, k - t * w]
            d[k] = dk
            awake[k] = True
            if target == MATRIX:
                total += dk * dk
                U[k, k - t * w] = 4.0 * dk
            else:
                total -= np.log(max(dk, floor))
                U[k, k - t * w] = -2.0 / dk if dk > floor else 0.0
        for q in range(K - 1, -1, -1):
            i, j, cq, sq = pairs[q, 0], pairs[q, 1], c[q], s[q]
            if awake[i] or awake[j]:
                awake[i] = awake[j] = True
                wedge = 0.0
                for r in range(w):
                    a, b, x, y = V[i, r], V[j, r], U[i, r], U[j, r]
                    wedge += x * b - y * a
                    V[i, r] = cq * a - sq * b
                    V[j, r] = sq * a + cq * b
                    U[i, r] = cq * x - sq * y
                    U[j, r] = sq * x + cq * y
                gradient[q] += wedge
            else:
                for r in range(w):
                    a, b = V[i, r], V[j, r]
                    V[i, r] = cq * a - sq * b
                    V[j, r] = sq * a + cq * b
    return total, gradient, d
