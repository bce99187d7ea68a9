"""Tiles: which coordinates of the vectors a program works on, and how it loads and stores them.

A tile has 2^BITS coordinates spaced STRIDE apart, times COLS neighbours of each. A contiguous tile has STRIDE = 1 and
COLS = 1.
"""

from __future__ import annotations

import triton
import triton.language as tl

from swallowtail.kernels.gpu.triton.groups import first_bit, from_group, radix, to_group


@triton.jit
def _coordinates(index, tile, COLS: tl.constexpr, BITS: tl.constexpr, STRIDE: tl.constexpr):
    """Coordinate in the vector of element ``index`` of tile ``tile``.

    It is an int64, because n times a row number may pass 2^31.
    """
    if COLS == 1:
        coordinates = tile.to(tl.int64) * 2**BITS + index
    else:
        blocks: tl.constexpr = STRIDE // COLS  # column blocks side by side between two strides
        base = (tile // blocks).to(tl.int64) * (STRIDE * 2**BITS) + (tile % blocks) * COLS
        coordinates = base + (index // COLS) * STRIDE + index % COLS
    return coordinates


@triton.jit
def _tile_offsets(
    rows, tile, n, n_rows, GROUP: tl.constexpr, EVEN: tl.constexpr, GROUPS: tl.constexpr,
    BITS: tl.constexpr, COLS: tl.constexpr, STRIDE: tl.constexpr,
):  # fmt: skip
    """Offsets and mask of a tile: (ROWS, N) if GROUP < 0, else (M, ROWS, 2^r), the layout of that group.

    In the second form neighbouring threads take neighbouring coordinates one at a time. The hint ``max_contiguous``
    stops the compiler from giving each thread four of them, which it would have to exchange afterwards.
    """
    N: tl.constexpr = COLS * 2**BITS
    if GROUP < 0:
        coordinates = _coordinates(tl.arange(0, N), tile, COLS, BITS, STRIDE)
        offsets = rows[:, None] * n + coordinates[None, :]
        mask = (rows < n_rows)[:, None]
        if not EVEN:
            mask = mask & (coordinates < n)[None, :]
    else:
        RADIX: tl.constexpr = 2 ** radix(GROUP, GROUPS, BITS)
        LOW: tl.constexpr = COLS * 2 ** first_bit(GROUP, GROUPS, BITS)
        M: tl.constexpr = N // RADIX
        position = tl.arange(0, M)[:, None]
        index = (position // LOW) * (RADIX * LOW) + tl.arange(0, RADIX)[None, :] * LOW + position % LOW
        coordinates = _coordinates(index, tile, COLS, BITS, STRIDE)
        offsets = tl.max_contiguous(rows[None, :, None] * n + coordinates[:, None, :], (1, 1, 1))
        mask = (rows < n_rows)[None, :, None]
        if not EVEN:
            mask = mask & (coordinates < n)[:, None, :]
    return offsets, mask


@triton.jit
def load_tile(
    x_ptr, rows, tile, n, n_rows, DTYPE: tl.constexpr, GROUP: tl.constexpr, EVEN: tl.constexpr,
    GROUPS: tl.constexpr, BITS: tl.constexpr, COLS: tl.constexpr, ROWS: tl.constexpr, STRIDE: tl.constexpr,
):  # fmt: skip
    """A tile as (ROWS, N) in DTYPE, read in the layout of GROUP (−1: as rows). EVEN: every coordinate is below n."""
    offsets, mask = _tile_offsets(rows, tile, n, n_rows, GROUP, EVEN, GROUPS, BITS, COLS, STRIDE)
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(DTYPE)
    if GROUP >= 0:
        RADIX: tl.constexpr = 2 ** radix(GROUP, GROUPS, BITS)
        LOW: tl.constexpr = COLS * 2 ** first_bit(GROUP, GROUPS, BITS)
        x = from_group(tl.permute(x, (2, 1, 0)), RADIX, LOW, COLS * 2**BITS // (RADIX * LOW), ROWS)
    return x


@triton.jit
def store_tile(
    y_ptr, x, rows, tile, n, n_rows, GROUP: tl.constexpr, EVEN: tl.constexpr, GROUPS: tl.constexpr,
    BITS: tl.constexpr, COLS: tl.constexpr, ROWS: tl.constexpr, STRIDE: tl.constexpr,
):  # fmt: skip
    """Write a tile (ROWS, N) in the layout of GROUP (−1: as rows)."""
    offsets, mask = _tile_offsets(rows, tile, n, n_rows, GROUP, EVEN, GROUPS, BITS, COLS, STRIDE)
    if GROUP >= 0:
        RADIX: tl.constexpr = 2 ** radix(GROUP, GROUPS, BITS)
        LOW: tl.constexpr = COLS * 2 ** first_bit(GROUP, GROUPS, BITS)
        x = tl.permute(to_group(x, RADIX, LOW, COLS * 2**BITS // (RADIX * LOW), ROWS), (2, 1, 0))
    tl.store(y_ptr + offsets, x.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def load_diagonal(
    ptr, tile, n, EVEN: tl.constexpr, BITS: tl.constexpr, COLS: tl.constexpr, STRIDE: tl.constexpr
):  # fmt: skip
    """A tile's part of a diagonal (n,), as (1, N)."""
    coordinates = _coordinates(tl.arange(0, COLS * 2**BITS), tile, COLS, BITS, STRIDE)
    if EVEN:  # noqa: SIM108 (the compiler takes one branch)
        diagonal = tl.load(ptr + coordinates)
    else:
        diagonal = tl.load(ptr + coordinates, mask=coordinates < n, other=0.0)
    return diagonal[None, :]
