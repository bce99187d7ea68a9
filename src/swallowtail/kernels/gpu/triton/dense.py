"""Triton kernel for one small dense matrix times many vectors."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def dense_kernel(
    x_ptr, y_ptr, matrix_ptr, gain_ptr, n_rows, n_eighths, tiles, programs,
    GAIN: tl.constexpr, EVEN: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """y = M x for n_rows vectors of n = 8 n_eighths ≤ N numbers, with M (N, N); times a factor (GAIN).

    Programs are persistent: each keeps the matrix and walks through tiles of ROWS vectors.
    """
    n = n_eighths * 8
    at = tl.arange(0, N)
    matrix = tl.load(matrix_ptr + at[:, None] + at[None, :] * N)
    gain = tl.load(gain_ptr) if GAIN else 1.0
    for tile in tl.range(tl.program_id(0), tiles, programs, num_stages=STAGES):
        rows = (tile * ROWS + tl.arange(0, ROWS)).to(tl.int64)
        place = rows[:, None] * n + at[None, :]
        inside = (rows < n_rows)[:, None] if EVEN else (rows < n_rows)[:, None] & (at < n)[None, :]
        x = tl.load(x_ptr + place, mask=inside, other=0.0)
        y = tl.dot(x, matrix)
        if GAIN:
            y *= gain
        tl.store(y_ptr + place, y.to(x.dtype), mask=inside)
