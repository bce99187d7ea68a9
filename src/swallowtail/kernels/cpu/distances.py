"""Distances to Gaussians and variances along their axes, on tiles of rows: what `gaussians.em.distances` calls.

A tile of rows is transposed once; each component rotates a copy of it and adds up weighted squares there, so
nothing but the distances is written back. Rotating blocks of rows for one component after another spends most of its
time on transposing and memory.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import intrinsic

from swallowtail.kernels.cpu.codegen.rows import INT, ROW_REGISTERS, codelet
from swallowtail.kernels.cpu.jit import alloca_once_value, for_range, njit
from swallowtail.kernels.cpu.pairs import move_any, to_basis

NOTHING = (0, 0, 0)  # is prefetched
FLUSH = 64  # tiles whose squares are added up in the data's dtype; from there on in float64


@intrinsic
def _shift_rows(typingctx, like, source, target, count, shifts):
    """Rows of lanes: y_i ← x_i − shift_i for i < count, at the addresses given."""

    def emit(r, source, target, count, shifts):
        for i, at in _each(r, count):
            shift = r.splat(_scalar(r, shifts, i))
            for v in at:
                r.store(r.b.fsub(r.load(r.offset(source, v)), shift), r.offset(target, v))

    return types.void(like, *[types.int64] * 4), codelet(emit)


@intrinsic
def _copy_rows(typingctx, like, source, target, count):
    """Rows of lanes: y_i ← x_i. Numba's own copy[:] = tile is much slower."""

    def emit(r, source, target, count):
        for _, at in _each(r, count):
            for v in at:
                r.store(r.load(r.offset(source, v)), r.offset(target, v))

    return types.void(like, *[types.int64] * 3), codelet(emit)


@intrinsic
def _sum_squares(typingctx, like, rows, count, a, b, total):
    """Total ← Σ_i (a_i x_i − b_i)², lane by lane."""

    def emit(r, rows, count, a, b, total):
        zero = r.splat(r.vector.element(0.0))
        sums = [alloca_once_value(r.b, zero) for _ in range(ROW_REGISTERS)]
        for i, at in _each(r, count):
            scale, shift = r.splat(_scalar(r, a, i)), r.b.fneg(r.splat(_scalar(r, b, i)))
            for v, held in zip(at, sums, strict=True):
                deviation = r.fma(scale, r.load(r.offset(rows, v)), shift)
                r.b.store(r.fma(deviation, deviation, r.b.load(held)), held)
        for v, held in enumerate(sums):
            r.store(r.b.load(held), r.offset(total, INT(v * r.w)))

    return types.void(like, *[types.int64] * 5), codelet(emit)


@intrinsic
def _add_squares(typingctx, like, rows, count, a, weights, sums):
    """Rows of lanes: sum_i ← sum_i + weights · (a_i x_i)²."""

    def emit(r, rows, count, a, weights, sums):
        weight = [r.load(r.offset(weights, INT(v * r.w))) for v in range(ROW_REGISTERS)]
        for i, at in _each(r, count):
            scale = r.splat(_scalar(r, a, i))
            for v, w in zip(at, weight, strict=True):
                x, to = r.multiply(scale, r.load(r.offset(rows, v))), r.offset(sums, v)
                r.store(r.fma(r.multiply(w, x), x, r.load(to)), to)

    return types.void(like, *[types.int64] * 5), codelet(emit)


def _each(r, count):
    """A loop over the rows of a tile: the row's number, and where its registers start, in numbers."""
    with for_range(r.b, count) as loop:
        start = r.b.mul(loop.index, INT(ROW_REGISTERS * r.w))
        yield loop.index, [r.b.add(start, INT(v * r.w)) for v in range(ROW_REGISTERS)]


def _scalar(r, array, index):
    return r.number(r.offset(array, index))


@njit(nogil=True, cache=True)
def distances(X, centre, a, b, pairs, T, P, plain, offsets, tile, copy, out):
    """out[v, k] = Σ_i (a_ki (M_k (x_v − centre))_i − b_ki)²; rotations of component k lie between its offsets."""
    n, width = tile.shape
    size, tied = tile.itemsize, len(offsets) == 2
    alone = np.zeros(len(pairs), np.bool_)
    total = np.zeros(width, tile.dtype)
    source, target = tile.ctypes.data, copy.ctypes.data
    for first in range(0, len(X), width):
        count = min(width, len(X) - first)
        move_any(True, X.ctypes.data + first * n * size, n, count - 1, tile)
        _shift_rows(tile, source, source, n, centre.ctypes.data)
        for k in range(len(a)):
            if k == 0 or not tied:
                _copy_rows(tile, source, target, n)
                low, high = offsets[k], offsets[k + 1]
                to_basis(
                    pairs[low:high], T[low:high], P[low:high], plain[low:high], alone[low:high], copy, NOTHING
                )
            row = k * n * size
            _sum_squares(tile, target, n, a.ctypes.data + row, b.ctypes.data + row, total.ctypes.data)
            for v in range(count):
                out[first + v, k] = total[v]


@njit(nogil=True, cache=True)
def second_moments(X, r, mean, a, pairs, T, P, plain, tile, sums, out):
    """out[i] += Σ_v r_v (a_i (M (x_v − mean))_i)²."""
    n, width = tile.shape
    at, weights = tile.ctypes.data, np.zeros(width, tile.dtype)
    alone = np.zeros(len(pairs), np.bool_)
    sums[:] = 0
    for index, first in enumerate(range(0, len(X), width)):
        count = min(width, len(X) - first)
        weights[:count], weights[count:] = r[first : first + count], 0
        move_any(True, X.ctypes.data + first * n * tile.itemsize, n, count - 1, tile)
        _shift_rows(tile, at, at, n, mean.ctypes.data)
        to_basis(pairs, T, P, plain, alone, tile, NOTHING)
        _add_squares(tile, at, n, a.ctypes.data, weights.ctypes.data, sums.ctypes.data)
        if index % FLUSH == FLUSH - 1 or first + width >= len(X):
            for i in range(n):
                for v in range(width):
                    out[i] += sums[i, v]
            sums[:] = 0
