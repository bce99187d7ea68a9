"""Triton kernels for any pairs: one lane per vector, in a scratch buffer that stays in cache.

A program copies LANES vectors into its scratch buffer, one row of lanes per coordinate that a rotation touches. It
rotates these rows chunk by chunk and copies them back. A chunk is up to SLOTS disjoint pairs
(`kernels.gpu.pairs.schedule`), so its loads may all be in flight together. A barrier separates it from the next chunk.
Empty places of a chunk have first = −1. Here u = cos θ and v = sin θ.

Where numbers of the vectors are far from 1, they are taken times powers of two (`ranges`): in the scratch buffer, by a
loop that usual vectors do not need. A diagonal is always divided by a power of two.
"""

from __future__ import annotations

import triton
import triton.language as tl

from swallowtail.kernels.gpu.triton.ranges import (
    NOTHING,
    at_least_lost,
    exponent,
    power,
    product_exponent,
    times_power,
)


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
    """Copy touched coordinates to the scratch buffer, and (WRITE) the others, which no rotation changes, to y.

    Returns the largest touched number of each vector, (LANES,).
    """
    local = tl.arange(0, LANES)[:, None]
    largest = tl.zeros((LANES, COLS), DTYPE)
    for start in range(0, n, COLS):
        cols = start + tl.arange(0, COLS)
        row = tl.load(row_of_ptr + cols, mask=cols < n, other=-1)
        offsets = lanes[:, None] * n + cols[None, :]
        inside = (lanes < n_lanes)[:, None] & (cols < n)[None, :]
        x = tl.load(x_ptr + offsets, mask=inside, other=0.0).to(DTYPE)
        touched = (row >= 0)[None, :]
        largest = tl.maximum(largest, tl.where(touched, tl.abs(x), 0.0))
        tl.store(work_ptr + row[None, :] * LANES + local, x, mask=touched & (cols < n)[None, :])
        if WRITE:
            if MIDDLE:
                x = x * tl.load(middle_ptr + cols, mask=cols < n, other=0.0)[None, :]
            tl.store(y_ptr + offsets, x.to(y_ptr.dtype.element_ty), mask=inside & (row < 0)[None, :])
    tl.debug_barrier()
    return tl.max(largest, axis=1)


@triton.jit
def _unusual(largest):
    """Whether products of some vectors with others might leave the range, for the largest number of each."""
    LIMIT: tl.constexpr = 400 if largest.dtype == tl.float64 else 40
    e = exponent(largest)
    return tl.max(((largest > 0) & ((e < -LIMIT) | (e > LIMIT))).to(tl.int32), axis=0) > 0


@triton.jit
def _scale_rows(work_ptr, size, n_touched, LANES: tl.constexpr, COLS: tl.constexpr):
    """Multiply each vector in the scratch buffer by 2^size, (LANES,)."""
    lanes = tl.arange(0, LANES)[None, :]
    for start in range(0, n_touched, COLS):
        row = (start + tl.arange(0, COLS))[:, None]
        place = work_ptr + row * LANES + lanes
        x = tl.load(place, mask=row < n_touched, other=0.0)
        tl.store(place, times_power(x, size[None, :], 2), mask=row < n_touched)
    tl.debug_barrier()


@triton.jit
def _diagonal_exponent(middle_ptr, n, DTYPE: tl.constexpr, COLS: tl.constexpr):
    """The exponent of the largest number of the diagonal."""
    largest = tl.zeros((COLS,), DTYPE)
    for start in range(0, n, COLS):
        cols = start + tl.arange(0, COLS)
        largest = tl.maximum(largest, tl.abs(tl.load(middle_ptr + cols, mask=cols < n, other=0.0)))
    return exponent(tl.max(largest, axis=0))


@triton.jit
def _copy_out(
    y_ptr, work_ptr, coordinate_ptr, size, lanes, n, n_touched, n_lanes, LANES: tl.constexpr, COLS: tl.constexpr
):  # fmt: skip
    """Copy the scratch buffer, times 2^size for each vector, (LANES,), to the touched coordinates of y."""
    local = tl.arange(0, LANES)[:, None]
    for start in range(0, n_touched, COLS):
        row = start + tl.arange(0, COLS)
        cols = tl.load(coordinate_ptr + row, mask=row < n_touched, other=0)
        inside = (lanes < n_lanes)[:, None] & (row < n_touched)[None, :]
        x = tl.load(work_ptr + row[None, :] * LANES + local, mask=inside, other=0.0)
        x = times_power(x, size[:, None], 2)
        tl.store(y_ptr + lanes[:, None] * n + cols[None, :], x.to(y_ptr.dtype.element_ty), mask=inside)
    tl.debug_barrier()


@triton.jit
def _multiply_rows(
    work_ptr, coordinate_ptr, middle_ptr, factor, n_touched, LANES: tl.constexpr, COLS: tl.constexpr
):  # fmt: skip
    """Multiply each row of the scratch buffer by its coordinate's entry of the diagonal times a factor."""
    lanes = tl.arange(0, LANES)[None, :]
    for start in range(0, n_touched, COLS):
        row = start + tl.arange(0, COLS)
        inside = row < n_touched
        d = tl.load(middle_ptr + tl.load(coordinate_ptr + row, mask=inside, other=0), mask=inside, other=0.0)
        d = d * factor
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
    if MIDDLE:
        size_d = _diagonal_exponent(middle_ptr, n, DTYPE, COLS)
        factor = power(-size_d, DTYPE)
    for block in range(tl.program_id(0) % per_batch, lane_blocks, per_batch):
        lanes = tl.cast(block, tl.int64) * LANES + tl.arange(0, LANES)
        largest = _copy_in(
            x_ptr, y_ptr, work_ptr, row_of_ptr, middle_ptr, lanes, n, n_rows, MIDDLE, True, DTYPE, LANES, COLS
        )  # fmt: skip
        size = tl.zeros((LANES,), tl.int32)
        if _unusual(largest):
            size = exponent(largest)
            _scale_rows(work_ptr, -size, n_touched, LANES, COLS)
        if TO_BASIS:
            _turn(work_ptr, first_ptr, second_ptr, u_ptr, v_ptr, n_chunks, True, SLOTS, LANES)
        if MIDDLE:
            _multiply_rows(work_ptr, coordinate_ptr, middle_ptr, factor, n_touched, LANES, COLS)
            size = size + size_d
        if FROM_BASIS:
            _turn(work_ptr, first_ptr, second_ptr, u_ptr, v_ptr, n_chunks, False, SLOTS, LANES)
        _copy_out(y_ptr, work_ptr, coordinate_ptr, size, lanes, n, n_touched, n_rows, LANES, COLS)


@triton.jit
def pairs_backward_kernel(
    y_ptr, g_ptr, g_out_ptr, work_ptr, sum_ptr, size_ptr, first_ptr, second_ptr, u_ptr, v_ptr, coordinate_ptr,
    row_of_ptr, n, n_touched, n_chunks, n_rows, lane_blocks, per_batch,
    TRANSPOSE: tl.constexpr, SLOTS: tl.constexpr, LANES: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Walk back from y = Q x (TRANSPOSE) or y = Qᵀ x with its gradient g; each program keeps its own sums.

    The exponent of the sums goes to the program's place in size.
    """
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
    size = tl.program_id(0) * 0 + NOTHING
    for block in range(tl.program_id(0) % per_batch, lane_blocks, per_batch):
        lanes = tl.cast(block, tl.int64) * LANES + tl.arange(0, LANES)
        y_largest = _copy_in(
            y_ptr, g_out_ptr, work_ptr, row_of_ptr, u_ptr, lanes, n, n_rows, False, False, DTYPE, LANES, COLS
        )  # fmt: skip
        g_largest = _copy_in(
            g_ptr, g_out_ptr, grad_ptr, row_of_ptr, u_ptr, lanes, n, n_rows, False, True, DTYPE, LANES, COLS
        )  # fmt: skip
        of_products = product_exponent(y_largest, g_largest)
        # Usual vectors stay as they are. Their products have the exponent 0, or none if all are zero.
        new_size = tl.maximum(size, tl.where(tl.max(of_products, axis=0) == NOTHING, NOTHING, 0))
        g_size = tl.zeros((LANES,), tl.int32)
        if _unusual(y_largest) | _unusual(g_largest) | (size > 0):
            new_size = tl.maximum(size, tl.max(of_products, axis=0))
            y_size = at_least_lost(of_products - new_size, DTYPE) - exponent(y_largest)
            g_size = exponent(g_largest)
            _scale_rows(work_ptr, y_size, n_touched, LANES, COLS)
            _scale_rows(grad_ptr, -g_size, n_touched, LANES, COLS)
        shrink = power(at_least_lost(size - new_size, DTYPE), DTYPE)
        size = new_size
        begun = block >= per_batch  # this program has had a block
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
            before = tl.load(sums, mask=begun, other=0.0)
            tl.store(sums, before * shrink + tl.sum(gb * ya - ga * yb, axis=1))
            ya, yb = _rotated(ya, yb, u, v, TRANSPOSE)
            ga, gb = _rotated(ga, gb, u, v, TRANSPOSE)
            tl.store(work_ptr + a_place, ya, mask=live)
            tl.store(work_ptr + b_place, yb, mask=live)
            tl.store(grad_ptr + a_place, ga, mask=live)
            tl.store(grad_ptr + b_place, gb, mask=live)
            tl.debug_barrier()
        _copy_out(g_out_ptr, grad_ptr, coordinate_ptr, g_size, lanes, n, n_touched, n_rows, LANES, COLS)
    tl.store(size_ptr + program, size)
