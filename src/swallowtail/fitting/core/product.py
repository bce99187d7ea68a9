"""Conjugating a dense symmetric matrix by rotations: A = QᵀHQ, its objectives and their gradients.

A rotation product is given flat, as `Wiring` numbers it: ``pairs`` (K, 2) int64 and ``angles`` (K,), Q₁
first. Rotations of one layer act on disjoint coordinates, so "layer by layer" and "one rotation after
another" are the same thing, and none of these functions needs to know where a layer ends.

With D eliminated, both targets depend on Q through d = diag(QᵀHQ) alone:

    matrix       minimise ‖H − QDQᵀ‖²_F / ‖H‖²_F = 1 − Σ dᵢ² / ‖H‖²_F   (D = diag d is best)
    likelihood   minimise Σ log dᵢ / n                                   (the same D is best)
"""

from __future__ import annotations

import math

import numpy as np

from swallowtail.kernels.cpu.jit import njit
from swallowtail.wiring import Butterfly, Pairs, Wiring

MATRIX, LIKELIHOOD, ROTATION = 0, 1, 2  # the last is the target of `core.trace`
TARGETS = {"matrix": MATRIX, "likelihood": LIKELIHOOD}
WIDTH = 64  # columns a tile: two (n, 64) float64 tiles stay in a 1 MiB cache up to n = 1024
FLOOR = 1e-12  # likelihood: variances below this fraction of the mean count as it, so that log is finite

# One way to compile for the whole core: sums may be reordered, no NaN is expected, no lock is held. The first fit on a
# machine waits for the compiler, so compiled code here is plain loops. Assigning one array to a part of another,
# expressions of whole arrays, sorting and reductions by NumPy's names each take a tenth of a second to seconds more.
compiled = njit(cache=True, nogil=True, fastmath=True, error_model="numpy")
inner = njit(inner=True, nogil=True, fastmath=True, error_model="numpy")  # called from compiled code only
# The same where there is one call: it is compiled as a part of its caller, and so once.
inlined = njit(inner=True, inline="always", nogil=True, fastmath=True, error_model="numpy")


def power_of_two(array: np.ndarray) -> float:
    """The power of two just below the largest |entry|: dividing by it changes no bit of a mantissa.

    Taken out of a matrix first, because squares of entries near 1e±200 leave float64.
    """
    largest = float(np.abs(array).max(initial=0.0))
    return float(2.0 ** np.floor(np.log2(largest))) if largest > 0.0 else 1.0


def permuted(wiring: Butterfly, order: np.ndarray | None) -> Wiring:
    """The wiring on coordinates in another order: its position i is coordinate order[i]."""
    if order is None or np.array_equal(order, np.arange(wiring.n)):
        return wiring
    return Pairs.from_flat(wiring.n, np.asarray(order, np.int64)[wiring.flat_pairs()], wiring.offsets)


def layered(n: int, pairs: np.ndarray, angles: np.ndarray) -> tuple[Pairs, np.ndarray]:
    """Pack a sequence of rotations into layers; return the wiring and its angles."""
    order, offsets = _pack(n, np.ascontiguousarray(pairs))
    return Pairs.from_flat(n, pairs[order], offsets), angles[order]


@compiled
def _pack(n: int, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each rotation into the first layer after those it shares a coordinate with. Order and offsets."""
    K, L = len(pairs), 0
    level, layer_of = np.zeros(n, np.int64), np.zeros(K, np.int64)
    for k in range(K):
        i, j = pairs[k, 0], pairs[k, 1]
        layer_of[k] = max(level[i], level[j])
        level[i] = level[j] = layer_of[k] + 1
        L = max(L, layer_of[k] + 1)
    offsets, filled, order = np.zeros(L + 1, np.int64), np.zeros(L + 1, np.int64), np.empty(K, np.int64)
    for k in range(K):
        offsets[layer_of[k] + 1] += 1
    for layer in range(L):
        offsets[layer + 1] += offsets[layer]
        filled[layer + 1] = offsets[layer + 1]
    for k in range(K):
        order[filled[layer_of[k]]] = k
        filled[layer_of[k]] += 1
    return order, offsets


@inner
def cosines(angles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines, shape (K,) each."""
    c, s = np.empty(len(angles)), np.empty(len(angles))
    for k in range(len(angles)):
        c[k], s[k] = math.cos(angles[k]), math.sin(angles[k])
    return c, s


@inner
def copy_rows(source: np.ndarray, to: np.ndarray) -> None:
    """Copy a matrix into another of its shape."""
    for i in range(source.shape[0]):
        for r in range(source.shape[1]):
            to[i, r] = source[i, r]


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


@inner
def rows_to_basis(X: np.ndarray, pairs: np.ndarray, c: np.ndarray, s: np.ndarray) -> None:
    """X ← Qᵀ X, as `rotate_rows`."""
    for k in range(len(pairs)):
        i, j, ck, sk = pairs[k, 0], pairs[k, 1], c[k], s[k]
        for r in range(X.shape[1]):
            a, b = X[i, r], X[j, r]
            X[i, r] = ck * a + sk * b
            X[j, r] = ck * b - sk * a


@inlined
def longer(pairs: np.ndarray, angles: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs (K, 2) and angles (K,) if K ≥ ``size``; else copies with room for ``size``, and for 2K at least."""
    K = len(angles)
    if size <= K:
        return pairs, angles
    room = max(size, 2 * K)
    more_pairs, more_angles = np.empty((room, 2), np.int64), np.empty(room)
    copy_rows(pairs, more_pairs)
    for k in range(K):
        more_angles[k] = angles[k]
    return more_pairs, more_angles


@inlined
def falling_order(values: np.ndarray) -> np.ndarray:  # shape: (n,)
    """The places of the values, largest first; of equal ones the earlier place first."""
    n = len(values)
    order, other = np.empty(n, np.int64), np.empty(n, np.int64)
    for k in range(n):
        order[k] = k
    width = 1
    while width < n:  # merge runs of ``width`` two by two
        for begin in range(0, n, 2 * width):
            left, middle, end = begin, min(begin + width, n), min(begin + 2 * width, n)
            right = middle
            for k in range(begin, end):
                if right == end or (left < middle and values[order[left]] >= values[order[right]]):
                    other[k] = order[left]
                    left += 1
                else:
                    other[k] = order[right]
                    right += 1
        order, other, width = other, order, 2 * width
    return order


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
        copy_rows(tiles[t], X)
        rows_to_basis(X, pairs, c, s)
        rows = min(w, n - t * w)
        for u in range(T):
            columns = min(w, n - u * w)
            for r in range(rows):
                for k in range(columns):
                    out[u, t * w + r, k] = X[u * w + k, r]
                for k in range(columns, w):
                    out[u, t * w + r, k] = 0.0
    return out


def conjugate(H: np.ndarray, pairs: np.ndarray, angles: np.ndarray) -> np.ndarray:  # shape: (n, n)
    """QᵀHQ for symmetric H (n, n); O(nK)."""
    c, s = np.cos(angles), np.sin(angles)
    return untile(half_product(half_product(tile(H), pairs, c, s), pairs, c, s))


@njit(cache=True, nogil=True, fastmath=True, error_model="numpy", inline="always")  # one compiled call
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
    c, s = cosines(angles)
    half = half_product(tiles, pairs, c, s)
    U, awake = np.empty((n, w)), np.empty(n, np.bool_)
    gradient, d, total = np.zeros(K), np.empty(n), 0.0
    for t in range(T):
        V = half[t]
        rows_to_basis(V, pairs, c, s)
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
                total -= math.log(max(dk, floor))
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
