"""Data-chosen pairs on the CPU: the rotations one after another on a tile of vectors, or on a single vector.

The coefficients are those of `cpu_butterfly`, Qᵀ = S·M with M a product of fast Givens steps, but stored
rotation by rotation: ``T[k] = (T_i, T_j)``, and ``P[k]`` where a rotation is plain.
"""

from __future__ import annotations

from swallowtail.kernels._numba import njit
from swallowtail.kernels.simd import as_row
from swallowtail.kernels.simd_rows import (
    ROW_REGISTERS,
    rotate_rows,
    rotate_rows_plain,
    scale_row,
    square_in,
    square_out,
    wedge_rows,
)

DOWN, UP, SYMMETRIC = 0, 1, 2


@njit(nogil=True, cache=True)
def pack(cos, sin, pairs, fast, tiny_cos, tiny_scale, T, P, S, plain):
    """Fill the coefficients; a rotation is plain where the scales would leave the dtype's safe range."""
    S[:] = 1.0
    for k in range(len(pairs)):
        i, j = pairs[k]
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
def run(x, y, count, n, mode, scaled, pairs, T, P, plain, diagonal, tile):
    """Y = Qᵀ X (DOWN), Q X (UP) or Q D Qᵀ X (SYMMETRIC) on ``count`` rows of n numbers at addresses x, y."""
    size, width = tile.itemsize, tile.shape[1]
    lanes = width // ROW_REGISTERS
    few = max(2, lanes // 4)  # below this a tile's lanes are mostly idle; a single vector has no tile
    if count < few or n < lanes:
        for v in range(count):
            row = as_row(y + v * n * size, n, tile)
            row[:] = as_row(x + v * n * size, n, tile)
            _run_vector(row, mode, scaled, pairs, T, P, plain, diagonal)
        return
    for v in range(0, count, width):
        last = min(count - v, width) - 1
        _move(True, x + v * n * size, n, last, tile)
        if mode != UP:
            down(pairs, T, P, plain, tile)
        if scaled:
            for i in range(n):
                if diagonal[i] != 1.0:  # coordinates that no rotation touches
                    scale_row(tile, tile.ctypes.data + i * width * size, diagonal[i])
        if mode != DOWN:
            _up(pairs, T, P, plain, tile)
        _move(False, y + v * n * size, n, last, tile)


@njit(nogil=True, cache=True)
def run_wedge(y, grad, grad_x, count, n, transpose, pairs, T, P, tile_y, tile_g, out):
    """Walk (y, grad) back through the plain rotation and add the wedge products to ``out`` (K,), float64."""
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


@njit(nogil=True, cache=True)
def down(pairs, T, P, plain, tile):
    start, row = tile.ctypes.data, tile.shape[1] * tile.itemsize
    for k in range(len(pairs)):
        i, j = start + pairs[k, 0] * row, start + pairs[k, 1] * row
        if plain[k]:
            rotate_rows_plain(tile, i, j, T[k, 0], T[k, 1], P[k, 0], P[k, 1])
        else:
            rotate_rows(tile, i, j, T[k, 0], T[k, 1])


@njit(nogil=True, cache=True)
def _up(pairs, T, P, plain, tile):
    start, row = tile.ctypes.data, tile.shape[1] * tile.itemsize
    for k in range(len(pairs) - 1, -1, -1):
        i, j = start + pairs[k, 0] * row, start + pairs[k, 1] * row
        if plain[k]:
            rotate_rows_plain(tile, i, j, T[k, 1], T[k, 0], P[k, 0], P[k, 1])
        else:
            rotate_rows(tile, i, j, T[k, 1], T[k, 0])


@njit(nogil=True, cache=True)
def _run_vector(z, mode, scaled, pairs, T, P, plain, diagonal):
    if mode != UP:
        for k in range(len(pairs)):
            a, b = z[pairs[k, 0]], z[pairs[k, 1]]
            if plain[k]:
                z[pairs[k, 0]] = P[k, 0] * a + T[k, 0] * b
                z[pairs[k, 1]] = P[k, 1] * b + T[k, 1] * a
            else:
                z[pairs[k, 0]] = a + T[k, 0] * b
                z[pairs[k, 1]] = b + T[k, 1] * a
    if scaled:
        for i in range(len(z)):
            z[i] *= diagonal[i]
    if mode != DOWN:
        for k in range(len(pairs) - 1, -1, -1):
            a, b = z[pairs[k, 0]], z[pairs[k, 1]]
            if plain[k]:
                z[pairs[k, 0]] = P[k, 0] * a + T[k, 1] * b
                z[pairs[k, 1]] = P[k, 1] * b + T[k, 0] * a
            else:
                z[pairs[k, 0]] = a + T[k, 1] * b
                z[pairs[k, 1]] = b + T[k, 0] * a


@njit(nogil=True, cache=True)
def _move(into_tile, batch, n, last, tile):
    """Transpose up to ROW_REGISTERS groups of W vectors into, or out of, the tile. Needs n ≥ W."""
    size, width = tile.itemsize, tile.shape[1]
    lanes = width // ROW_REGISTERS
    for group in range(0, last + 1, lanes):
        rows = batch + group * n * size
        for block in range(0, n, lanes):
            f = min(block, n - lanes)  # the last block overlaps the one before it
            at, square = rows + f * size, tile.ctypes.data + (f * width + group) * size
            if into_tile:
                square_in(tile, at, n, last - group, square, width)
            else:
                square_out(tile, at, n, last - group, square, width)


@njit(nogil=True, cache=True)
def move_any(into_tile, batch, n, last, tile):
    """The same for any n, number by number where a row is shorter than a register."""
    if n >= tile.shape[1] // ROW_REGISTERS:
        _move(into_tile, batch, n, last, tile)
        return
    for v in range(last + 1):
        row = as_row(batch + v * n * tile.itemsize, n, tile)
        for i in range(n):
            if into_tile:
                tile[i, v] = row[i]
            else:
                row[i] = tile[i, v]
