"""Data-chosen pairs on the CPU: the rotations one after another on a tile of vectors, or on a single vector.

The coefficients are those of `butterfly`, Qᵀ = S·M with M a product of fast Givens steps, but stored
rotation by rotation: ``T[k] = (T_i, T_j)``, and ``P[k]`` where a rotation is plain. Rotations that share no coordinate
may change places, so two that share one are brought together (`join`): its row then stays in registers between them.
"""

from __future__ import annotations

import numpy as np

from swallowtail.kernels.cpu.codegen.flags import clear_flags, raised_flags
from swallowtail.kernels.cpu.codegen.rows import (
    ROW_REGISTERS,
    integer,
    multiply_add,
    number,
    prefetch,
    rotate_rows,
    rotate_rows_plain,
    rotate_three_rows,
    scale_row,
    wedge_rows,
)
from swallowtail.kernels.cpu.codegen.shapes import as_row
from swallowtail.kernels.cpu.codegen.squares import (
    scaled_square_in,
    scaled_square_out,
    square_in,
    square_out,
)
from swallowtail.kernels.cpu.jit import njit

TO_BASIS, FROM_BASIS, SYMMETRIC = 0, 1, 2
LINE = 64  # bytes
inner = njit(inner=True, nogil=True)  # called from compiled code only
inlined = njit(inner=True, inline="always", nogil=True)  # and compiled as a part of it
READY, WINDOW = 64, 4096  # `join` looks at up to READY rotations that could be next, among the first WINDOW


@njit(nogil=True, cache=True)
def pack(cos, sin, pairs, fast, tiny_cos, tiny_scale, T, P, S, plain):
    """Fill the coefficients; a rotation is plain where the scales would leave the dtype's safe range."""
    S[:] = 1.0
    for k in range(len(pairs)):
        i, j = pairs[k, 0], pairs[k, 1]
        c, s = cos[k], sin[k]
        falls = abs(c) < tiny_cos or abs(S[i] * c) < tiny_scale or abs(S[j] * c) < tiny_scale
        plain[k] = not fast or falls
        if plain[k]:
            P[k, 0], P[k, 1] = c * S[i], c * S[j]
            T[k, 0], T[k, 1] = s * S[j], -s * S[i]
            S[i] = S[j] = 1.0
        else:
            P[k, 0] = P[k, 1] = 1.0
            tangent, ratio = s / c, S[j] / S[i]
            T[k, 0], T[k, 1] = tangent * ratio, -tangent / ratio
            S[i] *= c
            S[j] *= c


@njit(nogil=True, cache=True)
def join(pairs, n):
    """An order of the rotations in which many come two by two, with a coordinate in common, and the rotations of each
    coordinate stay in the order they are in. Returns it, whether a rotation is one of two with the next (the common
    coordinate then comes first in both), and whether its coordinates change places for that.
    """
    ends = np.zeros(n + 1, np.int64)
    for k in range(len(pairs)):
        ends[pairs[k, 0] + 1] += 1
        ends[pairs[k, 1] + 1] += 1
    turn, filled = np.empty(n, np.int64), np.empty(n, np.int64)
    for i in range(n):
        ends[i + 1] += ends[i]
        turn[i] = filled[i] = ends[i]
    # Each coordinate's rotations.
    own, done = np.empty(2 * len(pairs), np.int64), np.zeros(len(pairs), np.bool_)
    for k in range(len(pairs)):
        for c in (pairs[k, 0], pairs[k, 1]):
            own[filled[c]] = k
            filled[c] += 1
    order = np.empty(len(pairs), np.int64)
    joined, swapped = np.zeros(len(pairs), np.bool_), np.zeros(len(pairs), np.bool_)
    first = at = 0
    while at < len(pairs):
        while done[first]:
            first += 1
        one, other, common, ready = first, -1, -1, 0  # the first that is not done could always be next
        for k in range(first, min(len(pairs), first + WINDOW)):
            i, j = pairs[k, 0], pairs[k, 1]
            if done[k] or own[turn[i]] != k or own[turn[j]] != k:
                continue
            ready += 1
            for c in (i, j):
                if turn[c] + 1 < ends[c + 1]:
                    following = own[turn[c] + 1]
                    partner = pairs[following, 0] + pairs[following, 1] - c
                    if partner != i + j - c and own[turn[partner]] == following:
                        one, other, common = k, following, c
            if other >= 0 or ready == READY:
                break
        joined[at] = other >= 0
        for k in (one, other):
            if k >= 0:
                order[at], swapped[at], done[k] = k, common >= 0 and pairs[k, 0] != common, True
                turn[pairs[k, 0]] += 1
                turn[pairs[k, 1]] += 1
                at += 1
    return order, joined, swapped


@njit(nogil=True, cache=True)
def run_vectors(x, y, count, n, mode, scaled, pairs, T, P, plain, diagonal):
    """Y = Qᵀ X (TO_BASIS), Q X (FROM_BASIS) or Q D Qᵀ X (SYMMETRIC) on ``count`` rows of n numbers at addresses x, y,
    one after another.

    Returns the flags raised.
    """
    clear_flags()
    for v in range(count):
        row = as_row(y + v * n * T.itemsize, n, T)
        source = as_row(x + v * n * T.itemsize, n, T)
        for i in range(n):  # row[:] = source takes seconds to compile, for the errors that it could raise
            row[i] = source[i]
        _run_vector(row, mode, scaled, pairs, T, P, plain, diagonal)
    return raised_flags()


@njit(nogil=True, cache=True)
def run_tiles(x, y, count, n, mode, scaled, pairs, T, P, plain, joined, diagonal, tile):
    """The same in tiles of vectors, for n of at least a register's numbers."""
    clear_flags()
    size, width = tile.itemsize, tile.shape[1]
    lines = -(-min(width, count) * n * size // LINE)
    for v in range(0, count, width):
        last = min(count - v, width) - 1
        _move(
            True,
            x + v * n * size,
            n,
            last,
            tile,
            diagonal.ctypes.data if scaled and mode == FROM_BASIS else 0,
        )
        # While the rotations work in the nearer caches, the next vectors and room for these come closer.
        ahead = (x + (v + width) * n * size, y + v * n * size, lines)
        if mode != FROM_BASIS:
            to_basis(pairs, T, P, plain, joined, tile, ahead)
        if mode == SYMMETRIC:
            for i in range(n):
                if diagonal[i] != 1.0:
                    scale_row(tile, tile.ctypes.data + i * width * size, diagonal[i])
        if mode != TO_BASIS:
            _from_basis(pairs, T, P, plain, joined, tile, ahead)
        _move(
            False, y + v * n * size, n, last, tile, diagonal.ctypes.data if scaled and mode == TO_BASIS else 0
        )
    return raised_flags()


@njit(nogil=True, cache=True)
def run_wedge(y, grad, grad_x, count, n, transpose, pairs, T, P, tile_y, tile_g, out):
    """Walk (y, grad) back through the plain rotation and add the wedge products to ``out`` (K,), float64. Returns the
    flags raised.
    """
    clear_flags()
    size, width = tile_y.itemsize, tile_y.shape[1]
    at_y, at_g = tile_y.ctypes.data, tile_g.ctypes.data
    row = width * size
    for v in range(0, count, width):
        last = min(count - v, width) - 1
        move_any(True, y + v * n * size, n, last, tile_y)
        move_any(True, grad + v * n * size, n, last, tile_g)
        tile_y[:, last + 1 :] = 0  # lanes that repeat the last row must not count in the sums
        for step in range(len(pairs)):
            k = len(pairs) - 1 - step if transpose else step
            i, j = pairs[k, 0] * row, pairs[k, 1] * row
            out[k] += wedge_rows(tile_y, at_y + i, at_y + j, at_g + i, at_g + j)
            t_i, t_j = (T[k, 1], T[k, 0]) if transpose else (T[k, 0], T[k, 1])
            rotate_rows_plain(tile_y, at_y + i, at_y + j, t_i, t_j, P[k, 0], P[k, 1])
            rotate_rows_plain(tile_y, at_g + i, at_g + j, t_i, t_j, P[k, 0], P[k, 1])
        move_any(False, grad_x + v * n * size, n, last, tile_g)
    return raised_flags()


@njit(nogil=True, cache=True)
def to_basis(pairs, T, P, plain, joined, tile, ahead):
    start, size, row = tile.ctypes.data, tile.itemsize, tile.shape[1] * tile.itemsize
    at, t = pairs.ctypes.data, T.ctypes.data
    (read, write, lines), line = ahead, 0
    k = 0
    while k < len(pairs):
        if line < lines:
            prefetch(tile, read + line * LINE, write + line * LINE)
            line += 1
        i, j = start + integer(at) * row, start + integer(at + 8) * row
        t_i, t_j = number(tile, t), number(tile, t + size)
        if joined[k]:
            other = start + integer(at + 24) * row
            s_i, s_k = number(tile, t + 2 * size), number(tile, t + 3 * size)
            rotate_three_rows(tile, i, j, other, t_i, t_j, s_i, s_k)
            k, at, t = k + 1, at + 16, t + 2 * size
        elif plain[k]:
            rotate_rows_plain(tile, i, j, t_i, t_j, P[k, 0], P[k, 1])
        else:
            rotate_rows(tile, i, j, t_i, t_j)
        k, at, t = k + 1, at + 16, t + 2 * size


@inlined
def _from_basis(pairs, T, P, plain, joined, tile, ahead):
    start, size, row = tile.ctypes.data, tile.itemsize, tile.shape[1] * tile.itemsize
    k = len(pairs) - 1
    at, t = pairs.ctypes.data + k * 16, T.ctypes.data + k * 2 * size
    (read, write, lines), line = ahead, 0
    while k >= 0:
        if line < lines:
            prefetch(tile, read + line * LINE, write + line * LINE)
            line += 1
        i, j = start + integer(at) * row, start + integer(at + 8) * row
        t_i, t_j = number(tile, t + size), number(tile, t)
        if k > 0 and joined[k - 1]:
            other = start + integer(at - 8) * row
            s_i, s_k = number(tile, t - size), number(tile, t - 2 * size)
            rotate_three_rows(tile, i, j, other, t_i, t_j, s_i, s_k)
            k, at, t = k - 1, at - 16, t - 2 * size
        elif plain[k]:
            rotate_rows_plain(tile, i, j, t_i, t_j, P[k, 0], P[k, 1])
        else:
            rotate_rows(tile, i, j, t_i, t_j)
        k, at, t = k - 1, at - 16, t - 2 * size


@inlined
def _run_vector(z, mode, scaled, pairs, T, P, plain, diagonal):
    if mode != FROM_BASIS:
        for k in range(len(pairs)):
            a, b = z[pairs[k, 0]], z[pairs[k, 1]]
            if plain[k]:
                z[pairs[k, 0]] = multiply_add(T[k, 0], b, P[k, 0] * a)
                z[pairs[k, 1]] = multiply_add(T[k, 1], a, P[k, 1] * b)
            else:
                z[pairs[k, 0]] = multiply_add(T[k, 0], b, a)
                z[pairs[k, 1]] = multiply_add(T[k, 1], a, b)
    if scaled:
        for i in range(len(z)):
            z[i] *= diagonal[i]
    if mode != TO_BASIS:
        for k in range(len(pairs) - 1, -1, -1):
            a, b = z[pairs[k, 0]], z[pairs[k, 1]]
            if plain[k]:
                z[pairs[k, 0]] = multiply_add(T[k, 1], b, P[k, 0] * a)
                z[pairs[k, 1]] = multiply_add(T[k, 0], a, P[k, 1] * b)
            else:
                z[pairs[k, 0]] = multiply_add(T[k, 1], b, a)
                z[pairs[k, 1]] = multiply_add(T[k, 0], a, b)


@inner
def _move(into_tile, batch, n, last, tile, factors):
    """Transpose up to ROW_REGISTERS groups of W vectors into, or out of, the tile, features times the ``factors`` at
    that address, unless it is 0. Needs n ≥ W.
    """
    size, width = tile.itemsize, tile.shape[1]
    lanes = width // ROW_REGISTERS
    for group in range(0, last + 1, lanes):
        rows = batch + group * n * size
        for block in range(0, n, lanes):
            f = min(block, n - lanes)  # the last block overlaps the one before it
            at, square = rows + f * size, tile.ctypes.data + (f * width + group) * size
            own = factors + f * size
            if into_tile and factors:
                scaled_square_in(tile, at, n, last - group, square, width, own)
            elif into_tile:
                square_in(tile, at, n, last - group, square, width, own)
            elif factors:
                scaled_square_out(tile, at, n, last - group, square, width, own)
            else:
                square_out(tile, at, n, last - group, square, width, own)


@njit(nogil=True, cache=True)
def move_any(into_tile, batch, n, last, tile):
    """The same for any n, number by number where a row is shorter than a register."""
    if n >= tile.shape[1] // ROW_REGISTERS:
        _move(into_tile, batch, n, last, tile, 0)
        return
    for v in range(last + 1):
        row = as_row(batch + v * n * tile.itemsize, n, tile)
        for i in range(n):
            if into_tile:
                tile[i, v] = row[i]
            else:
                row[i] = tile[i, v]
