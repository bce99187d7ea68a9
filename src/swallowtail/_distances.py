"""Mahalanobis distances of rows to all Gaussians of a mixture in one pass, and variances along their axes: the
kernels of the E-step and of the M-step.

A tile of rows is transposed once; each component rotates a copy of it and adds up weighted squares there, so
nothing but the distances is written back. Rotating blocks of rows for one component after another took 1.7
times as long (n = 784, 2000 rotations, float32): the rest is transposing and memory.

Rotations are fast Givens steps, two multiply-adds each: Qᵀ = S·M, and the scales S go into the last step, where
(z_i − m_i)² w_i with z = S·Mx is (a_i (Mx)_i − b_i)², a = S√w and b = m√w: numbers of order 1 whatever S and w are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from swallowtail.kernels._numba import njit
from swallowtail.kernels._threads import over_rows
from swallowtail.kernels.cpu_coefficients import aligned, prepare
from swallowtail.kernels.cpu_pairs import _down, _move_any
from swallowtail.kernels.simd import lanes
from swallowtail.kernels.simd_rows import _INT, ROW_REGISTERS, _codelet, _Rows
from swallowtail.operators import Rotation

_intrinsic: Any = intrinsic  # callers leave out the first argument, which type checkers do not know
FLUSH = 64  # tiles whose squares are added up in the data's dtype; from there on in float64


class Distances:
    """(x − μ_k)ᵀ Q_k diag(w_k) Q_kᵀ (x − μ_k) for rows x and all k; the rotations' wirings are `Pairs`.

    Args:
        rotations: Q_k; one for all if it is a list of one.
        dtype: float32 or float64, of the arithmetic.
    """

    def __init__(self, rotations: list[Rotation], dtype: Any) -> None:
        self.dtype = np.dtype(dtype)
        kind = torch.float32 if self.dtype == np.float32 else torch.float64
        made = [prepare(r.wiring, r.angles.to(kind)[None])[0] for r in rotations]
        wirings: list[Any] = [r.wiring for r in rotations]
        self._pairs = np.concatenate([w.pairs for w in wirings])
        self._T, self._P = np.concatenate([c.T for c in made]), np.concatenate([c.P for c in made])
        self._plain = np.concatenate([c.plain for c in made])
        self._scales = np.stack([c.scale for c in made])  # S, shape: (k or 1, n), float64
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
        root = np.sqrt(weights, dtype=np.float64)
        c, a, b = (np.ascontiguousarray(v, number) for v in (centre, self._scales * root, means * root))
        X = np.ascontiguousarray(X, number)

        def work(start: int, stop: int) -> None:
            width = ROW_REGISTERS * lanes(number.itemsize * 8)
            tile, copy = (aligned((X.shape[1], width), number) for _ in range(2))
            tile.fill(0)  # the last rows may not fill it
            _distances(
                X[start:stop],
                c,
                a,
                b,
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

    def second_moments(
        self, k: int, X: np.ndarray, r: np.ndarray, mean: np.ndarray, usual: np.ndarray
    ) -> np.ndarray:  # shape: (n,)
        """Σ r z² over rows x of X (m, n), z = Q_kᵀ(x − mean).

        ``usual`` (n,) are variances to expect: squares are taken of z over their roots, which do not overflow.
        """
        number, k = self.dtype, k if len(self._scales) > 1 else 0
        width = ROW_REGISTERS * lanes(number.itemsize * 8)
        tile, sums = (aligned((X.shape[1], width), number) for _ in range(2))
        tile.fill(0)
        low, high = self._offsets[k], self._offsets[k + 1]
        out = np.zeros(X.shape[1])
        _second_moments(
            np.ascontiguousarray(X, number),
            r.astype(number),
            mean.astype(number),
            (self._scales[k] / np.sqrt(usual)).astype(number),
            self._pairs[low:high],
            self._T[low:high],
            self._P[low:high],
            self._plain[low:high],
            tile,
            sums,
            out,
        )
        return out * usual


@_intrinsic
def _shift_rows(typingctx: Any, like: Any, source: Any, target: Any, count: Any, shifts: Any) -> Any:
    """Rows of lanes: y_i ← x_i − shift_i for i < count, at the addresses given."""

    def emit(r: _Rows, source: Any, target: Any, count: Any, shifts: Any) -> None:
        for i, at in _each(r, count):
            shift = r.splat(_scalar(r, shifts, i))
            for v in at:
                r.store(r.b.fsub(r.load(r.offset(source, v)), shift), r.offset(target, v))

    return types.void(like, *[types.int64] * 4), _codelet(emit)


@_intrinsic
def _copy_rows(typingctx: Any, like: Any, source: Any, target: Any, count: Any) -> Any:
    """Rows of lanes: y_i ← x_i. Numba's own copy[:] = tile takes six times as long."""

    def emit(r: _Rows, source: Any, target: Any, count: Any) -> None:
        for _, at in _each(r, count):
            for v in at:
                r.store(r.load(r.offset(source, v)), r.offset(target, v))

    return types.void(like, *[types.int64] * 3), _codelet(emit)


@_intrinsic
def _sum_squares(typingctx: Any, like: Any, rows: Any, count: Any, a: Any, b: Any, total: Any) -> Any:
    """Total ← Σ_i (a_i x_i − b_i)², lane by lane."""

    def emit(r: _Rows, rows: Any, count: Any, a: Any, b: Any, total: Any) -> None:
        zero = r.splat(r.vector.element(0.0))
        sums = [cgutils.alloca_once_value(r.b, zero) for _ in range(ROW_REGISTERS)]
        for i, at in _each(r, count):
            scale, shift = r.splat(_scalar(r, a, i)), r.b.fneg(r.splat(_scalar(r, b, i)))
            for v, held in zip(at, sums, strict=True):
                deviation = r.fma(scale, r.load(r.offset(rows, v)), shift)
                r.b.store(r.fma(deviation, deviation, r.b.load(held)), held)
        for v, held in enumerate(sums):
            r.store(r.b.load(held), r.offset(total, _INT(v * r.w)))

    return types.void(like, *[types.int64] * 5), _codelet(emit)


@_intrinsic
def _add_squares(typingctx: Any, like: Any, rows: Any, count: Any, a: Any, weights: Any, sums: Any) -> Any:
    """Rows of lanes: sum_i ← sum_i + weights · (a_i x_i)²."""

    def emit(r: _Rows, rows: Any, count: Any, a: Any, weights: Any, sums: Any) -> None:
        weight = [r.load(r.offset(weights, _INT(v * r.w))) for v in range(ROW_REGISTERS)]
        for i, at in _each(r, count):
            scale = r.splat(_scalar(r, a, i))
            for v, w in zip(at, weight, strict=True):
                x, to = r.multiply(scale, r.load(r.offset(rows, v))), r.offset(sums, v)
                r.store(r.fma(r.multiply(w, x), x, r.load(to)), to)

    return types.void(like, *[types.int64] * 5), _codelet(emit)


def _each(r: _Rows, count: Any) -> Any:
    """A loop over the rows of a tile: the row's number, and where its registers start, in numbers."""
    with cgutils.for_range(r.b, count) as loop:
        start = r.b.mul(loop.index, _INT(ROW_REGISTERS * r.w))
        yield loop.index, [r.b.add(start, _INT(v * r.w)) for v in range(ROW_REGISTERS)]


def _scalar(r: _Rows, array: Any, index: Any) -> Any:
    return r.b.load(r.b.inttoptr(r.offset(array, index), r.vector.element.as_pointer()))


@njit(nogil=True, cache=True)
def _distances(
    X: Any,
    centre: Any,
    a: Any,
    b: Any,
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
    size, tied = tile.itemsize, len(offsets) == 2
    total = np.zeros(width, tile.dtype)
    source, target = tile.ctypes.data, copy.ctypes.data
    for first in range(0, len(X), width):
        count = min(width, len(X) - first)
        _move_any(True, X.ctypes.data + first * n * size, n, count - 1, tile)
        _shift_rows(tile, source, source, n, centre.ctypes.data)
        for k in range(len(a)):
            if k == 0 or not tied:
                _copy_rows(tile, source, target, n)
                low, high = offsets[k], offsets[k + 1]
                _down(pairs[low:high], T[low:high], P[low:high], plain[low:high], copy)
            row = k * n * size
            _sum_squares(tile, target, n, a.ctypes.data + row, b.ctypes.data + row, total.ctypes.data)
            for v in range(count):
                out[first + v, k] = total[v]


@njit(nogil=True, cache=True)
def _second_moments(
    X: Any,
    r: Any,
    mean: Any,
    a: Any,
    pairs: Any,
    T: Any,
    P: Any,
    plain: Any,
    tile: Any,
    sums: Any,
    out: Any,
) -> None:
    n, width = tile.shape
    at, weights = tile.ctypes.data, np.zeros(width, tile.dtype)
    sums[:] = 0
    for index, first in enumerate(range(0, len(X), width)):
        count = min(width, len(X) - first)
        weights[:count], weights[count:] = r[first : first + count], 0
        _move_any(True, X.ctypes.data + first * n * tile.itemsize, n, count - 1, tile)
        _shift_rows(tile, at, at, n, mean.ctypes.data)
        _down(pairs, T, P, plain, tile)
        _add_squares(tile, at, n, a.ctypes.data, weights.ctypes.data, sums.ctypes.data)
        if index % FLUSH == FLUSH - 1 or first + width >= len(X):
            for i in range(n):
                for v in range(width):
                    out[i] += sums[i, v]
            sums[:] = 0
