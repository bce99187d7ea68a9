"""Mahalanobis distances of rows to all Gaussians of a mixture in one pass, and variances along their axes.

They are the E-step and the M-step of a mixture; the kernels are in kernels/cpu/distances.py.

Rotations are fast Givens steps of two multiply-adds each: Qᵀ = S·M with a diagonal S. The scales S enter in the last
step: with z = S·Mx, (z_i − m_i)² w_i = (a_i (Mx)_i − b_i)², where a = S√w and b = m√w. The squared numbers are of order
1 whatever S and w are.

Rows far away may still overflow, and without a compiler there are no kernels: those rows are done in float64 by the
operators themselves. Distances beyond `FARTHEST` are scaled down, row by row, so that they stay finite and in order.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from swallowtail.kernels.cpu import distances as cpu_distances
from swallowtail.kernels.cpu.coefficients import aligned, prepare, tile
from swallowtail.kernels.cpu.jit import switched_off
from swallowtail.kernels.cpu.threads import over_rows
from swallowtail.operators import Rotation

FARTHEST = 1e300  # a distance; its half is subtracted from a log-density
UNIT = 2.0**-30


class Distances:
    """(x − μ_k)ᵀ Q_k diag(w_k) Q_kᵀ (x − μ_k) for rows x and all k; the rotations' wirings are `Pairs`.

    Args:
        rotations: Q_k; one for all if it is a list of one.
        dtype: float32 or float64, of the arithmetic.
    """

    def __init__(self, rotations: list[Rotation], dtype: Any) -> None:
        self.dtype, self._rotations = np.dtype(dtype), rotations
        self._compiled = switched_off() is None
        if not self._compiled:
            return
        kind = torch.float32 if self.dtype == np.float32 else torch.float64
        made = [prepare(r.wiring, r.angles.to(kind)[None])[0] for r in rotations]
        wirings: list[Any] = [r.wiring for r in rotations]
        self._pairs = np.concatenate([w.pairs for w in wirings])
        self._T, self._P = np.concatenate([c.T for c in made]), np.concatenate([c.P for c in made])
        self._plain = np.concatenate([c.plain for c in made])
        self._scales = np.stack([c.S for c in made])  # S, shape: (k or 1, n), float64
        self._offsets = np.concatenate([[0], np.cumsum([w.n_rotations for w in wirings])]).astype(np.int64)

    def __call__(
        self, X: np.ndarray, centre: np.ndarray, means: np.ndarray, weights: np.ndarray
    ) -> np.ndarray:  # shape: (m, k)
        """Distances of the rows of X.

        Args:
            X: shape (m, n).
            centre: c (n,), subtracted from X first, because float32 loses digits when large numbers are rotated.
            means: Q_kᵀ(μ_k − c), shape (k, n).
            weights: w, shape (k, n).
        """
        found = self._by_kernel(X, centre, means, weights) if self._compiled else None
        far = np.ones(len(X), bool) if found is None else ~np.isfinite(found).all(1)
        if found is not None and not far.any():
            return found
        out = np.empty((len(X), len(means))) if found is None else found.astype(np.float64)
        out[far] = self._by_operators(X[far].astype(np.float64) - centre, means, weights)
        return out

    def _by_operators(self, x: np.ndarray, means: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Distances (m, k) of centred rows x (m, n), in float64 and without overflow."""
        rotations = self._rotations if len(self._rotations) > 1 else self._rotations * len(means)
        logs = np.empty((len(x), len(means)))
        for k, rotation in enumerate(rotations):
            # In a smaller unit: sums of the largest numbers would overflow.
            z = rotation.T(torch.from_numpy(x * UNIT)).numpy() - means[k].astype(np.float64) * UNIT
            z *= np.sqrt(weights[k], dtype=np.float64)
            size = np.abs(z).max(1, keepdims=True)
            with np.errstate(divide="ignore", invalid="ignore"):
                squares = np.where(size > 0, (z / size) ** 2, 0.0).sum(1)
                logs[:, k] = np.log(squares) + 2 * np.log(size[:, 0]) - 2 * math.log(UNIT)
        excess = np.maximum(logs.max(1, keepdims=True) - math.log(FARTHEST), 0.0)
        return np.exp(logs - excess)

    def _by_kernel(
        self, X: np.ndarray, centre: np.ndarray, means: np.ndarray, weights: np.ndarray
    ) -> np.ndarray:  # shape: (m, k)
        number = self.dtype
        out = np.empty((len(X), len(means)), number)
        root = np.sqrt(weights, dtype=np.float64)
        c, a, b = (np.ascontiguousarray(v, number) for v in (centre, self._scales * root, means * root))
        with np.errstate(over="ignore"):  # rows beyond the dtype are far
            X = np.ascontiguousarray(X, number)

        def work(start: int, stop: int) -> None:
            rows = tile(X.shape[1], number)
            cpu_distances.distances(
                X[start:stop], c, a, b, self._pairs, self._T, self._P, self._plain, self._offsets,
                rows, aligned(rows.shape, number), out[start:stop],
            )  # fmt: skip

        over_rows(work, len(X), max(1, len(self._pairs)))
        return out

    def second_moments(
        self, k: int, X: np.ndarray, r: np.ndarray, mean: np.ndarray, usual: np.ndarray
    ) -> np.ndarray:  # shape: (n,)
        """Σ r z² over rows x of X (m, n), z = Q_kᵀ(x − mean).

        ``usual`` (n,) are the variances to expect. z is divided by their roots before it is squared: no overflow.
        """
        number, k = self.dtype, k if len(self._rotations) > 1 else 0
        if not self._compiled:
            z = self._rotations[k].T(torch.from_numpy(X.astype(np.float64) - mean)).numpy() / np.sqrt(usual)
            return np.asarray(r @ (z * z) * usual)
        rows = tile(X.shape[1], number)
        low, high = self._offsets[k], self._offsets[k + 1]
        out = np.zeros(X.shape[1])
        scales = (self._scales[k] / np.sqrt(usual)).astype(number)
        cpu_distances.second_moments(
            np.ascontiguousarray(X, number), r.astype(number), mean.astype(number), scales, self._pairs[low:high],
            self._T[low:high], self._P[low:high], self._plain[low:high], rows, aligned(rows.shape, number), out,
        )  # fmt: skip
        return out * usual
