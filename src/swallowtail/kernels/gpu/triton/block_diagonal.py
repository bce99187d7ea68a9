"""Triton kernels for block-diagonal matrices times many vectors, and for the gradients of such products.

Programs are persistent. Each keeps the matrix of one block and walks through tiles of ROWS vectors, of which it takes
the block's coordinates.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _matrix(ptr, block, TRANSPOSE: tl.constexpr, SIZE: tl.constexpr):
    """The right factor (from, to) of rows, from matrices (blocks, to, from) in memory; of their transposes."""
    at = tl.arange(0, SIZE)
    ptr += block * (SIZE * SIZE)
    if TRANSPOSE:
        return tl.load(ptr + at[:, None] * SIZE + at[None, :])
    return tl.load(ptr + at[:, None] + at[None, :] * SIZE)


@triton.jit
def _places(tile, start, stop, n, n_rows, EVEN: tl.constexpr, SIZE: tl.constexpr, ROWS: tl.constexpr):
    """Offsets of a tile's numbers, and which of them exist."""
    rows = (tile * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    at = start + tl.arange(0, SIZE)
    inside = (rows < n_rows)[:, None]
    if not EVEN:
        inside = inside & (at < stop)[None, :]
    return rows[:, None] * n + at[None, :], inside


@triton.jit
def block_diagonal_kernel(
    x_ptr, y_ptr, matrix_ptr, start_ptr, gain_ptr, n_rows, n_units, blocks, tiles, workers,
    TRANSPOSE: tl.constexpr, GAIN: tl.constexpr, EVEN: tl.constexpr, UNIT: tl.constexpr, SIZE: tl.constexpr,
    ROWS: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """y = M x, or Mᵀ x (TRANSPOSE), for n_rows vectors of n = UNIT · n_units numbers; times a factor (GAIN).

    Args:
        x_ptr: vectors (n_rows, n).
        y_ptr: where the result goes.
        matrix_ptr: M of every block, (blocks, SIZE, SIZE): to, from.
        start_ptr: where each block starts, (blocks + 1,), multiples of UNIT.
        gain_ptr: one float32 factor.
        n_rows: vectors.
        n_units: n / UNIT.
        blocks: of M.
        tiles: of ROWS vectors.
        workers: programs per block.
        TRANSPOSE: multiply by the transpose.
        GAIN: there is a factor.
        EVEN: all blocks have SIZE coordinates.
        UNIT: 8, 4, 2 or 1: so many numbers can be accessed at once.
        SIZE: coordinates of a block.
        ROWS: vectors per tile.
        STAGES: tiles on their way from memory.
        PRECISION: of products of float32.
    """
    n = n_units * UNIT
    block = tl.program_id(0) % blocks
    # A product shows the compiler that starts are multiples, so that accesses may be wide.
    start = tl.load(start_ptr + block) // UNIT * UNIT
    stop = tl.load(start_ptr + block + 1) // UNIT * UNIT
    matrix = _matrix(matrix_ptr, block, TRANSPOSE, SIZE)
    gain = tl.load(gain_ptr) if GAIN else 1.0
    for tile in tl.range(tl.program_id(0) // blocks, tiles, workers, num_stages=STAGES):
        place, inside = _places(tile, start, stop, n, n_rows, EVEN, SIZE, ROWS)
        x = tl.load(x_ptr + place, mask=inside, other=0.0)
        y = tl.dot(x, matrix, input_precision=PRECISION)
        if GAIN:
            y *= gain
        tl.store(y_ptr + place, y.to(x.dtype), mask=inside)


@triton.jit
def block_diagonal_backward_kernel(
    y_ptr, g_ptr, out_ptr, matrix_ptr, start_ptr, sums_ptr, n_rows, n_units, blocks, tiles, workers,
    TRANSPOSE: tl.constexpr, EVEN: tl.constexpr, UNIT: tl.constexpr, SIZE: tl.constexpr, ROWS: tl.constexpr,
    STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """From y = M x and its gradient g: W = Σ g yᵀ of every block, and the gradient Mᵀ g of x. TRANSPOSE: y = Mᵀ x.

    Each program sums over its own vectors; sums_ptr is (workers, blocks, SIZE, SIZE), float32. The other arguments are
    those of `block_diagonal_kernel`.
    """
    n = n_units * UNIT
    block = tl.program_id(0) % blocks
    worker = tl.program_id(0) // blocks
    # A product shows the compiler that starts are multiples, so that accesses may be wide.
    start = tl.load(start_ptr + block) // UNIT * UNIT
    stop = tl.load(start_ptr + block + 1) // UNIT * UNIT
    matrix = _matrix(matrix_ptr, block, not TRANSPOSE, SIZE)
    sums = tl.zeros((SIZE, SIZE), tl.float32)
    for tile in tl.range(worker, tiles, workers, num_stages=STAGES):
        place, inside = _places(tile, start, stop, n, n_rows, EVEN, SIZE, ROWS)
        y = tl.load(y_ptr + place, mask=inside, other=0.0)
        g = tl.load(g_ptr + place, mask=inside, other=0.0)
        sums = tl.dot(tl.trans(g), y, sums, input_precision=PRECISION)
        out = tl.dot(g, matrix, input_precision=PRECISION)
        tl.store(out_ptr + place, out.to(g.dtype), mask=inside)
    at = tl.arange(0, SIZE)
    place = (worker.to(tl.int64) * blocks + block) * (SIZE * SIZE) + at[:, None] * SIZE + at[None, :]
    tl.store(sums_ptr + place, sums)
