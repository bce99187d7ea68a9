"""Triton kernels for any pairs: one lane per vector, in a scratch buffer that stays in cache.

A program copies LANES vectors into its scratch buffer, one row of lanes per coordinate that a rotation touches. It
rotates these rows chunk by chunk and copies them back. A chunk is up to SLOTS disjoint pairs
(`kernels.gpu.pairs.schedule`), so its loads may all be in flight together. A barrier separates it from the next chunk.
Empty places of a chunk have first = −1. Here u = cos θ and v = sin θ.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _chunk(first_ptr, second_ptr, u_ptr, v_ptr, chunk, SLOTS: tl.constexpr):
    """The rows and coefficients of a chunk's pairs, each (SLOTS,)."""
    place = chunk * SLOTS + tl.arange(0, SLOTS)
    return (
        tl.load(first_ptr + place),
        tl.load(second_ptr + place),
        tl.load(u_ptr + place),
        tl.load(v_ptr + place),
    )


@triton.jit
def _rotated(a, b, u, v, TRANSPOSE: tl.constexpr):
    c = u[:, None]
    s = v[:, None]
    if TRANSPOSE:
        p = c * a + s * b
        q = c * b - s * a
    else:
        p = c * a - s * b
        q = c * b + s * a
    return p, q


@triton.jit
def _turn(
    work_ptr, first_ptr, second_ptr, u_ptr, v_ptr, n_chunks, TRANSPOSE: tl.constexpr, SLOTS: tl.constexpr,
    LANES: tl.constexpr,
):  # fmt: skip
    """All rotations of Qᵀ (TRANSPOSE: chunks in the order of the schedule) or of Q (in the opposite order)."""
    lanes = tl.arange(0, LANES)[None, :]
    chunk = 0 if TRANSPOSE else n_chunks - 1
    i, j, u, v = _chunk(first_ptr, second_ptr, u_ptr, v_ptr, chunk, SLOTS)
    for k in range(n_chunks):
        # Load the next chunk's table entries before this chunk's data: their latency is then hidden.
        chunk = tl.minimum(k + 1, n_chunks - 1) if TRANSPOSE else tl.maximum(n_chunks - 2 - k, 0)
        next_i, next_j, next_u, next_v = _chunk(first_ptr, second_ptr, u_ptr, v_ptr, chunk, SLOTS)
        live = (i >= 0)[:, None]
        a_ptr = work_ptr + i[:, None] * LANES + lanes
        b_ptr = work_ptr + j[:, None] * LANES + lanes
        a = tl.load(a_ptr, mask=live)
        b = tl.load(b_ptr, mask=live)
        p, q = _rotated(a, b, u, v, TRANSPOSE)
        tl.store(a_ptr, p, mask=live)
        tl.store(b_ptr, q, mask=live)
        tl.debug_barrier()
        i, j, u, v = next_i, next_j, next_u, next_v


@triton.jit
def _copy_in(
    x_ptr, y_ptr, work_ptr, row_of_ptr, middle_ptr, lanes, n, n_lanes, MIDDLE: tl.constexpr,
    WRITE: tl.constexpr, DTYPE: tl.constexpr, LANES: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Copy touched coordinates to the scratch buffer, and (WRITE) the others, which no rotation changes, to y."""
    local = tl.arange(0, LANES)[:, None]
    for start in range(0, n, COLS):
        cols = start + tl.arange(0, COLS)
        row = tl.load(row_of_ptr + cols, mask=cols < n, other=-1)
        offsets = lanes[:, None] * n + cols[None, :]
        inside = (lanes < n_lanes)[:, None] & (cols < n)[None, :]
        x = tl.load(x_ptr + offsets, mask=inside, other=0.0).to(DTYPE)
        touched = (row >= 0)[None, :]
        tl.store(work_ptr + row[None, :] * LANES + local, x, mask=touched & (cols < n)[None, :])
        if WRITE:
            if MIDDLE:
                x = x * tl.load(middle_ptr + cols, mask=cols < n, other=0.0)[None, :]
            tl.store(y_ptr + offsets, x.to(y_ptr.dtype.element_ty), mask=inside & (row < 0)[None, :])
    tl.debug_barrier()


@triton.jit
def _copy_out(
    y_ptr, work_ptr, coordinate_ptr, lanes, n, n_touched, n_lanes, LANES: tl.constexpr, COLS: tl.constexpr
):  # fmt: skip
    """Copy the scratch buffer to the touched coordinates of y."""
    local = tl.arange(0, LANES)[:, None]
    for start in range(0, n_touched, COLS):
        row = start + tl.arange(0, COLS)
        cols = tl.load(coordinate_ptr + row, mask=row < n_touched, other=0)
        inside = (lanes < n_lanes)[:, None] & (row < n_touched)[None, :]
        x = tl.load(work_ptr + row[None, :] * LANES + local, mask=inside, other=0.0)
        tl.store(y_ptr + lanes[:, None] * n + cols[None, :], x.to(y_ptr.dtype.element_ty), mask=inside)
    tl.debug_barrier()


@triton.jit
def _multiply_rows(
    work_ptr, coordinate_ptr, middle_ptr, n_touched, LANES: tl.constexpr, COLS: tl.constexpr
):  # fmt: skip
    """Multiply each row of the scratch buffer by its coordinate's entry of the diagonal."""
    lanes = tl.arange(0, LANES)[None, :]
    for start in range(0, n_touched, COLS):
        row = start + tl.arange(0, COLS)
        inside = row < n_touched
        d = tl.load(middle_ptr + tl.load(coordinate_ptr + row, mask=inside, other=0), mask=inside, other=0.0)
        place = work_ptr + row[:, None] * LANES + lanes
        tl.store(place, tl.load(place, mask=inside[:, None]) * d[:, None], mask=inside[:, None])
    tl.debug_barrier()


@triton.jit
def pairs_kernel(
    x_ptr, y_ptr, work_ptr, first_ptr, second_ptr, u_ptr, v_ptr, coordinate_ptr, row_of_ptr, middle_ptr,
    n, n_touched, n_chunks, n_rows, lane_blocks, per_batch,
    TO_BASIS: tl.constexpr, FROM_BASIS: tl.constexpr, MIDDLE: tl.constexpr, SLOTS: tl.constexpr,
    LANES: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Qᵀ (TO_BASIS), then D (MIDDLE), then Q (FROM_BASIS), each optional, on blocks of LANES vectors."""
    batch = (tl.program_id(0) // per_batch).to(tl.int64)
    x_ptr += batch * n_rows * n
    y_ptr += batch * n_rows * n
    u_ptr += batch * n_chunks * SLOTS
    v_ptr += batch * n_chunks * SLOTS
    middle_ptr += batch * n
    work_ptr += tl.program_id(0).to(tl.int64) * n_touched * LANES
    DTYPE: tl.constexpr = work_ptr.dtype.element_ty
    for block in range(tl.program_id(0) % per_batch, lane_blocks, per_batch):
        lanes = tl.cast(block, tl.int64) * LANES + tl.arange(0, LANES)
        _copy_in(
            x_ptr, y_ptr, work_ptr, row_of_ptr, middle_ptr, lanes, n, n_rows, MIDDLE, True, DTYPE, LANES, COLS
        )  # fmt: skip
        if TO_BASIS:
            _turn(work_ptr, first_ptr, second_ptr, u_ptr, v_ptr, n_chunks, True, SLOTS, LANES)
        if MIDDLE:
            _multiply_rows(work_ptr, coordinate_ptr, middle_ptr, n_touched, LANES, COLS)
        if FROM_BASIS:
            _turn(work_ptr, first_ptr, second_ptr, u_ptr, v_ptr, n_chunks, False, SLOTS, LANES)
        _copy_out(y_ptr, work_ptr, coordinate_ptr, lanes, n, n_touched, n_rows, LANES, COLS)


@triton.jit
def pairs_backward_kernel(
    y_ptr, g_ptr, g_out_ptr, work_ptr, sum_ptr, first_ptr, second_ptr, u_ptr, v_ptr, coordinate_ptr,
    row_of_ptr, n, n_touched, n_chunks, n_rows, lane_blocks, per_batch,
    TRANSPOSE: tl.constexpr, SLOTS: tl.constexpr, LANES: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Walk back from y = Q x (TRANSPOSE) or y = Qᵀ x with its gradient g; each program keeps its own sums."""
    program = tl.program_id(0).to(tl.int64)
    batch = program // per_batch
    y_ptr += batch * n_rows * n
    g_ptr += batch * n_rows * n
    g_out_ptr += batch * n_rows * n
    u_ptr += batch * n_chunks * SLOTS
    v_ptr += batch * n_chunks * SLOTS
    sum_ptr += program * n_chunks * SLOTS
    work_ptr += program * 2 * n_touched * LANES
    grad_ptr = work_ptr + n_touched * LANES
    DTYPE: tl.constexpr = work_ptr.dtype.element_ty
    local = tl.arange(0, LANES)[None, :]
    for block in range(tl.program_id(0) % per_batch, lane_blocks, per_batch):
        lanes = tl.cast(block, tl.int64) * LANES + tl.arange(0, LANES)
        _copy_in(
            y_ptr, g_out_ptr, work_ptr, row_of_ptr, u_ptr, lanes, n, n_rows, False, False, DTYPE, LANES, COLS
        )  # fmt: skip
        _copy_in(
            g_ptr, g_out_ptr, grad_ptr, row_of_ptr, u_ptr, lanes, n, n_rows, False, True, DTYPE, LANES, COLS
        )  # fmt: skip
        for k in range(n_chunks):
            chunk = k if TRANSPOSE else n_chunks - 1 - k
            i, j, u, v = _chunk(first_ptr, second_ptr, u_ptr, v_ptr, chunk, SLOTS)
            live = (i >= 0)[:, None]
            a_place = i[:, None] * LANES + local
            b_place = j[:, None] * LANES + local
            ya = tl.load(work_ptr + a_place, mask=live, other=0.0)
            yb = tl.load(work_ptr + b_place, mask=live, other=0.0)
            ga = tl.load(grad_ptr + a_place, mask=live, other=0.0)
            gb = tl.load(grad_ptr + b_place, mask=live, other=0.0)
            sums = sum_ptr + chunk * SLOTS + tl.arange(0, SLOTS)
            tl.store(sums, tl.load(sums) + tl.sum(gb * ya - ga * yb, axis=1))
            ya, yb = _rotated(ya, yb, u, v, TRANSPOSE)
            ga, gb = _rotated(ga, gb, u, v, TRANSPOSE)
            tl.store(work_ptr + a_place, ya, mask=live)
            tl.store(work_ptr + b_place, yb, mask=live)
            tl.store(grad_ptr + a_place, ga, mask=live)
            tl.store(grad_ptr + b_place, gb, mask=live)
            tl.debug_barrier()
        _copy_out(g_out_ptr, grad_ptr, coordinate_ptr, lanes, n, n_touched, n_rows, LANES, COLS)
