"""Triton kernel for Σ d w² of each vector w, over the whole range."""

from __future__ import annotations

import triton
import triton.language as tl

from swallowtail.kernels.gpu.triton.ranges import exponent, power, times_power


@triton.jit(do_not_specialize=["n_rows", "row_blocks"])
def squares_kernel(
    w_ptr, d_ptr, out_ptr, n, n_rows, row_blocks, ROWS: tl.constexpr, COLS: tl.constexpr
):  # fmt: skip
    """For w (B, n_rows, n) and d (B, n), (B, n_rows). The second reading of w finds it in a cache."""
    batch = (tl.program_id(0) // row_blocks).to(tl.int64)
    rows = (tl.program_id(0) % row_blocks).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    w_ptr += (batch * n_rows + rows[:, None]) * n
    d_ptr += batch * n
    inside = (rows < n_rows)[:, None]
    DTYPE: tl.constexpr = w_ptr.dtype.element_ty
    largest = tl.zeros((ROWS, COLS), DTYPE)
    largest_d = tl.zeros((COLS,), DTYPE)
    for start in range(0, n, COLS):
        at = start + tl.arange(0, COLS)
        w = tl.load(w_ptr + at[None, :], mask=inside & (at < n)[None, :], other=0.0)
        d = tl.load(d_ptr + at, mask=at < n, other=0.0)
        largest = tl.maximum(largest, tl.abs(w))
        largest_d = tl.maximum(largest_d, tl.abs(d))
    size = exponent(tl.max(largest, axis=1))
    size_d = exponent(tl.max(largest_d, axis=0))
    factor = power(-size, DTYPE)[:, None]
    factor_d = power(-size_d, DTYPE)
    total = tl.zeros((ROWS, COLS), DTYPE)
    for start in range(0, n, COLS):
        at = start + tl.arange(0, COLS)
        w = tl.load(w_ptr + at[None, :], mask=inside & (at < n)[None, :], other=0.0) * factor
        d = tl.load(d_ptr + at, mask=at < n, other=0.0) * factor_d
        total += w * (w * d[None, :])
    result = times_power(tl.sum(total, axis=1), 2 * size + size_d, 3)
    tl.store(out_ptr + batch * n_rows + rows, result.to(out_ptr.dtype.element_ty), mask=rows < n_rows)
