"""Triton kernels of a fit: products of rotations on the rows of a matrix, the way back with sums per rotation, growth.

In `rotate_kernel` and `walk_kernel` a program has WIDTH columns of the matrix to itself, and takes the rotations in
steps of STEP that share no row. Rows go through the L1 cache. Between two steps stands a barrier, as other threads read
what these have written. In growth A has zeros on its diagonal; the diagonal lies apart.

Numbers of steps and pairs differ from call to call: kernels are not compiled anew for those that 16 divides.
"""

from __future__ import annotations

import triton
import triton.language as tl

TIES = tl.constexpr(1e-3)  # see `growth.favour`


@triton.jit(do_not_specialize=["n_steps"])
def rotate_kernel(
    x_ptr, first_ptr, second_ptr, cos_ptr, sin_ptr, n_steps, n_columns,
    BACK: tl.constexpr, STEP: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """X ← Qᵀ X in place, or Q X with BACK; rows −1 stand for no rotation."""
    columns = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    lanes = tl.arange(0, STEP)
    for step in range(n_steps):
        at = (n_steps - 1 - step if BACK else step) * STEP + lanes
        i = tl.load(first_ptr + at).to(tl.int64)[:, None]
        j = tl.load(second_ptr + at).to(tl.int64)[:, None]
        c, s = tl.load(cos_ptr + at)[:, None], tl.load(sin_ptr + at)[:, None]
        if BACK:
            s = -s
        mask = (i >= 0) & (columns < n_columns)[None, :]
        x, y = x_ptr + i * n_columns + columns[None, :], x_ptr + j * n_columns + columns[None, :]
        a, b = tl.load(x, mask=mask, other=0.0), tl.load(y, mask=mask, other=0.0)
        tl.store(x, c * a + s * b, mask=mask)
        tl.store(y, c * b - s * a, mask=mask)
        tl.debug_barrier()


@triton.jit(do_not_specialize=["n_steps"])
def walk_kernel(
    v_ptr, x_ptr, d_ptr, block_ptr, first_ptr, second_ptr, cos_ptr, sin_ptr, out_ptr, n_steps, n_columns,
    SUMS: tl.constexpr, LOSSES: tl.constexpr, STEP: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """V ← Q V and X ← Q X in place, from the last rotation to the first, with sums over the columns of each rotation.

    Args:
        v_ptr, x_ptr: QᵀHQ and 1, shape (n, n).
        d_ptr: the diagonal of QᵀHQ.
        block_ptr: with LOSSES, the sums M_ii, M_ij, M_jj of every rotation, shape (3, n_steps · STEP).
        out_ptr: the sums, shape (programs, SUMS, n_steps · STEP).
        SUMS: 1 for the gradient or the losses; 9 for all derivatives, see `core.curvature.derivatives`.
        LOSSES: what taking a rotation out costs, see `core.removal`.
    """
    columns = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    inside = (columns < n_columns)[None, :]
    d = tl.load(d_ptr + columns, mask=columns < n_columns, other=0.0)[None, :]
    lanes, total = tl.arange(0, STEP), n_steps * STEP
    out = out_ptr + tl.program_id(0).to(tl.int64) * SUMS * total
    for back in range(n_steps):
        at = (n_steps - 1 - back) * STEP + lanes
        i = tl.load(first_ptr + at).to(tl.int64)[:, None]
        j = tl.load(second_ptr + at).to(tl.int64)[:, None]
        c, s = tl.load(cos_ptr + at)[:, None], tl.load(sin_ptr + at)[:, None]
        mask = (i >= 0) & inside
        rows, others = i * n_columns + columns[None, :], j * n_columns + columns[None, :]
        p, q = tl.load(v_ptr + rows, mask=mask, other=0.0), tl.load(v_ptr + others, mask=mask, other=0.0)
        g, h = tl.load(x_ptr + rows, mask=mask, other=0.0), tl.load(x_ptr + others, mask=mask, other=0.0)
        a, b, x, y = c * p - s * q, s * p + c * q, c * g - s * h, s * g + c * h
        tl.store(v_ptr + rows, a, mask=mask)
        tl.store(v_ptr + others, b, mask=mask)
        tl.store(x_ptr + rows, x, mask=mask)
        tl.store(x_ptr + others, y, mask=mask)
        if LOSSES:
            m_ii = tl.load(block_ptr + at)[:, None]
            m_ij = tl.load(block_ptr + total + at)[:, None]
            m_jj = tl.load(block_ptr + 2 * total + at)[:, None]
            u, v = g - x, h - y
            change = 2 * (u * a + v * b) + u * u * m_ii + 2 * u * v * m_ij + v * v * m_jj
            tl.store(out + at, -tl.sum(change * (2 * d + change), axis=1))
        else:
            turn = b * x - a * y
            tl.store(out + at, tl.sum(2 * d * turn, axis=1))
            if SUMS > 1:
                tl.store(out + total + at, tl.sum(2 * turn * turn, axis=1))
                tl.store(out + 2 * total + at, tl.sum(2 * d * (a * x + b * y), axis=1))
                tl.store(out + 3 * total + at, tl.sum(a * x, axis=1))
                tl.store(out + 4 * total + at, tl.sum(a * y, axis=1))
                tl.store(out + 5 * total + at, tl.sum(b * y, axis=1))
                tl.store(out + 6 * total + at, tl.sum(2 * d * x * x, axis=1))
                tl.store(out + 7 * total + at, tl.sum(2 * d * x * y, axis=1))
                tl.store(out + 8 * total + at, tl.sum(2 * d * y * y, axis=1))
        tl.debug_barrier()


@triton.jit
def largest_kernel(a_ptr, out_ptr, label_ptr, held_ptr, n, size, GROUPED: tl.constexpr, BLOCK: tl.constexpr):
    """For each row the largest |entry|, ties broken by `growth.favour`, and its column; out (2, n) float64.

    With GROUPED, of the columns in the row's own group, or in one that has room: label (n,) and, for each coordinate,
    how many its group has, held (n,); two groups that meet may have ``size`` together.
    """
    row = tl.program_id(0)
    places = tl.arange(0, BLOCK)
    best = tl.full((BLOCK,), -1.0, a_ptr.dtype.element_ty)
    where = tl.zeros((BLOCK,), tl.int32)
    if GROUPED:
        own, room = tl.load(label_ptr + row), size - tl.load(held_ptr + row)
    for start in range(0, n, BLOCK):
        columns = start + places
        x = tl.abs(tl.load(a_ptr + row.to(tl.int64) * n + columns, mask=columns < n, other=0.0))
        mixed = (row + columns) * 40503 + (row * columns) * 30345
        x *= 1.0 + ((mixed & 65535) * (TIES / 65536.0)).to(x.dtype)
        if GROUPED:
            label = tl.load(label_ptr + columns, mask=columns < n, other=-1)
            held = tl.load(held_ptr + columns, mask=columns < n, other=0)
            x = tl.where((label == own) | (held <= room), x, -1.0)
        better = (x > best) & (columns < n)
        best, where = tl.where(better, x, best), tl.where(better, columns, where)
    largest = tl.max(best, axis=0)
    first = tl.min(tl.where(best == largest, where, n), axis=0)
    tl.store(out_ptr + row, largest.to(tl.float64))
    tl.store(out_ptr + n + row, first.to(tl.float64))


@triton.jit(do_not_specialize=["n_pairs"])
def angles_kernel(
    a_ptr, d_ptr, first_ptr, second_ptr, tan_ptr, cos_ptr, sin_ptr, n, n_pairs, BLOCK: tl.constexpr
):
    """Jacobi angles of pairs, within ±45°: tangents (float64), cosines and sines; the diagonal d as they leave it."""
    pairs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = pairs < n_pairs
    i = tl.load(first_ptr + pairs, mask=inside, other=0).to(tl.int64)
    j = tl.load(second_ptr + pairs, mask=inside, other=0).to(tl.int64)
    a = tl.load(d_ptr + i, mask=inside, other=1.0).to(tl.float64)
    b = tl.load(d_ptr + j, mask=inside, other=0.0).to(tl.float64)
    off = tl.load(a_ptr + i * n + j, mask=inside, other=0.0).to(tl.float64)
    gap = a - b
    tan = tl.where(gap < 0.0, -2.0, 2.0) * off / (tl.abs(gap) + tl.sqrt(gap * gap + 4.0 * off * off))
    c = 1.0 / tl.sqrt(1.0 + tan * tan)
    tl.store(tan_ptr + pairs, tan, mask=inside)
    tl.store(cos_ptr + pairs, c.to(d_ptr.dtype.element_ty), mask=inside)
    tl.store(sin_ptr + pairs, (c * tan).to(d_ptr.dtype.element_ty), mask=inside)
    tl.store(d_ptr + i, (a + off * tan).to(d_ptr.dtype.element_ty), mask=inside)
    tl.store(d_ptr + j, (b - off * tan).to(d_ptr.dtype.element_ty), mask=inside)


@triton.jit
def turn_rows_kernel(a_ptr, first_ptr, second_ptr, cos_ptr, sin_ptr, n, BLOCK: tl.constexpr):
    """A ← GᵀA in place: a program has some columns of one pair's rows."""
    pair = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    i, j = tl.load(first_ptr + pair).to(tl.int64), tl.load(second_ptr + pair).to(tl.int64)
    c, s = tl.load(cos_ptr + pair), tl.load(sin_ptr + pair)
    inside = columns < n
    x, y = a_ptr + i * n + columns, a_ptr + j * n + columns
    a, b = tl.load(x, mask=inside, other=0.0), tl.load(y, mask=inside, other=0.0)
    tl.store(x, c * a + s * b, mask=inside)
    tl.store(y, c * b - s * a, mask=inside)


@triton.jit(do_not_specialize=["n_pairs"])
def turn_columns_kernel(a_ptr, first_ptr, second_ptr, cos_ptr, sin_ptr, n, n_pairs, BLOCK: tl.constexpr):
    """A ← AG in place: a program has some pairs of columns of one row. A pair's own entries become zero."""
    row = tl.program_id(0)
    pairs = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = pairs < n_pairs
    i, j = tl.load(first_ptr + pairs, mask=inside, other=0), tl.load(second_ptr + pairs, mask=inside, other=0)
    c, s = tl.load(cos_ptr + pairs, mask=inside, other=0.0), tl.load(sin_ptr + pairs, mask=inside, other=0.0)
    start = a_ptr + row.to(tl.int64) * n
    a, b = tl.load(start + i, mask=inside, other=0.0), tl.load(start + j, mask=inside, other=0.0)
    own = (i == row) | (j == row)
    tl.store(start + i, tl.where(own, 0.0, c * a + s * b), mask=inside)
    tl.store(start + j, tl.where(own, 0.0, c * b - s * a), mask=inside)
