"""Fitting H ≈ Q D Qᵀ to a large sparse matrix: Jacobi's method, cut short, on the entries that are not zero.

A layer G of disjoint pairs makes GᵀHG, which has at most four times as many entries and mostly half as many again. So
n² numbers are never needed: growth ends where the entries become too many.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse

from swallowtail.fitting.core.matching import PAIRS
from swallowtail.fitting.core.product import compiled, power_of_two
from swallowtail.fitting.core.records import Callback, DenseFit, History, Listener, Stop
from swallowtail.wiring import Pairs

MOST = 1 << 23  # entries of QᵀHQ before another layer: 100 MB, and eight times that during the layer at worst
ROUNDING = 1e-14  # of the largest entry: what a rotation leaves where it makes a zero


def fit_sparse(
    H: scipy.sparse.csr_array,
    n_rotations: int,
    *,
    target_error: float = 0.0,
    callback: Callback | None = None,
    most: int = MOST,
) -> DenseFit:
    """Fit H ≈ Q D Qᵀ with ``n_rotations`` rotations at most, on the pairs of the largest entries left, layer by layer.

    Args:
        H: symmetric, shape (n, n).
        n_rotations: the budget K; fewer are used when QᵀHQ is diagonal before that, or has too many entries.
        target_error: stop behind the layer with which the relative error is no larger.
        callback: called as callback("grow", K, squared relative error) after every layer; may raise `Stop` or
            KeyboardInterrupt, and what there is is returned.
        most: no further layer where QᵀHQ has more entries.

    >>> fit_sparse(scipy.sparse.csr_array([[2.0, 1.0], [1.0, 2.0]]), 1).eigenvalues.round(12).tolist()
    [3.0, 1.0]
    """
    n, scale = H.shape[0], power_of_two(H.data)
    A = H / scale
    norm2 = float((A.data**2).sum()) or 1.0
    pairs, angles, offsets = [np.zeros((0, 2), np.int64)], [np.zeros(0)], [0]
    upper = scipy.sparse.triu(A, 1).tocoo()
    history: History = [("grow", 0, 2.0 * float((upper.data**2).sum()) / norm2)]
    report = Listener(callback)
    while offsets[-1] < n_rotations and history[-1][2] > target_error**2 and A.nnz <= most:
        chosen = _layer(upper)[: n_rotations - offsets[-1]]
        i, j, d = upper.row[chosen], upper.col[chosen], A.diagonal()
        theta = 0.5 * np.arctan2(2.0 * upper.data[chosen], d[i] - d[j])
        theta -= 0.5 * np.pi * np.round(theta / (0.5 * np.pi))  # into [−45°, 45°], which serves alike
        A = _rotated(A, i, j, theta)
        pairs.append(np.stack([i, j], 1))
        angles.append(theta)
        offsets.append(offsets[-1] + len(theta))
        upper = scipy.sparse.triu(A, 1).tocoo()
        history.append(("grow", offsets[-1], 2.0 * float((upper.data**2).sum()) / norm2))
        try:
            report(*history[-1])
        except (Stop, KeyboardInterrupt):
            break
    wiring = Pairs.from_flat(n, np.concatenate(pairs), np.array(offsets))
    return DenseFit(wiring, np.concatenate(angles), A.diagonal() * scale, history)


def _layer(upper: scipy.sparse.coo_array) -> np.ndarray:
    """Which entries above the diagonal meet: disjoint ones, largest first, of the `PAIRS` largest per coordinate."""
    size = np.abs(upper.data)
    count = PAIRS * upper.shape[0]
    if count < len(size):
        kept = np.flatnonzero(size >= np.partition(size, len(size) - count)[len(size) - count])
    else:
        kept = np.flatnonzero(size)
    order = kept[np.argsort(-size[kept], kind="stable")]
    row, column = upper.row[order].astype(np.int64), upper.col[order].astype(np.int64)
    return order[_disjoint(row, column, upper.shape[0])]


@compiled
def _disjoint(row: np.ndarray, column: np.ndarray, n: int) -> np.ndarray:
    """Which of some pairs to take: each that shares no coordinate with those taken before it."""
    free, found = np.ones(n, np.bool_), np.zeros(len(row), np.bool_)
    for k in range(len(row)):
        if free[row[k]] and free[column[k]]:
            free[row[k]] = free[column[k]] = False
            found[k] = True
    return found


def _rotated(
    A: scipy.sparse.csr_array, i: np.ndarray, j: np.ndarray, theta: np.ndarray
) -> scipy.sparse.csr_array:
    """GᵀAG for the layer G of the rotations [[c, −s], [s, c]] on (i, j), without what is only rounding."""
    n, c, s = A.shape[0], np.cos(theta), np.sin(theta)
    diagonal, every = np.ones(n), np.arange(n)
    diagonal[i] = diagonal[j] = c
    places = np.concatenate([every, i, j]), np.concatenate([every, j, i])
    G = scipy.sparse.coo_array((np.concatenate([diagonal, -s, s]), places), shape=(n, n)).tocsr()
    A = (G.T @ A @ G).tocsr()
    A.data[np.abs(A.data) < ROUNDING * np.abs(A.data).max(initial=0.0)] = 0.0
    A.eliminate_zeros()
    return A
