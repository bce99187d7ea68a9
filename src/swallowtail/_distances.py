"""Mahalanobis distances of rows to all Gaussians of a mixture in one pass: the E-step's kernel.

A tile of rows is transposed once; each component rotates a copy of it and adds up weighted squares there, so
nothing but the distances is written back. Rotating blocks of rows for one component after another took 1.7
times as long (n = 784, 2000 rotations, float32): the rest is transposing and memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit

from swallowtail.kernels._threads import over_rows
from swallowtail.kernels.cpu_coefficients import prepare
from swallowtail.kernels.cpu_pairs import _down, _move_any
from swallowtail.kernels.simd import lanes
from swallowtail.kernels.simd_rows import ROW_REGISTERS
from swallowtail.operators import Rotation


class Distances:
    """(x − μ_k)ᵀ Q_k diag(w_k) Q_kᵀ (x − μ_k) for rows x and all k; the rotations' wirings are `Pairs`.

    Args:
        rotations: Q_k; one for all if it is a list of one.
        dtype: float32 or float64, of the arithmetic.
    """

    def __init__(self, rotations: list[Rotation], dtype: Any) -> None:
        self.dtype = np.dtype(dtype)
        kind = torch.float32 if self.dtype == np.float32 else torch.float64
        made = [prepare(r.wiring, r.angles.to(kind)[None], fast=False)[0] for r in rotations]
        wirings: list[Any] = [r.wiring for r in rotations]
        self._pairs = np.concatenate([w.pairs for w in wirings])
        self._T, self._P = np.concatenate([c.T for c in made]), np.concatenate([c.P for c in made])
        self._plain = np.concatenate([c.plain for c in made])
        self._offsets = np.concatenate([[0], np.cumsum([w.n_rotations for w in wirings])]).astype(np.int64)

    def __call__(
        self, X: np.ndarray, centre: np.ndarray, means: np.ndarray, weights: np.ndarray
    ) -> np.ndarray:  # shape: (m, k)
        """Distances of the rows of X.

        Args:
            X: shape (m, n).
            centre: c (n,), taken from X first: float32 should not subtract large numbers after a rotation.
            means: Q_kᵀ(μ_k − c), shape (k, n).
            weights: w, shape (k, n).
        """
        number = self.dtype
        out = np.empty((len(X), len(means)), number)
        c, m, w = (np.ascontiguousarray(a, number) for a in (centre, means, weights))
        X = np.ascontiguousarray(X, number)

        def work(start: int, stop: int) -> None:
            width = ROW_REGISTERS * lanes(number.itemsize * 8)
            tile, copy = (np.zeros((X.shape[1], width), number) for _ in range(2))
            _distances(
                X[start:stop],
                c,
                m,
                w,
                self._pairs,
                self._T,
                self._P,
                self._plain,
                self._offsets,
                tile,
                copy,
                out[start:stop],
            )

        over_rows(work, len(X), max(1, len(self._pairs)))
        return out


@njit(nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz"})
def _distances(
    X: Any,
    centre: Any,
    means: Any,
    weights: Any,
    pairs: Any,
    T: Any,
    P: Any,
    plain: Any,
    offsets: Any,
    tile: Any,
    copy: Any,
    out: Any,
) -> None:
    n, width = tile.shape
    tied = len(offsets) == 2
    total = np.zeros(width, tile.dtype)
    for first in range(0, len(X), width):
        count = min(width, len(X) - first)
        _move_any(True, X.ctypes.data + first * n * X.itemsize, n, count - 1, tile)
        for i in range(n):
            for v in range(width):
                tile[i, v] -= centre[i]
        for k in range(len(means)):
            if k == 0 or not tied:
                copy[:] = tile
                low, high = offsets[k], offsets[k + 1]
                _down(pairs[low:high], T[low:high], P[low:high], plain[low:high], copy)
            total[:] = 0
            for i in range(n):
                mean, weight = means[k, i], weights[k, i]
                for v in range(width):
                    difference = copy[i, v] - mean
                    total[v] += difference * difference * weight
            for v in range(count):
                out[first + v, k] = total[v]
